"""An allocation fails in a method of a transport. The call raises, or it does its work; later calls work, and nothing
is lost silently."""

import contextlib

import pytest
from support.interpreter import limits_memory
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import sockets_of

_testcapi = pytest.importorskip("_testcapi", reason="this Python has no _testcapi")

pytestmark = [
    pytest.mark.only("c", reason="asyncio's transports forget work that a failed allocation has interrupted"),
    limits_memory,
]

# More allocations than any of the calls makes.
ALLOCATIONS = 12
SEVERAL = 6


def with_failing_allocation(number, call):
    """Make a call with one failing allocation; return whether it has raised MemoryError."""
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
    """A transport's protocol and its peer; the transport gathers the writes of a turn."""
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
    """Either the end has begun or the call can be repeated: in the end, connection_lost() is called."""
    for number in range(ALLOCATIONS):
        with contextlib.ExitStack() as stack:
            for protocol, _ in [stack.enter_context(opened(loop)) for _ in range(SEVERAL)]:
                if with_failing_allocation(number, getattr(protocol.transport, end)):
                    assert not protocol.transport.is_closing()
                    getattr(protocol.transport, end)()
                assert protocol.transport.is_closing()
            # Leaving this block waits for connection_lost().
