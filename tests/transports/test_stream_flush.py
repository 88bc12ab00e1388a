"""P19: when written data reaches the kernel, and in how many system calls. The peers are blocking sockets that the test
reads while the loop stands still, so everything they get was sent before. A test that fails hangs in recv() until the
guard of the `impl` fixture ends it."""

import asyncio
import contextlib
import os
import re
import socket

import pytest
from support.recording import Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import (
    KINDS,
    MORE_THAN_FITS,
    connected_sockets,
    connections_on,
    counts_segments,
    data_segments,
)

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


def blocking(connection):
    connection.peer.setblocking(True)
    return connection


def read_exactly(sock, count):
    return sock.recv(count, socket.MSG_WAITALL)


@pytest.mark.promise("P19")
@every_kind
def test_written_while_the_loop_is_not_running(connections, kind):
    connection = blocking(connections.open(kind))
    connection.transport.write(b"at ")
    assert read_exactly(connection.peer, 3) == b"at "
    connection.transport.writelines([b"on", b"ce"])
    assert read_exactly(connection.peer, 4) == b"once"
    assert connection.transport.get_write_buffer_size() == 0


@pytest.mark.promise("P19")
@every_kind
@pytest.mark.parametrize("count", [1, 2, 100])
def test_written_in_the_last_turn_before_a_stop(loop, connections, kind, count):
    connection = blocking(connections.open(kind))

    def write():
        for number in range(count):
            connection.transport.write(b"%03d" % number)
        loop.stop()

    loop.call_soon(write)
    loop.run_forever()
    assert read_exactly(connection.peer, 3 * count) == b"".join(b"%03d" % number for number in range(count))


@pytest.mark.promise("P19")
@pytest.mark.parametrize("how", ["stop", "return", "raise", "interrupt"])
@pytest.mark.parametrize("where", ["callback", "task", "data_received", "timer"])
def test_however_the_run_ends(loop, connections, how, where):
    connection = blocking(connections.open("tcp"))
    finished = loop.create_future()

    def write():
        connection.transport.write(b"one")
        connection.transport.writelines([b"two"])
        connection.transport.write(b"three")
        if how == "stop":
            loop.stop()
        elif how == "raise":
            loop.stop()
            raise ZeroDivisionError
        elif how == "interrupt":
            raise KeyboardInterrupt
        else:
            finished.set_result(None)

    async def task():
        write()

    if where == "callback":
        loop.call_soon(write)
    elif where == "timer":
        loop.call_later(0.001, write)
    elif where == "task":
        running = loop.create_task(task())
        # On a failure stop the loop; the task has the error.
        running.add_done_callback(lambda task: loop.call_soon(loop.stop) if task.exception() else None)
    else:
        when_data_comes(connection.protocol, write)
        connection.send(b"begin")
    if how == "interrupt":
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
    elif how == "return":
        loop.run_until_complete(finished)
    else:
        loop.run_forever()
    assert read_exactly(connection.peer, 11) == b"onetwothree"
    connections.take_reports()
    run_once(loop, 2)
    finished.cancel()


@pytest.mark.promise("P19")
def test_written_by_the_turn_that_writes_not_by_the_next(loop, connections):
    """The data is at the peer when the callback after the writing one runs, in the next turn."""
    connection = connections.open("tcp")
    found = []

    def look():
        found.append(connection.peer_read(100))

    def write():
        connection.transport.write(b"one")
        connection.transport.write(b"two")
        loop.call_soon(look)

    loop.call_soon(write)
    run_once(loop, 2)
    assert found == [b"onetwo"]


@pytest.mark.promise("P19")
def test_a_busy_loop_does_not_delay_it(loop, connections):
    """Callbacks are queued without end, and the peer answers each message only when it has come."""
    connection = connections.open("tcp")
    answers = 0

    def work():
        nonlocal answers
        if answers < 20:
            loop.call_soon(work)
            if connection.peer_read(100):
                answers += 1
                connection.peer.send(b"next")

    when_data_comes(connection.protocol, lambda: connection.transport.write(b"message"))
    connection.transport.write(b"message")
    loop.call_soon(work)
    run_until(loop, lambda: answers == 20)
    run_once(loop, 3)


@pytest.mark.promise("P19")
def test_written_before_the_first_run(impl):
    loop = impl.new_event_loop()
    ours, peer = connected_sockets("tcp")
    peer.setblocking(True)
    transport, protocol = loop.run_until_complete(loop.create_connection(Recorder, sock=ours))
    transport.write(b"between two runs")
    assert read_exactly(peer, 16) == b"between two runs"
    transport.close()
    loop.run_until_complete(asyncio.sleep(0))
    assert protocol.lost
    peer.close()
    loop.close()


@pytest.mark.promise("P19")
def test_order_between_sockets(loop, connections):
    """Within one turn, data written first to one connection has arrived when the second connection's data has."""
    one, other = connections.open("pair"), connections.open("pair")

    def write():
        one.transport.write(b"first")
        other.transport.write(b"second")
        loop.stop()

    loop.call_soon(write)
    loop.run_forever()
    assert (one.peer_read(100), other.peer_read(100)) == (b"first", b"second")


def test_written_in_connection_made(loop, connections):
    ours, peer = connected_sockets("tcp")
    protocol = Recorder(connection_made=lambda: protocol.transport.write(b"greeting"))
    connection = blocking(connections.over(ours, peer, protocol))
    assert read_exactly(connection.peer, 8) == b"greeting"


def test_written_and_closed_in_one_turn(loop, connections):
    connection = blocking(connections.open("tcp"))

    def write():
        connection.transport.write(b"last words")
        connection.transport.close()
        loop.stop()

    loop.call_soon(write)
    loop.run_forever()
    assert read_exactly(connection.peer, 10) == b"last words"


def test_a_buffer_with_pending_data_keeps_its_order(loop, connections):
    """A later small write does not overtake the pending data, though there may be room for it first."""
    connection = connections.open("tcp")
    written = connection.fill()
    connection.peer_read(65536)
    connection.transport.write(b"tail")
    received = connection.receive(written + 4 - 65536)
    assert received.endswith(b"ftail")
    connection.transport.write(bytes(MORE_THAN_FITS))
    assert connection.receive(MORE_THAN_FITS) == bytes(MORE_THAN_FITS)


@pytest.mark.only("c", reason="gathers the writes of a turn")
@pytest.mark.parametrize("ending", [None, KeyboardInterrupt])
def test_what_sending_raises_is_not_the_last_callbacks(loop, connections, monkeypatch, ending):
    """The exception has a report of its own, all other transports send, and the loop goes on."""
    failing, other = connections.open("tcp"), connections.open("tcp")
    # Asking the transport for the number would end the gathering of its writes, so the test reads it from the repr().
    number = int(re.search(r"fd=(\d+)", repr(failing.transport))[1])
    with socket.socket(fileno=os.dup(number)) as duplicate:
        duplicate.shutdown(socket.SHUT_WR)

    def debug(message, *arguments, **keywords):
        if "Fatal write error on socket transport" in arguments:
            raise ending or ZeroDivisionError

    monkeypatch.setattr(asyncio.base_events.logger, "debug", debug)
    loop.set_debug(True)
    loop.call_soon(failing.transport.write, b"lost")
    loop.call_soon(other.transport.write, b"not lost")
    called = []
    loop.call_soon(called.append, 1)
    with pytest.raises(ending) if ending else contextlib.nullcontext():
        run_once(loop)
    assert called == [1]
    assert read_exactly(blocking(other).peer, 8) == b"not lost"
    failing.run_until_lost()
    reports = [(report["message"], type(report["exception"])) for report in connections.take_reports()]
    expected = [("Exception while data was sent at the end of a turn", ZeroDivisionError)]
    assert reports == ([] if ending else expected)


@pytest.mark.promise("P19")
@counts_segments
@pytest.mark.parametrize("turn", ["inside", "outside"])
def test_writelines_is_one_system_call(loop, connections, turn):
    connection = connections.open("tcp")
    # Check the counter first: separate sends make separate segments.
    before = data_segments(connection.socket)
    with connection.socket.dup() as sock:
        for _ in range(10):
            sock.send(b"x" * 100)
            connection.receive(100)
    if data_segments(connection.socket) - before != 10:
        pytest.skip("this kernel does not send each piece in a segment of its own, or does not count them")
    before = data_segments(connection.socket)
    if turn == "inside":
        loop.call_soon(connection.transport.writelines, [b"y" * 100] * 50)
    else:
        connection.transport.writelines([b"y" * 100] * 50)
    assert connection.receive(5000) == b"y" * 5000
    assert data_segments(connection.socket) - before == 1


def test_a_peer_that_has_closed_is_noticed_in_the_turn(load_implementation, impl):
    """write() and drain(), again and again: asyncio's second write fails, and so must this one, whatever else waits."""

    def writes(implementation):
        async def main():
            loop = asyncio.get_running_loop()
            with socket.create_server(("127.0.0.1", 0)) as listener:
                _, writer = await asyncio.open_connection(*listener.getsockname())
                peer, _ = listener.accept()
                peer.close()
                loop.call_soon(int)
                count = 0
                with pytest.raises(ConnectionError):
                    while count < 1000:
                        count += 1
                        writer.write(b"-")
                        await writer.drain()
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()  # or it may be reported, if the collector finds a cycle
            return count

        return implementation.run(main())

    assert writes(impl) == writes(load_implementation("asyncio")) < 1000
