"""The documents: every block of code runs on both implementations, and the names and figures in the text are true."""

import ast
import inspect
import os
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from support import documents
from support.documents import ROOT, Block

import hotloop
from hotloop import testing
from hotloop._pure.tasks.future import Future
from hotloop._pure.tasks.task import Task
from hotloop_bench import cli, report, saved
from hotloop_bench.results import Comparison, Measurement, compare, medians

BLOCKS = [block for page in documents.PAGES for block in documents.blocks(page)]
TO_RUN = [block for block in BLOCKS if block.language in documents.RUN and not block.why_not_run]

# Another interpreter for the blocks, of the same version: that of an environment with hotloop and nothing else.
PYTHON = os.environ.get("HOTLOOP_DOCUMENTS_PYTHON", sys.executable)


# -- running -----------------------------------------------------------------------------------------------------------


def skip_unless_it_applies(block: Block) -> None:
    version = sys.version_info[:2]
    if found := re.fullmatch(r"python 3\.(\d+)(?: to 3\.(\d+))?", block.condition):
        oldest, newest = int(found[1]), int(found[2] or 99)
        if not (3, oldest) <= version <= (3, newest):
            pytest.skip(f"the page says that this is for {block.condition}")
    elif found := re.fullmatch(r"needs (\w+)", block.condition):
        if subprocess.run([PYTHON, "-c", f"import {found[1]}"], capture_output=True, check=False).returncode != 0:
            pytest.skip(f"the page says that this needs {found[1]}")
    else:
        assert not block.condition, f"{block.where}: nothing is known of {block.condition!r}"


@pytest.fixture
def folder(tmp_path):
    """A folder to run a block in: it has the files of a clone, and nothing that a block could damage."""
    for name in ("benchmarks", "docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(command, folder, impl, **keywords):
    """Run a command as a reader would type it, with `python` being the interpreter for the blocks."""
    path = os.pathsep.join([str(Path(PYTHON).parent), os.environ["PATH"]])
    # As with hotloop and pytest installed: hotloop's plugin, and no others for asynchronous tests.
    plugins = {"PYTEST_ADDOPTS": "-p no:anyio -p no:asyncio"}
    if sys.executable == PYTHON:
        plugins["PYTEST_PLUGINS"] = "hotloop.pytest_plugin"
    environ = os.environ | {"PATH": path, "HOTLOOP_IMPL": impl.name} | plugins
    return subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        **keywords,
    )


def run_quietly(command, folder, impl):
    done = run(command, folder, impl)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"


def run_console(block, folder, impl):
    """Run each command after a prompt and compare its output with the page's, where `...` stands for anything."""
    for step in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, _, shown = step.partition("\n")
        done = run(["bash", "-c", command], folder, impl)
        said = done.stdout + done.stderr
        pattern = ".*".join(map(re.escape, shown.rstrip("\n").split("...")))
        assert re.fullmatch(pattern, said.rstrip("\n"), re.DOTALL), f"{command} said:\n{said}"


@pytest.mark.only("c", "python", reason="these are documents of hotloop")
@pytest.mark.parametrize("block", TO_RUN, ids=lambda block: block.where)
def test_a_block_of_code_runs(block, impl, folder):
    skip_unless_it_applies(block)
    for other in BLOCKS:
        if other.page == block.page and other.title:
            (folder / other.title).write_text(other.code, encoding="utf-8")
    if block.language == "python":
        (folder / "__block__.py").write_text(block.code, encoding="utf-8")
        run_quietly([PYTHON, "-W", "error", "__block__.py"], folder, impl)
    elif block.language == "sh":
        run_quietly(["bash", "-euc", block.code], folder, impl)
    else:
        run_console(block, folder, impl)


def test_every_block_says_what_it_is():
    unknown = [block.where for block in BLOCKS if block.language not in documents.RUN + documents.SHOWN]
    assert not unknown, "no language, or one that nothing is known of"
    assert TO_RUN


@pytest.mark.parametrize("page", documents.PAGES, ids=lambda page: page.name)
def test_no_code_hides_in_an_indented_block(page):
    assert documents.indented_code(page) == []


def test_python_that_is_not_run_is_python_all_the_same():
    for block in BLOCKS:
        if block.language == "python" and block.why_not_run:
            compile(block.code, block.where, "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


# -- the collector -----------------------------------------------------------------------------------------------------


def test_what_is_found_on_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        'Text\n\n<!-- test: python 3.12 -->\n\n```python title="a.py"\n1\n\n2\n```\n\n'
        "- item\n\n    ```sh\n    ls\n    ```\n"
    )
    first, second = documents.blocks(page)
    assert (first.line, first.language, first.title, first.condition) == (6, "python", "a.py", "python 3.12")
    assert first.code == "1\n\n2\n"
    assert (second.line, second.language, second.title, second.condition) == (14, "sh", None, "")
    assert second.code == "ls\n"


@pytest.mark.parametrize("text", ["```python\n1\n", "<!-- test: not run, why -->\n\nText\n"])
def test_what_is_wrong_with_a_page(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"page.md:[13]: "):
        list(documents.blocks(page))


def test_indented_code_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Text\n\n    code\n\n- item\n\n    more of it\n\n```text\n\n    fenced\n```\n")
    assert documents.indented_code(page) == [3]


@pytest.mark.only("c", "python", reason="these are documents of hotloop")
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "import hotloop\nraise SystemExit(hotloop.implementation)\n"),
        ("python", "import warnings\nwarnings.warn('x')\n"),
        ("sh", "false\ntrue\n"),
        ("sh", "echo trouble >&2\n"),
        ("console", "$ echo one\ntwo\n"),
    ],
)
def test_a_block_that_is_wrong_fails(language, code, impl, folder):
    block = Block(ROOT / "README.md", 1, language, None, "", code)
    with pytest.raises(AssertionError):
        test_a_block_of_code_runs(block, impl, folder)


# -- the text of the pages ---------------------------------------------------------------------------------------------


def test_the_api_page_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^### `hotloop\.(\w+)", page, re.MULTILINE))
    names = {*hotloop.__all__, "EpollSelector", "KqueueSelector", "EventLoopPolicy"}
    assert described == names


def test_the_api_page_has_the_parameters_of_what_can_be_called():
    """Of the Python implementation, where a class has two: a compiled one need not have a signature."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    called = {"run": hotloop.run, "new_event_loop": hotloop.new_event_loop, "install": hotloop.install}
    others = ("compiled_asyncio", "watch_stalls", "format_tasks", "dump_tasks_on", "allow_inspection")
    called |= {name: getattr(hotloop, name) for name in others}
    called |= {"EventLoop": hotloop.EventLoop, "Future": Future, "Task": Task}
    shown = re.findall(r"^### `hotloop\.(\w+)`\n\n`\1\((.*)\)`$", page, re.MULTILINE)
    assert {name for name, _ in shown} == called.keys()
    for name, parameters in shown:
        expected = [re.sub(r"[:=].*", "", parameter).strip() for parameter in parameters.split(", ")]
        kinds = inspect.signature(called[name]).parameters
        assert [parameter for parameter in expected if parameter not in ("*", "")] == list(kinds), name


def test_the_testing_pages_have_every_name_and_its_parameters():
    names = ("testing.md", "testing-network.md")
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in names)
    assert set(re.findall(r"^### `testing\.(\w+)`", page, re.MULTILINE)) == set(testing.__all__)
    shown = re.findall(r"^### `testing\.(\w+)`\n\n`\1\((.*)\)`$", page, re.MULTILINE)
    assert [name for name, _ in shown] == ["run", "run_seeds", "new_event_loop", "EventLoop", "pipe_network"]
    for name, parameters in shown:
        called = testing.EventLoop.__init__ if name == "EventLoop" else getattr(testing, name)
        expected = [str(each).split(":")[0] for each in inspect.signature(called).parameters.values()]
        defaults = {
            each.name: each.default
            for each in inspect.signature(called).parameters.values()
            if each.default is not each.empty
        }
        told = [each for each in parameters.split(", ") if each != "*"]
        assert [each.split("=")[0] for each in told] == [each for each in expected if each != "self"], name
        assert {each.split("=")[0]: ast.literal_eval(each.split("=")[1]) for each in told if "=" in each} == defaults


def test_the_readme_links_to_what_is_there():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 3
    assert [link for link in links if not (ROOT / link).exists()] == []


RESULTS = ROOT / "docs" / "results"
GROUPS = ("loops", "Network", "TLS", "Libraries")


def comparison(version: str, group: str, loop: str, reference: str) -> Comparison:
    """The comparison that the benchmark prints, of the results with a Python version."""
    run = saved.read(str(RESULTS / f"cpython-{version}.json"))
    subjects = ("event loop", "selector") if group == "loops" else ("network",)
    rows = run.outcomes_of(run.rows_on(*subjects, table="Network" if group == "loops" else group))
    found = compare(rows, loop, reference)
    assert found, f"no row of {group} has both {loop} and {reference} on {version}"
    return found


@pytest.mark.parametrize(
    ("version", "head", "loop", "reference"),
    [
        ("3.14", "asyncio", "hotloop-c", "asyncio"),
        ("3.14", "uvloop", "hotloop-c", "uvloop"),
        ("3.14", "zuvloop", "hotloop-c", "zuvloop"),
        ("3.14", "the fastest other of each row", "hotloop-c", "best other"),
        ("3.14", "hotloop-python: asyncio", "hotloop-python", "asyncio"),
        ("3.13", "asyncio", "hotloop-c", "asyncio"),
        ("3.13", "uvloop", "hotloop-c", "uvloop"),
        ("3.13", "the fastest other of each row", "hotloop-c", "best other"),
    ],
)
def test_the_means_are_those_of_the_results(version, head, loop, reference):
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    found = (comparison(version, group, loop, reference) for group in GROUPS)
    cells = [f"{one.mean:.2f} ({one.rows}, {one.lowest:.2f})" for one in found]
    assert f"| {version} | {head} | {' | '.join(cells)} |" in page


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("3.14", ["it is {middle:.0%} of the median", "and {tenth:.0%} in a tenth", "In {apart} of {rows} rows"]),
        ("3.13", ["(3.13: {middle:.0%} and {tenth:.0%})", "(3.13: {apart} of {rows})"]),
    ],
)
def test_the_noise_is_that_of_the_results(version, told):
    """How far the rounds of a loop are apart, and in how many rows all of the fastest's are below those of the next."""
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    ranges, apart, rows = [], 0, 0
    for outcomes in saved.read(str(RESULTS / f"cpython-{version}.json")).outcomes.values():
        found = [each for name, each in outcomes.items() if isinstance(each, Measurement) and name != "bare-c"]
        ranges += [(max(each.seconds) - min(each.seconds)) / each.median for each in found]
        first, second = sorted(found, key=lambda each: each.median)[:2]
        apart += max(first.seconds) < min(second.seconds)
        rows += 1
    deciles = statistics.quantiles(ranges, n=10)
    facts = {"middle": deciles[4], "tenth": deciles[8], "apart": apart, "rows": rows}
    assert [text for text in told if text.format(**facts) not in page] == []


def test_the_figures_of_the_readme_are_those_of_the_results():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    against_asyncio = [comparison("3.14", group, "hotloop-c", "asyncio") for group in GROUPS[:3]]
    loops, network, tls = (one.mean for one in against_asyncio)
    assert f"Over all {sum(one.rows for one in against_asyncio)} rows" in text
    assert f"hotloop is {loops:.1f} times as fast as asyncio in callbacks" in text
    assert f"{network:.1f} times on the network and {tls:.1f} times over TLS" in text
    loops, network, tls = (comparison("3.14", group, "hotloop-c", "best other").mean for group in GROUPS[:3])
    assert f"{loops:.1f}, {network:.1f} and {tls:.1f} times as fast as the fastest other loop" in text


def drawing_commands():
    text = "".join(block.code for block in BLOCKS if "--plot" in block.code and "--from" in block.code)
    commands = [shlex.split(line) for line in text.replace("\\\n", "").splitlines() if "--plot" in line]
    return [command[command.index("benchmarks/compare.py") + 1 :] for command in commands]


def test_the_plots_are_what_their_commands_draw(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    drawn = set()
    for arguments in drawing_commands():
        at = arguments.index("--plot") + 1
        plot, again = ROOT / arguments[at], tmp_path / "plot.svg"
        assert cli.run([*arguments[:at], str(again), *arguments[at + 1 :]]) == 0
        assert again.read_text(encoding="utf-8") == plot.read_text(encoding="utf-8"), f"{plot} is stale"
        drawn.add(plot)
    capsys.readouterr()
    assert drawn == set((ROOT / "docs" / "plots").glob("*.svg"))


def test_the_tables_have_the_figures_of_the_results():
    """The results are those named last above a table; its first column names the row, its head the loops."""
    found, loops, shown = {}, [], set()
    for line in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if named := re.search(r"docs/results/([\w.-]+\.json)", line):
            results = named[1]
            found = saved.read(str(RESULTS / results)).outcomes
        elif line.startswith("| row |"):
            loops = cells[1:]
        elif line.startswith("| `"):
            name = cells[0].strip("`")
            outcomes = found[name]
            measured = medians({loop: outcomes[loop] for loop in loops if loop != "bare-c"})
            fastest = report.duration(min(measured.values()))
            for loop, cell in zip(loops, cells[1:], strict=True):
                outcome = outcomes[loop]
                expected = report.duration(outcome.median) if isinstance(outcome, Measurement) else "-"
                assert cell.strip("*") == expected, f"{results}, {name}, {loop}"
                assert cell.startswith("**") == (loop != "bare-c" and expected == fastest), f"{name}, {loop}: bold"
            shown.add((results, name))
    assert shown == {(path.name, name) for path in RESULTS.glob("*.json") for name in saved.read(str(path)).outcomes}
