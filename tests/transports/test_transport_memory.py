"""An allocation that fails in a method of a transport. The call raises, or it does what it is for; the calls after
it work, and nothing is lost silently."""

import contextlib

import pytest
from support.interpreter import limits_memory
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import sockets_of

_testcapi = pytest.importorskip("_testcapi", reason="this Python came without its own tests")

pytestmark = [
    pytest.mark.only("c", reason="asyncio's transports forget what a failed allocation has interrupted"),
    limits_memory,
]

# More than any of the calls makes.
ALLOCATIONS = 12
SEVERAL = 6


def with_failing_allocation(number, call):
    """What became of a call of which one allocation fails: whether it has raised MemoryError."""
    _testcapi.set_nomemory(number, number + 1)
    try:
        call()
    except MemoryError:
        return True
    finally:
        _testcapi.remove_mem_hooks()
    return False


@contextlib.contextmanager
def opened(loop):
    """The protocol of a transport that gathers what is written in a turn, and its peer."""
    ours, peer = sockets_of(loop)
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    with peer:
        yield protocol, peer
        protocol.transport.abort()
        run_until(loop, lambda: protocol.lost)


WRITES = {
    "bytes": (lambda transport: transport.write(b"first"), b"first"),
    "bytearray": (lambda transport: transport.write(bytearray(b"first")), b"first"),
    "lines": (lambda transport: transport.writelines([b"f", bytearray(b"irs"), b"t"]), b"first"),
    "many lines": (lambda transport: transport.writelines([b"x", bytearray(b"y")] * 20), b"xy" * 20),
}


@pytest.mark.parametrize("turn", ["inside", "outside"])
@pytest.mark.parametrize("write", WRITES)
def test_no_memory_for_a_write(loop, write, turn):
    call, whole = WRITES[write]
    for number in range(ALLOCATIONS):
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(opened(loop)) for _ in range(SEVERAL)]
            failed = []

            def first(number=number, connections=connections, failed=failed):
                for protocol, _ in connections:
                    failed.append(with_failing_allocation(number, lambda protocol=protocol: call(protocol.transport)))

            if turn == "inside":
                loop.call_soon(first)
                run_once(loop, 2)
            else:
                first()
            for (protocol, peer), raised in zip(connections, failed, strict=True):
                loop.call_soon(protocol.transport.write, b" second")
                run_once(loop, 2)
                protocol.transport.write_eof()
                received = b"".join(iter(lambda peer=peer: peer.recv(1000), b""))
                assert received == (b"" if raised else whole) + b" second", (number, raised)


@pytest.mark.parametrize("end", ["close", "abort"])
def test_no_memory_for_the_end(loop, end):
    """Either it has begun or it can be tried again: connection_lost() is called."""
    for number in range(ALLOCATIONS):
        with contextlib.ExitStack() as stack:
            for protocol, _ in [stack.enter_context(opened(loop)) for _ in range(SEVERAL)]:
                if with_failing_allocation(number, getattr(protocol.transport, end)):
                    assert not protocol.transport.is_closing()
                    getattr(protocol.transport, end)()
                assert protocol.transport.is_closing()
            # Leaving it waits for connection_lost().
