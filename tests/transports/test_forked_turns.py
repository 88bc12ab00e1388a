"""A fork in the middle of a turn: what was written before it reaches the peer once, and before what the child writes.
The peers are blocking sockets."""

import contextlib
import gc
import os
import socket
import sysconfig
import threading

import pytest
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import connections_on, wait_for

# pytest's faulthandler_timeout has its own thread, so fork() warns; from 3.15 on the warning can be raised.
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()"),
    pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning"),
]


@pytest.fixture
def connection(loop):
    with connections_on(loop) as connections:
        yield connections.open("tcp")


def in_child(function, *arguments):
    """Call a function in a forked child, and wait for the child's end."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function(*arguments)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def in_one_turn(loop, function):
    async def run():
        return function()

    return loop.run_until_complete(run())


def received(connection, count):
    connection.peer.settimeout(20)
    return connection.peer.recv(count, socket.MSG_WAITALL)


def rest(connection):
    """What the peer gets up to the end of the connection."""
    connection.transport.close()
    run_until(connection.loop, lambda: connection.protocol.lost)
    connection.peer.settimeout(20)
    return b"".join(iter(lambda: connection.peer.recv(1000), b""))


WRITES = {
    "write": lambda transport: transport.write(b"child"),
    "two writes": lambda transport: [transport.write(part) for part in (b"ch", b"ild")],
    "writelines": lambda transport: transport.writelines([b"ch", b"ild"]),
    "a view": lambda transport: transport.write(memoryview(b"child")),
}
ENDS = {
    "nothing": lambda transport, loop: None,
    "close": lambda transport, loop: transport.close(),
    "abort": lambda transport, loop: transport.abort(),
    "write_eof": lambda transport, loop: transport.write_eof(),
    "asking": lambda transport, loop: (transport.is_closing(), transport.get_write_buffer_size()),
    "turns": lambda transport, loop: [(loop.call_soon(list), loop._run_once()) for _ in range(3)],
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("write", WRITES)
def test_a_child_writes_after_its_parent(loop, connection, write, end):
    transport = connection.transport

    def child():
        WRITES[write](transport)
        ENDS[end](transport, loop)

    def write_and_fork():
        transport.write(b"par")
        transport.write(b"ent ")
        in_child(child)
        # Nothing of it waits for the end of the parent's turn.
        return received(connection, len(b"parent child"))

    assert in_one_turn(loop, write_and_fork) == b"parent child"
    if end != "write_eof":
        assert rest(connection) == b""


def test_a_child_writes_first_in_the_turn(loop, connection):
    def write_and_fork():
        in_child(connection.transport.write, b"child")
        return received(connection, 5)

    assert in_one_turn(loop, write_and_fork) == b"child"
    assert rest(connection) == b""


@pytest.mark.parametrize("end", [end for end in ENDS if end != "write_eof"])
def test_the_parent_goes_on_writing(loop, connection, end):
    transport = connection.transport

    def write_and_fork():
        transport.write(b"before ")
        in_child(ENDS[end], transport, loop)
        transport.write(b"after")

    in_one_turn(loop, write_and_fork)
    assert rest(connection) == b"before after"


def test_several_connections(loop):
    with connections_on(loop) as connections:
        opened = [connections.open("tcp") for _ in range(3)]

        def child():
            for connection in opened[1:]:
                connection.transport.write(b" child")

        def write_and_fork():
            for connection in opened[:2]:
                connection.transport.write(b"parent")
            in_child(child)

        in_one_turn(loop, write_and_fork)
        assert [rest(connection) for connection in opened] == [b"parent", b"parent child", b" child"]


def test_what_the_kernel_had_refused(loop, connection):
    """The child has a copy of it, and it stays in the parent, which sends it."""
    transport = connection.transport
    written = connection.fill()

    def write_and_fork():
        transport.write(b"more")
        left = transport.get_write_buffer_size()

        def child():
            assert transport.get_write_buffer_size() == left > 4

        in_child(child)

    in_one_turn(loop, write_and_fork)
    assert connection.receive(written + 4).endswith(b"more")


def test_a_peer_that_is_gone(loop, connection):
    """The error before the fork is not lost."""
    connection.peer.setblocking(True)
    connection.send(b"unread")
    run_once(loop)
    connection.transport.pause_reading()
    connection.reset()

    def write_and_fork():
        connection.transport.write(b"data")
        in_child(lambda: None)

    in_one_turn(loop, write_and_fork)
    run_until(loop, lambda: connection.protocol.lost)
    assert isinstance(connection.protocol.error, OSError)


@pytest.mark.parametrize("side", ["client", "server"])
def test_tls(tls, side):
    """If the parent writes no more, the child can: its records have the next numbers."""
    protocol = Recorder()
    connection = tls.open(side, protocol, kind="tcp")
    transport = connection.transport
    ready, go = os.pipe()

    def write_and_fork():
        transport.write(b"par")
        transport.write(b"ent ")
        if (pid := os.fork()) == 0:
            try:
                os.read(ready, 1)
                transport.write(b"ch")
                transport.write(b"ild")
            finally:
                os._exit(0)
        return pid

    pid = in_one_turn(tls.loop, write_and_fork)
    os.write(go, b"x")
    os.waitpid(pid, 0)
    os.close(ready)
    os.close(go)
    wait_for(connection.peer.socket, 1)
    assert connection.receive(12) == b"parent child"
    transport.abort()
    connection.run_until_lost()


@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="there only one thread may run a loop")
def test_two_threads_run_one_loop_and_then_the_process_forks(impl):
    """The second thread runs it in a callback of the first, and stays longer."""

    def stay():
        inside.set()
        leave.wait()

    def run_in_second_thread():
        loop.call_soon(stay)
        loop._run_once()

    def run_inside():
        thread.start()
        inside.wait()

    loop = impl.new_event_loop()
    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=run_in_second_thread)
    loop.call_soon(run_inside)
    with contextlib.suppress(IndexError):  # asyncio's: the other thread has taken what was left of the turn
        loop._run_once()
    leave.set()
    thread.join()
    loop.close()
    loop = None
    gc.collect()
    used_again = [b"\1" * size for size in range(16, 64) for _ in range(1000)]
    in_child(list)
    del used_again
