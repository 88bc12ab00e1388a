"""P07: ended TLS connections leave nothing behind, and an idle one holds little.

HOTLOOP_TLS_CYCLES=15000 runs the promise's own number of connections, ten times over; without it there are few.
"""

import asyncio
import contextvars
import gc
import json
import os
import ssl
import subprocess
import sys
import sysconfig
import weakref
from pathlib import Path

import pytest
from support.certificates import HOST, every_version
from support.endpoints import settle, until
from support.garbage import Reference, collected, without_collector
from support.leftovers import open_descriptors
from support.recording import Recorder
from support.stepping import run_once
from support.stream_connections import connected_sockets
from support.tls_connections import every_protocol, every_side, other

from hotloop_bench import identity, runner
from hotloop_bench.targets import TARGETS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tls_memory.py"
CYCLES = int(os.environ.get("HOTLOOP_TLS_CYCLES", "0"))
NO_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
IDLE = 150
KIB = 1 << 10
# Measured without any loop, two memory BIOs and an SSLObject after a handshake take 17,000 bytes with OpenSSL 3.0 and
# 34,100 with OpenSSL 3.6. That is more than half of the bound, or all of it.
NEWER_OPENSSL_TAKES = 17 * KIB if ssl.OPENSSL_VERSION_INFO >= (3, 1) else 0
TARGET_OF = {"c": "hotloop-c", "python": "hotloop-python", "asyncio": "asyncio"}

every_ending = pytest.mark.parametrize("ending", ["close", "abort"])


def come_and_go(tls, side, count, make_protocol, ending, version):
    contexts = {
        "context": tls.certificates.context(side, version),
        "peer_context": tls.certificates.context(other(side), version),
    }
    for _ in range(count):
        connection = tls.open(side, make_protocol(), **contexts)
        connection.deliver(b"data")
        getattr(connection.transport, ending)()
        connection.run_until_lost()
        connection.peer.socket.close()
        tls.opened.clear()
        run_once(tls.loop, 3)


@pytest.mark.promise("P07")
@every_side
@every_version
@every_protocol
@every_ending
def test_what_came_and_went_leaves_no_object(tls, side, version, make_protocol, ending):
    """Neither a descriptor, an object that the collector knows, nor a block of Python's memory is left."""
    come_and_go(tls, side, 3, make_protocol, ending, version)  # objects that are made once
    gc.collect()
    descriptors, objects, blocks = len(open_descriptors()), len(gc.get_objects()), sys.getallocatedblocks()
    count = 10
    come_and_go(tls, side, count, make_protocol, ending, version)
    gc.collect()
    assert len(open_descriptors()) == descriptors
    assert len(gc.get_objects()) - objects < count, "some object is left of each connection"
    if not NO_GIL:  # without it sys.getallocatedblocks() does not count exactly
        assert sys.getallocatedblocks() - blocks < count, "some block of memory is left of each connection"


async def connection_that_ends(contexts, ending):
    """Weak references to all objects of a connection between two ends of the loop under test."""
    loop = asyncio.get_running_loop()
    ours, theirs = connected_sockets("pair")
    client, server = Recorder(), Recorder()
    (mine, _), (its, _) = await asyncio.gather(
        loop.create_connection(lambda: client, sock=ours, ssl=contexts[0], server_hostname=HOST),
        loop.connect_accepted_socket(lambda: server, theirs, ssl=contexts[1]),
    )
    mine.write(b"there")
    await until(lambda: server.received)
    its.write(b"back")
    await until(lambda: client.received)
    getattr(mine, ending)()
    await until(lambda: client.lost and server.lost)
    parts = [client, server, mine, its, *(one.get_extra_info("ssl_object") for one in (mine, its))]
    return [weakref.ref(part) for part in parts]


class Holder:
    """What a connection holds, and what holds the connection."""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("held_by", ["transport", "connection", "context"])
def test_a_cycle_through_an_open_connection_of_a_dropped_loop(impl, certificates, held_by):
    """The collector can clear each object of a connection: see clear_tls() in ext/hotloop/_c/tls/protocol.pyx."""
    variable = contextvars.ContextVar("variable")

    async def connect(holder):
        loop = asyncio.get_running_loop()
        if held_by == "context":
            variable.set(holder)
        client, server = certificates.client_context(), certificates.server_context()
        ours, theirs = connected_sockets("pair")
        (mine, _), (its, _) = await asyncio.gather(
            loop.create_connection(Recorder, sock=ours, ssl=client, server_hostname=HOST),
            loop.connect_accepted_socket(Recorder, theirs, ssl=server),
        )
        holder.held = [loop, mine, its]
        if held_by == "transport":
            mine.holder = holder
        if held_by == "connection":
            mine._ssl_protocol.holder = holder

    loop = impl.new_event_loop()
    holder = Holder()
    loop.run_until_complete(connect(holder))
    parts = [holder, *holder.held, *(one._ssl_protocol for one in holder.held[1:])]
    references = [Reference(part) for part in parts]
    del loop, holder, parts
    gc.collect()
    # The warnings of unclosed transports have kept them until here.
    gc.collect()
    assert all(map(collected, references))


@pytest.mark.promise("P07")
@every_version
@every_ending
def test_nothing_waits_for_the_collector(impl, certificates, version, ending):
    """After a connection has ended, its transports, protocols and OpenSSL objects are in no reference cycle."""

    async def main():
        contexts = certificates.client_context(version), certificates.server_context(version)
        references = await connection_that_ends(contexts, ending)
        await settle()
        return [reference() for reference in references]

    with without_collector():
        assert impl.run(main()) == [None] * 6


def measured(impl, *arguments):
    command = [sys.executable, os.fspath(SCRIPT), "--loop", TARGET_OF[impl.name], "--json", *arguments]
    environ = runner.environment(TARGETS[TARGET_OF[impl.name]])
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


WHY_NOT = identity.unavailable() or (
    None if os.path.exists("/proc/self/status") else "memory is read from Linux's /proc"
)
memory_is_pythons = pytest.mark.skipif(
    sys.getallocatedblocks() == 0, reason="PYTHONMALLOC: another allocator, such as a sanitizer's, has its own overhead"
)
can_be_measured = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@pytest.mark.promise("P07")
@memory_is_pythons
@can_be_measured
@pytest.mark.only("c", reason="asyncio keeps a buffer of 256 KiB for each connection")
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_an_idle_connection_costs_less_than_32_kib(impl, version):
    """After a burst it costs more: OpenSSL's two memory BIOs keep the memory that they once used, and the ssl module
    cannot make them free it. The transport therefore feeds them hardly more than a record (16 KiB) at a time, so the
    kept memory does not grow with the burst; otherwise it would be as large as the burst, 512 KiB and more."""
    few = ("--idle", str(IDLE), "--burst", str(512 * KIB), "--cycles", "1", "--rounds", "1")
    found = measured(impl, "--tls", version, *few)
    assert found["idle"] == IDLE and found["tls"] == version
    assert found["memory_of_a_connection"] < 32 * KIB + NEWER_OPENSSL_TAKES
    assert found["memory_after_a_burst"] < 96 * KIB


@pytest.mark.promise("P07")
@memory_is_pythons
@can_be_measured
@pytest.mark.skipif(NO_GIL and not CYCLES, reason="without the GIL CPython's allocator settles only after thousands")
def test_the_resident_size_stays(impl):
    """The resident size stays within 5% of that after the first round."""
    cycles, rounds = (str(CYCLES), "10") if CYCLES else ("100", "3")
    found = measured(impl, "--idle", "5", "--burst", "1000", "--cycles", cycles, "--rounds", rounds)
    assert len(found["resident"]) == int(rounds)
    assert found["growth"] < 0.05


@can_be_measured
def test_the_report_for_people():
    command = [sys.executable, os.fspath(SCRIPT), "--loop", "asyncio"]
    few = ["--idle", "3", "--burst", "10", "--cycles", "2", "--rounds", "2"]
    environ = runner.environment(TARGETS["asyncio"])
    done = subprocess.run([*command, *few], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "An idle connection takes " in done.stdout
    assert "Grown since the first round: " in done.stdout
