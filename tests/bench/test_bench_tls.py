"""The rows over TLS of benchmarks/compare.py, the certificate of their servers, and their part of the report."""

import asyncio
import contextlib
import dataclasses
import importlib.util
import json
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from hotloop_bench import cli, identity, load, report, worker
from hotloop_bench.load import TLS, Load, LoadFailed, NoLoadGenerator
from hotloop_bench.results import Measurement, NotMeasured
from hotloop_bench.rows import ROWS, NotOffered, serving, tls
from hotloop_bench.rows.echo import by_protocol
from hotloop_bench.rows.network import EchoOnce
from hotloop_bench.runner import USUAL_SECONDS, Crew, Settings, Worker
from hotloop_bench.targets import BARE_C, TARGETS

ROWS_OVER_TLS = [row for row in ROWS.values() if row.table == "TLS"]

needs_openssl = pytest.mark.skipif(tls.unavailable() is not None, reason=str(tls.unavailable()))
needs_certificate = pytest.mark.skipif(identity.unavailable() is not None, reason=str(identity.unavailable()))


# -- the certificate ---------------------------------------------------------------------------------------------------


@needs_certificate
def test_the_certificate_is_that_of_this_machine_with_its_key(certificate):
    command = ["openssl", "x509", "-in", certificate, "-noout", "-text"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "ASN1 OID: prime256v1" in text
    assert "IP Address:127.0.0.1" in text
    assert isinstance(identity.server_context(certificate), ssl.SSLContext)
    assert os.listdir(Path(certificate).parent) == ["identity"]


@needs_certificate
def test_a_certificate_that_cannot_be_made_says_why(tmp_path):
    with pytest.raises(RuntimeError, match=r"openssl made no certificate: .*No such file or directory"):
        identity.make(os.fspath(tmp_path / "no" / "such" / "folder"))


def test_the_missing_parts_for_a_certificate_are_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert identity.unavailable() == "the certificate is made by the openssl command, which is not installed"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert identity.unavailable() == "this Python has no ssl module"


# -- compiling ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def compiler_without_headers(tmp_path, monkeypatch):
    """A compiler that does not find <openssl/ssl.h>, and an empty cache: the user's may have the program already."""
    compiler = tmp_path / "cc"
    where = load.SOURCES / "tls.c"
    compiler.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--version*) echo cc 1.0; exit;; *-lssl*) ;; *) exec cc "$@";; esac\n'
        f"echo '{where}:12:10: fatal error: openssl/ssl.h: No such file or directory' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("CC", os.fspath(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))


NO_HEADERS = (
    "the load generator with TLS could not be compiled: tls.c:12:10: fatal error: openssl/ssl.h:"
    " No such file or directory; it needs OpenSSL's headers (libssl-dev)"
)


def test_missing_headers_are_a_reason(compiler_without_headers, fresh_programs):
    assert load.unavailable(TLS) == NO_HEADERS
    assert tls.unavailable() == NO_HEADERS
    with pytest.raises(NoLoadGenerator, match=r"openssl/ssl\.h"):
        load.program(TLS)


@pytest.mark.skipif(load.unavailable() is not None, reason=str(load.unavailable()))
def test_without_headers_only_the_rows_over_tls_are_missing(
    compiler_without_headers, fresh_programs, monkeypatch, capsys
):
    monkeypatch.setattr(cli, "QUICK_SECONDS", 0.001)
    rows = "echo-tcp-protocol-1x128B,handshakes-tls-32,download-tls-1GiB"
    assert cli.run(["--quick", "--rounds", "1", "--rows", rows, "--loops", "asyncio"]) == 0
    out = capsys.readouterr().out
    assert f"NOT MEASURED: handshakes-tls-32, download-tls-1GiB: {NO_HEADERS}\n" in out
    assert out.count("NOT MEASURED") == 1


# -- the rows ----------------------------------------------------------------------------------------------------------


def test_the_rows_over_tls():
    assert [row.name for row in ROWS_OVER_TLS] == [
        "echo-tls-protocol-32x1KiB",
        "echo-tls-protocol-32x64KiB",
        "echo-tls-buffered-32x64KiB",
        "echo-tls-streams-32x1KiB",
        "echo-tls-streams-32x64KiB",
        "handshakes-tls-32",
        "download-tls-1GiB",
        "aiohttp-https-wrk-32",
    ]


def test_a_row_of_its_own_length_is_shorter_in_short_rounds():
    row = ROWS["download-tls-1GiB"]
    asked = {seconds: Settings(1, seconds).request_for(row) for seconds in (USUAL_SECONDS, 1.0, 0.015, 1e-6)}
    assert {seconds: request["operations"] for seconds, request in asked.items()} == {
        USUAL_SECONDS: 1024,
        1.0: 1024,
        0.015: 102,
        1e-6: 1,
    }
    assert "operations" not in Settings(1, 0.15).request_for(ROWS["handshakes-tls-32"])


@needs_openssl
def test_the_workers_measure_a_download():
    with Crew([TARGETS["asyncio"], BARE_C]) as crew:
        outcomes = crew.measure(ROWS["download-tls-1GiB"], Settings(rounds=2, seconds=0.0003))
    for name in ("asyncio", "bare-c"):
        assert outcomes[name].operations == 2
        assert [load.operations for load in outcomes[name].loads] == [2, 2]
        assert min(outcomes[name].seconds) > 0
        assert outcomes[name].p50 is None


@contextlib.contextmanager
def opened(row_opener, make_loop):
    loop = make_loop()
    with contextlib.closing(loop), row_opener(loop) as subject:
        yield subject
        loop.run_until_complete(loop.shutdown_default_executor())


@needs_openssl
def test_a_server_that_sends_another_block_fails_its_row():
    class Emptied(tls.Download):
        def send(self):
            self.block = bytes(len(self.block))
            super().send()

    @contextlib.asynccontextmanager
    async def serve(loop, network, path):
        connections = serving.Connections()
        async with serving.protocol_server(loop, network, path, lambda: Emptied(connections), connections) as address:
            yield address

    opener = serving.driven(serve, "tls", 1, tls.downloading)
    with opened(opener, asyncio.SelectorEventLoop) as subject, pytest.raises(LoadFailed, match="wrong download"):
        subject.run(1)


@needs_openssl
@pytest.mark.parametrize("network", ["tcp", "tls"])
def test_the_servers_of_aiofastnets_columns_have_its_transports(network):
    pytest.importorskip("aiofastnet", reason="aiofastnet is not installed")
    modules = []

    class Told(EchoOnce):
        def connection_made(self, transport):
            super().connection_made(transport)
            modules.append(type(transport).__module__)

    @contextlib.asynccontextmanager
    async def serve(loop, network, path):
        async with by_protocol(loop, network, path, Told) as address:
            yield address

    opener = serving.served(serve, network, 1, None)
    with opened(opener, TARGETS["aiofastnet"].new_event_loop) as subject:
        assert subject.run(3).operations == 3
    assert set(modules) == {{"tcp": "aiofastnet.selector_transport", "tls": "aiofastnet.ssl_transport"}[network]}


class WithoutServers(asyncio.SelectorEventLoop):
    async def create_server(self, *args, **kwargs):
        raise NotImplementedError


@needs_openssl
@pytest.mark.parametrize("name", ["echo-tls-protocol-32x1KiB", "echo-tls-streams-32x1KiB", "download-tls-1GiB"])
def test_a_loop_without_tls_is_told_from_one_that_fails(name):
    class Maker:
        def new_event_loop(self):
            return WithoutServers()

    with pytest.raises(NotOffered, match=r"^TLS$"), ROWS[name].opened(Maker()):
        pass


class ScriptedWorker(Worker):
    """A worker whose process answers each request with the next of `script`, in JSON."""

    script = ({"facts": {"version": "1.0", "loop": "rloop.Loop"}}, {"not_offered": "TLS"}, {"closed": "row"})

    def __init__(self, target):
        self.target, self.lines = target, iter(self.script)
        greeting = next(self.lines)
        self.facts, self.missing = greeting["facts"], None
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    def read_reply(self):
        return next(self.lines)

    def stop(self):
        self.process.kill()
        self.process.communicate()


def always_possible(row):
    return dataclasses.replace(row, unavailable=lambda: None)


def test_a_row_that_a_loop_does_not_offer_has_that_outcome():
    with Crew([TARGETS["rloop"]], ScriptedWorker) as crew:
        outcomes = crew.measure(always_possible(ROWS["handshakes-tls-32"]), Settings(1, 0.001))
        assert crew.workers["rloop"].process.poll() is None
    assert outcomes == {"rloop": NotMeasured("not offered", "TLS")}


def test_a_worker_reports_that_its_loop_does_not_offer_a_row(monkeypatch):
    @contextlib.contextmanager
    def lacking(maker):
        raise NotOffered("TLS")
        yield

    requests = ['{"row": "handshakes-tls-32", "seconds": 0.1}\n', '{"row": "download-tls-1GiB", "seconds": 0.1}\n']
    replies = []
    for name in ("handshakes-tls-32", "download-tls-1GiB"):
        monkeypatch.setitem(worker.ROWS, name, dataclasses.replace(ROWS[name], opened=lacking))
    monkeypatch.setattr(worker, "facts", lambda target: {"version": "1.0"})
    monkeypatch.setattr(sys, "stdin", requests)
    monkeypatch.setattr(worker, "replies_apart_from_prints", lambda: contextlib.nullcontext(Collected(replies)))
    worker.serve(TARGETS["asyncio"])
    assert [json.loads(line) for line in replies] == [{"facts": {"version": "1.0"}}, *[{"not_offered": "TLS"}] * 2]


class Collected:
    """A file for print() whose lines go into a list."""

    def __init__(self, lines):
        self.lines = lines

    def write(self, text):
        if text.strip():
            self.lines.append(text)

    def flush(self):
        pass


# -- the report --------------------------------------------------------------------------------------------------------


def on_network(seconds):
    return Measurement(10, [seconds], [Load(10, 10 * seconds, 0.01)])


@pytest.fixture
def finished_run():
    facts = {"version": "1.0"}
    lacking = NotMeasured("not offered", "TLS")
    outcomes = {
        "echo-tcp-protocol-32x1KiB": (on_network(4e-6), on_network(4e-6), on_network(2e-6), on_network(1e-6)),
        "echo-tls-protocol-32x1KiB": (on_network(9e-6), lacking, on_network(6e-6), on_network(3e-6)),
        "download-tls-1GiB": (on_network(8e-4), lacking, on_network(8e-4), on_network(2e-4)),
    }
    loops = ("uvloop", "rloop", "hotloop-c", "bare-c")
    return report.Run(
        machine={},
        facts=dict.fromkeys(loops, facts),
        missing={},
        baseline="uvloop",
        rounds=1,
        seconds=0.15,
        rows=[ROWS[name] for name in outcomes],
        outcomes={name: dict(zip(loops, row, strict=True)) for name, row in outcomes.items()},
    )


def test_rows_over_tls_have_a_table_and_means_of_their_own(finished_run):
    text = report.text(finished_run)
    table = text.partition("TLS: processor time of the measured process for one operation")[2]
    assert table.split("\n")[2:5] == [
        "                            uvloop  rloop  hotloop-c   bare-c",
        "echo-tls-protocol-32x1KiB  9.00 us      -    6.00 us  3.00 us",
        "download-tls-1GiB           800 us      -     800 us   200 us",
    ]
    assert text.splitlines()[-5:] == [
        "Network: hotloop-c takes 2.00 times the processor time of the bare C server in the geometric mean of"
        " 1 protocol row, at most 2.00 (echo-tcp-protocol-32x1KiB)",
        "TLS: hotloop-c is 1.22 times as fast as the best other in the geometric mean of 2 rows, at least 1.00"
        " (download-tls-1GiB)",
        "TLS: hotloop-c is 1.22 times as fast as uvloop in the geometric mean of 2 rows, at least 1.00"
        " (download-tls-1GiB)",
        "TLS: hotloop-c takes 2.83 times the processor time of the bare C server in the geometric mean of"
        " 2 protocol rows, at most 4.00 (download-tls-1GiB)",
        "NOT OFFERED: rloop has no TLS: echo-tls-protocol-32x1KiB, download-tls-1GiB",
    ]


def test_the_json_document_separates_the_rows_over_tls(finished_run):
    document = json.loads(json.dumps(report.as_json(finished_run)))
    assert [row["table"] for row in document["rows"]] == ["Network", "TLS", "TLS"]
    assert [found["rows"] for found in document["network_comparisons"]] == [1, 1, 1]
    assert [found["rows"] for found in document["tls_comparisons"]] == [2, 2]
    assert document["times_of_bare_c"] == {
        "echo-tcp-protocol-32x1KiB": pytest.approx(2.0),
        "echo-tls-protocol-32x1KiB": pytest.approx(2.0),
        "download-tls-1GiB": pytest.approx(4.0),
    }
    assert document["rows"][1]["results"]["rloop"] == {"kind": "not offered", "reason": "TLS"}


def test_a_rival_without_tls_is_no_failure_and_hotloop_without_it_is(finished_run):
    assert cli.exit_code(finished_run, asked_for=["rloop"]) == 0
    finished_run.outcomes["download-tls-1GiB"]["hotloop-c"] = NotMeasured("not offered", "TLS")
    assert cli.exit_code(finished_run, asked_for=["rloop"]) == 1
