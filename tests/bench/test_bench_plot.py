"""benchmarks/compare.py with `--from` and `--plot`: the saved results and the picture are those of the run."""

import dataclasses
import json
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from hotloop_bench import cli, plot, report, saved
from hotloop_bench.load import Load
from hotloop_bench.results import Measurement, NotMeasured
from hotloop_bench.rows import ROWS
from hotloop_bench.targets import TARGETS

SVG = "{http://www.w3.org/2000/svg}"
FACTS = {"version": "1.0", "loop": "some.Loop", "task": "some.Task"}


def seconds(*values):
    return Measurement(100, list(values))


def served(cpu):
    return Measurement(100, [cpu], [Load(100, cpu * 100, 0.5, 1e-3, 2e-3)])


@pytest.fixture
def run():
    return report.Run(
        machine={"processor": "abacus <&>", "cores": "2", "system": "Linux", "python": "CPython", "commit": "unknown"},
        facts={"asyncio": FACTS, "uvloop": FACTS, "hotloop-c": FACTS, "bare-c": {"version": "cc"}},
        missing={"zuvloop": "No module named 'zuvloop'"},
        baseline="asyncio",
        rounds=3,
        seconds=0.15,
        rows=[ROWS["wait_for"], ROWS["gather_100"], ROWS["echo-udp-32x512B"]],
        outcomes={
            "wait_for": {
                "asyncio": seconds(4e-6),
                "uvloop": seconds(2e-6, 1e-6, 4e-6),
                "hotloop-c": seconds(1e-6),
                "bare-c": NotMeasured("not applicable", "no loop"),
            },
            "gather_100": {
                "asyncio": seconds(4e-4),
                "uvloop": NotMeasured("failed", "Boom"),
                "hotloop-c": seconds(4e-6),
                "bare-c": NotMeasured("not applicable", "no loop"),
            },
            "echo-udp-32x512B": {
                "asyncio": served(4e-6),
                "uvloop": served(3e-6),
                "hotloop-c": served(2e-6),
                "bare-c": served(1e-6),
            },
        },
    )


@pytest.fixture
def results(run, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(report.as_json(run)), encoding="utf-8")
    return path


def marks(picture):
    """The tip of each mark, and where the mark is."""
    found = {}
    for element in ElementTree.fromstring(picture).iter():
        tip = element.find(f"{SVG}title")
        if element.tag == f"{SVG}circle" and tip is not None:
            found[tip.text] = float(element.get("cx"))
        elif element.tag == f"{SVG}polygon" and tip is not None:
            across = [float(point.partition(",")[0]) for point in element.get("points").split()]
            found[tip.text] = (min(across) + max(across)) / 2
    return found


# -- saved results -----------------------------------------------------------------------------------------------------


def test_saved_results_are_the_same_run(run, results):
    again = saved.read(str(results))
    assert report.as_json(again) == report.as_json(run)
    assert report.text(again) == report.text(run)


def test_a_part_of_a_run(run):
    part = saved.part_of(run, {"gather_100", "echo-udp-32x512B"}, ["asyncio", "zuvloop"])
    assert [row.name for row in part.rows] == ["gather_100", "echo-udp-32x512B"]
    assert list(part.facts) == ["asyncio", "bare-c"]
    assert part.missing == run.missing
    assert part.outcomes["gather_100"].keys() == {"asyncio", "bare-c"}
    assert saved.part_of(run, None, None) == run


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[]", "was not written by compare.py --json in format 1"),
        ('{"format": 99}', "was not written by compare.py --json in format 1"),
        ('{"format": 1}', "is not complete: KeyError('settings')"),
    ],
)
def test_a_file_without_results_is_one_line_and_exit_code_2(content, message, tmp_path, capsys):
    path = tmp_path / "results.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit) as error:
        cli.run(["--from", str(path)])
    assert error.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("compare.py: argument --from: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_row_of_another_version_is_named(results, capsys):
    results.write_text(results.read_text().replace("gather_100", "gather_the_dead"))
    with pytest.raises(SystemExit):
        cli.run(["--from", str(results)])
    assert "results of gather_the_dead, a row that this version does not have" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quick"], "there is nothing to measure"),
        (["--rounds", "3"], "there is nothing to measure"),
        (["--loops", "rloop"], "none of the loops can be measured"),
        (["--loops", "asyncio,rloop", "--baseline", "rloop"], "the baseline, rloop, cannot be measured"),
        (["--rows", "select_1"], "has none of these rows"),
    ],
)
def test_results_that_were_not_saved_are_an_error(arguments, message, results, capsys):
    with pytest.raises(SystemExit) as error:
        cli.run(["--from", str(results), *arguments])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_the_baseline_of_a_part_is_one_that_is_in_it(results, capsys):
    assert cli.run(["--from", str(results), "--loops", "uvloop,hotloop-c", "--rows", "wait_for"]) == 0
    assert "Event loops: speed, uvloop = 1" in capsys.readouterr().out
    assert cli.run(["--from", str(results), "--baseline", "hotloop-c"]) == 0
    assert "Event loops: speed, hotloop-c = 1" in capsys.readouterr().out


# -- the picture -------------------------------------------------------------------------------------------------------


def test_marks_are_where_the_speeds_are(run):
    at = marks(plot.svg(run))
    one, two = at["wait_for, asyncio: 1.00, 4.00 us"], at["wait_for, uvloop: 2.00, 2.00 us"]
    four = at["wait_for, hotloop-c: 4.00, 1.00 us"]
    assert four - two == pytest.approx(two - one, abs=0.2)
    assert two > one
    assert at["echo-udp-32x512B, bare-c: 4.00, 1.00 us"] == pytest.approx(four, abs=0.2)
    assert at["gather_100, asyncio: 1.00, 400 us"] == pytest.approx(one, abs=0.2)


def test_a_loop_that_was_not_measured_has_no_mark_and_no_mean(run):
    found = marks(plot.svg(run))
    assert not [tip for tip in found if tip.startswith("gather_100, uvloop")]
    assert not [tip for tip in found if tip.startswith("geometric mean, uvloop")]
    assert "geometric mean, hotloop-c: 20.00" in found


def test_the_scale_ends_where_one_row_would_squeeze_the_others(run):
    at = marks(plot.svg(run))
    beyond = at["gather_100, hotloop-c: 100.00, 4.00 us"]
    four, one = at["wait_for, hotloop-c: 4.00, 1.00 us"], at["wait_for, asyncio: 1.00, 4.00 us"]
    highest = plot.WIDEST[1] * 1.12
    assert beyond - one == pytest.approx((four - one) * math.log(highest, 4), abs=0.3)


def test_thin_lines_are_the_middle_half_of_the_rounds(run):
    root = ElementTree.fromstring(plot.svg(run))
    [line] = [line for line in root.iter(f"{SVG}line") if line.get("class") == "blue"]
    at = marks(plot.svg(run))
    one, two = at["wait_for, asyncio: 1.00, 4.00 us"], at["wait_for, uvloop: 2.00, 2.00 us"]
    # Quartiles of 1, 2 and 4 us are 1.5 and 3 us: speeds of 2.67 and 1.33.
    assert float(line.get("x1")) == pytest.approx(one + (two - one) * math.log2(4 / 3), abs=0.3)
    assert float(line.get("x2")) == pytest.approx(one + (two - one) * math.log2(8 / 3), abs=0.3)


def test_the_legend_names_the_loops_that_were_measured(run):
    texts = [element.text for element in ElementTree.fromstring(plot.svg(run)).iter(f"{SVG}text")]
    assert {"asyncio 1.0", "uvloop 1.0", "hotloop-c 1.0", "bare C server, the limit"} <= set(texts)
    assert not [text for text in texts if "zuvloop" in text]
    assert "abacus <&>, Linux, CPython" in texts
    failed = {"uvloop": NotMeasured("failed", "Boom")}
    without = {name: outcomes | failed for name, outcomes in run.outcomes.items()}
    assert "uvloop 1.0" not in plot.svg(dataclasses.replace(run, outcomes=without))


def test_everything_is_on_the_paper(run):
    root = ElementTree.fromstring(plot.svg(run))
    _, _, width, height = map(float, root.get("viewBox").split())
    for element in root.iter(f"{SVG}text"):
        x, y, length = float(element.get("x")), float(element.get("y")), len(element.text) * plot.CHARACTER
        kinds = element.get("class").split()
        left = x - length if "end" in kinds else x - length / 2 if "mid" in kinds else x
        assert left >= 0
        assert left + length <= width
        assert 0 < y < height


def test_every_colour_has_a_light_and_a_dark_value(run):
    root = ElementTree.fromstring(plot.svg(run))
    light, dark = root.find(f"{SVG}style").text.split("@media(prefers-color-scheme:dark)")
    used = {name for element in root.iter() for name in element.get("class", "").split()} - {"bold", "end", "mid"}
    assert used <= plot.COLOURS.keys()
    for name in used:
        assert re.search(rf"\.{name}{{fill:#", light)
        assert re.search(rf"\.{name}{{fill:#", dark)


def test_every_loop_has_a_mark_of_its_own():
    assert plot.SHAPES.keys() == {*TARGETS, "bare-c"}
    assert len(set(plot.SHAPES.values())) == len(plot.SHAPES)


def test_the_command_draws_saved_results(run, results, tmp_path, capsys):
    picture = tmp_path / "plot.svg"
    assert cli.run(["--from", str(results), "--plot", str(picture)]) == 0
    assert picture.read_text(encoding="utf-8") == plot.svg(run)
    assert capsys.readouterr().out == report.text(run)


def test_drawn_on_the_standard_output_in_place_of_the_table(run, results, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["--from", str(results), "--plot", "-"]) == 0
    assert capsys.readouterr().out == plot.svg(run)
    assert list(tmp_path.iterdir()) == [results]


def test_the_standard_output_is_for_one_document(capsys):
    with pytest.raises(SystemExit) as error:
        cli.run(["--json", "-", "--plot", "-"])
    assert error.value.code == 2
    assert "argument --plot: the standard output is already --json's" in capsys.readouterr().err


def test_drawn_from_a_live_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("hotloop_bench.cli.QUICK_SECONDS", 0.001)
    picture = tmp_path / "plot.svg"
    arguments = ["--quick", "--rounds", "1", "--rows", "call_soon_chain", "--loops", "asyncio,hotloop-python"]
    assert cli.run([*arguments, "--plot", str(picture)]) == 0
    capsys.readouterr()
    found = marks(picture.read_text(encoding="utf-8"))
    assert [tip.partition(":")[0] for tip in found] == ["call_soon_chain, asyncio", "call_soon_chain, hotloop-python"]


def test_a_picture_that_cannot_be_written_is_known_before_measuring(capsys):
    with pytest.raises(SystemExit) as error:
        cli.run(["--rows", "call_soon_chain", "--plot", "/nonsense/plot.svg"])
    assert error.value.code == 2
    assert "argument --plot: " in capsys.readouterr().err
