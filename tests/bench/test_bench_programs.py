"""benchmarks/programs.py and compiled_asyncio.py: the programs do their work on each version of asyncio."""

import asyncio
import json

import pytest

import compiled_asyncio
import hotloop
import hotloop.asyncio
import programs


@pytest.mark.parametrize("module", [asyncio, hotloop.asyncio], ids=["asyncio", "hotloop.asyncio"])
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_program_ends_without_an_error(name, module):
    hotloop.run(programs.PROGRAMS[name](module))


def test_comparison_shows_and_saves_each_program(tmp_path, capsys):
    saved = tmp_path / "seconds.json"
    status = compiled_asyncio.main(["--programs", "condition,sleep", "--rounds", "2", "--json", str(saved)])
    shown = capsys.readouterr()
    if hotloop.asyncio.Queue is asyncio.Queue:
        assert (status, shown.out) == (1, "")
        assert "no compiled layer" in shown.err
        return
    assert status == 0
    assert [line.split()[0] for line in shown.out.splitlines()[3:]] == ["condition", "sleep_0"]
    found = json.loads(saved.read_text())
    assert found["loop"] == "hotloop"
    assert all(len(rounds) == 2 for program in found["seconds"].values() for rounds in program.values())


def test_unknown_program_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as ended:
        compiled_asyncio.main(["--programs", "nothing"])
    assert ended.value.code == 2
    assert "no program fits 'nothing'" in capsys.readouterr().err
