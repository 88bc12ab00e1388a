"""The rows of libraries' servers and clients in benchmarks/compare.py, where the libraries are installed."""

import asyncio
import http.client
import importlib.metadata
import importlib.util
import shutil

import pytest

from hotloop_bench import cli, packages
from hotloop_bench.load import LoadFailed
from hotloop_bench.rows import ROWS, asking, clients, registry, wrk

LIBRARIES = [row for row in ROWS.values() if row.table == "Libraries"]
UNDER_WRK = [row for row in LIBRARIES if not row.calibrated]


class Maker:
    """Makes asyncio's loops."""

    def new_event_loop(self):
        return asyncio.SelectorEventLoop()


def test_the_rows_of_libraries():
    assert {row.name: tuple(row.packages) for row in LIBRARIES} == {
        "aiohttp-wrk-32": ("aiohttp",),
        "uvicorn-wrk-32": ("uvicorn", "httptools"),
        "fastapi-wrk-32": ("fastapi", "uvicorn", "httptools"),
        "tornado-wrk-32": ("tornado",),
        "websockets-32x1KiB": ("websockets",),
        "aiohttp-client-32": ("aiohttp",),
        "redis-get-32": ("redis",),
        "asyncpg-fetch-10": ("asyncpg",),
    }


# -- what is missing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", LIBRARIES, ids=lambda row: row.name)
def test_a_missing_library_is_named(row, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert row.unavailable() == f"it needs {row.packages[0]}, which is not installed"


@pytest.mark.parametrize("row", UNDER_WRK, ids=lambda row: row.name)
def test_a_missing_wrk_is_named(row, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert row.unavailable() == "it needs wrk, which is not installed"


@pytest.mark.parametrize("name", ["redis-get-32", "asyncpg-fetch-10"])
def test_a_missing_database_is_named(name, monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(clients.postgresql, "DEBIAN", tmp_path)
    assert "which is not installed (Debian: apt-get install " in ROWS[name].unavailable()


def test_a_row_whose_library_is_missing_is_not_measured(capsys, monkeypatch):
    monkeypatch.setattr(clients, "missing", lambda *names: "it is not installed")
    assert cli.run(["--quick", "--rounds", "1", "--rows", "redis-get-32", "--loops", "asyncio"]) == 0
    assert "NOT MEASURED: redis-get-32: it is not installed" in capsys.readouterr().out


def test_the_report_names_the_versions_of_the_libraries(monkeypatch):
    monkeypatch.setattr(packages, "missing", lambda name: "it is missing" if name == "httptools" else None)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{len(name)}.0")
    rows = [ROWS["fastapi-wrk-32"], ROWS["uvicorn-wrk-32"], ROWS["sleep_0_one_task"]]
    assert packages.versions(rows) == {"libraries": "fastapi 7.0, uvicorn 7.0"}
    assert packages.versions([ROWS["sleep_0_one_task"]]) == {}


# -- wrk ---------------------------------------------------------------------------------------------------------------

WRK = """\
Running 1s test @ http://127.0.0.1:8080/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.76ms  512.12us  12.40ms   93.01%
    Req/Sec    18.25k     1.10k   19.90k    72.73%
  Latency Distribution
     50%    1.66ms
     75%    1.90ms
     90%    2.10ms
     99%  980.00us
  19973 requests in 1.10s, 3.10MB read
Requests/sec:  18157.33
Transfer/sec:      2.82MB
"""


def test_the_output_of_wrk_is_read():
    assert wrk.report_of(WRK) == (19973, 1.10, pytest.approx(1.66e-3), pytest.approx(980e-6))


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (WRK + "  Non-2xx or 3xx responses: 19973\n", "Non-2xx or 3xx responses: 19973"),
        (WRK + "  Socket errors: connect 0, read 5, write 0, timeout 0\n", "read 5"),
        (WRK.replace("19973 requests", "0 requests"), "nothing of use"),
        ("unable to connect", "nothing of use: 'unable to connect'"),
    ],
)
def test_wrk_without_answers_is_a_failure(output, reason):
    with pytest.raises(LoadFailed, match=reason):
        wrk.report_of(output)


# -- tiny runs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_place_of_wrk(monkeypatch):
    """A few requests on one connection; a list of the bodies that came back."""
    bodies = []

    def run(address):
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        client = http.client.HTTPConnection(host, int(port), timeout=60)
        for _ in range(3):
            client.request("GET", "/")
            response = client.getresponse()
            assert response.status == 200
            bodies.append(response.read())
        client.close()
        return WRK

    monkeypatch.setattr(wrk, "run_wrk", run)
    return bodies


# Libraries may be older than the Python that they run on.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::PendingDeprecationWarning")


@pytest.mark.parametrize("row", UNDER_WRK, ids=lambda row: row.name)
def test_a_real_http_server_responds(row, in_place_of_wrk):
    if reason := registry.missing(*row.packages):
        pytest.skip(reason)
    with row.opened(Maker()) as subject:
        found = row.run(subject, 1)
        assert (found.operations, found.elapsed, found.p99) == (19973, 1.10, pytest.approx(980e-6))
        assert found.cpu > 0
    text = b'{"message":"Hello, world"}' if row.name == "fastapi-wrk-32" else b"Hello, world"
    assert in_place_of_wrk == [text] * 3


@pytest.mark.parametrize("row", [row for row in LIBRARIES if row.calibrated], ids=lambda row: row.name)
def test_a_row_of_a_library_does_its_operations(row):
    if reason := row.unavailable():
        pytest.skip(reason)
    with row.opened(Maker()) as subject:
        for n in (1, 100):
            found = row.run(subject, n)
            assert found.operations == n
            assert found.cpu > 0
            assert 0 < found.p50 <= found.p99


@pytest.mark.skipif(wrk.unavailable() is not None, reason=str(wrk.unavailable()))
@pytest.mark.skipif(clients.load.unavailable() is not None, reason=str(clients.load.unavailable()))
def test_the_bare_server_responds_to_wrk():
    row = ROWS["uvicorn-wrk-32"]
    with row.bare() as subject:
        found = row.run(subject, 1)
    assert found.operations > 0
    assert found.cpu > 0
    assert found.p50 <= found.p99


def settled(answers, order):
    """A request that appends to `order` and fails or succeeds as `answers` say."""

    async def request():
        order.append(len(order))
        await asyncio.sleep(0)
        if answers and order[-1] >= answers:
            raise clients.WrongAnswer("no")

    return request


@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_clients_make_as_many_requests_as_asked(n):
    order = []
    loop = asyncio.SelectorEventLoop()
    found = asking.Asking(loop, [settled(None, order)] * 3).run(n)
    loop.close()
    assert len(order) == found.operations == n
    assert 0 < found.p50 <= found.p99 <= found.elapsed


def test_a_wrong_answer_fails_the_row():
    loop = asyncio.SelectorEventLoop()
    with pytest.raises(ExceptionGroup) as failed:
        asking.Asking(loop, [settled(2, [])] * 3).run(7)
    loop.close()
    assert isinstance(failed.value.exceptions[0], clients.WrongAnswer)


def test_quantiles_of_latencies():
    assert [asking.quantile([1.0, 2.0, 3.0, 4.0], part) for part in (0.0, 0.5, 0.99)] == [1.0, 3.0, 4.0]
    assert asking.quantile([5.0], 0.99) == 5.0
