"""The cost of loop.metrics() for programs that do not use it, on the pure loop: no call that asyncio would not make."""

import asyncio
import sys

import pytest
from support.endpoints import close, datagram_sockets, pipe_files, until
from support.recording import Recorder

pytestmark = pytest.mark.only("python", reason="the compiled methods are not written in Python")


def calls_in_python(function):
    """The number of calls of Python functions that `function` makes."""
    events = []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        function()
    finally:
        sys.setprofile(None)
    return events.count("call")


def calls_of_each_operation(loop):
    """The number of calls that each operation makes in Python where it does not have to wait."""
    found = {}

    def count(name, function, *arguments):
        found[name] = calls_in_python(lambda: function(*arguments))

    def count_method(name, *arguments):
        def step():
            with pytest.raises(StopIteration):
                coroutine.send(None)

        coroutine = getattr(loop, name)(*arguments)
        count(name, step)

    async def main():
        one, other = datagram_sockets()
        reading, writing = pipe_files()
        with one, other:
            for method in ("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into"):
                count_method("sock_sendto", other, b"x", one.getsockname())
                count_method(method, one, bytearray(100) if method.endswith("into") else 100)
            other.connect(one.getsockname())
            count_method("sock_sendall", other, b"x")
        reader, protocol = await loop.connect_read_pipe(Recorder, reading)
        writer, _ = await loop.connect_write_pipe(Recorder, writing)
        count("write", writer.write, b"x")
        count("read", reader._read_ready)
        assert protocol.received == b"x"
        await close(writer)
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())
    return found


def test_who_does_not_ask_pays_no_call(loop):
    oracle = asyncio.SelectorEventLoop()
    try:
        allowed = calls_of_each_operation(oracle)
    finally:
        oracle.close()
    # Unlike asyncio's, a pipe transport asks its file for its number again: see descriptor_of().
    allowed["read"] += 2
    allowed["write"] += 2
    found = calls_of_each_operation(loop)
    assert set(found) == set(allowed)
    assert {name: count for name, count in found.items() if count > allowed[name]} == {}
