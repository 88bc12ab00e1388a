"""Stage 10 without Dask, which these tests do not require. With it: tests/ecosystem."""

import os

import pytest

DASK_CRAWLER = "10_dask_crawler.py"


@pytest.mark.parametrize("missing", ["aiohttp", "distributed"])
def test_without_what_it_needs(programs, tmp_path, missing):
    for name in ("aiohttp", "distributed"):
        source = f"raise ModuleNotFoundError('no {name}', name='{name}')" if name == missing else "Client = None"
        (tmp_path / f"{name}.py").write_text(f"{source}\n", encoding="utf-8")
    programs.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), programs.environ.get("PYTHONPATH", "")])
    code, line = programs.failure(DASK_CRAWLER)
    assert (code, f"{missing} is not installed" in line) == (1, True)
