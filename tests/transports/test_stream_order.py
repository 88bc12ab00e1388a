"""P35: within a turn, data that was written before a program uses a transport's socket itself is sent before that use,
and the transport's answers take it into account. The peers are blocking sockets; the test reads them while the loop
stands still."""

import asyncio
import contextlib
import gc
import logging
import os
import socket
import ssl
import sys
import sysconfig
import threading
import time
import weakref

import pytest
from support.garbage import without_collector
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import Connection, connected_sockets, counts_segments, data_segments, reset

SECONDS_FOR_BYTES = 20
has_gil = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="there a socket that was brought along is always the program's",
)
ways = pytest.mark.parametrize("way", ["connected", "accepted", "brought", "given up"])


@contextlib.contextmanager
def connection(loop, way):
    """A TCP connection whose transport was made for a host and a port, by a server, or for a socket of the program's,
    which keeps it ("brought") or gives it up."""
    protocol = Recorder()
    if way == "accepted":
        serving = loop.create_server(lambda: protocol, "127.0.0.1", 0)
        server = loop.run_until_complete(serving)
        peer = socket.create_connection(server.sockets[0].getsockname())
        run_until(loop, lambda: protocol.transport)
        server.close()
        run_once(loop, 2)
    elif way == "connected":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            loop.run_until_complete(loop.create_connection(lambda: protocol, *listener.getsockname()))
            peer, _ = listener.accept()
    else:
        ours, peer = connected_sockets("tcp")
        loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
        if way == "given up":
            del ours
    peer.settimeout(SECONDS_FOR_BYTES)
    transport = protocol.transport
    with peer:
        yield Connection(loop, transport, protocol, peer, transport.get_extra_info("socket"))
        transport.abort()
        run_until(loop, lambda: protocol.lost)


def in_one_turn(loop, function, *, other_callbacks=False):
    """Run a function as a callback; raise its exception. With `other_callbacks` the loop has more to do after it, so it
    may pay to put off writes."""

    async def run():
        if other_callbacks:
            loop.call_soon(list)
        return function()

    return loop.run_until_complete(run())


LOOKS = {
    "shutdown": lambda transport, sock: sock.shutdown(socket.SHUT_WR),
    "setsockopt": lambda transport, sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "getsockopt": lambda transport, sock: sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
    "fileno": lambda transport, sock: sock.fileno(),
    "dup": lambda transport, sock: sock.dup().close(),
    "socket of the socket": lambda transport, sock: sock._sock,
    "socket of the transport": lambda transport, sock: transport._sock,
    "get_write_buffer_size": lambda transport, sock: transport.get_write_buffer_size(),
    "set_write_buffer_limits": lambda transport, sock: transport.set_write_buffer_limits(),
    "write_eof": lambda transport, sock: transport.write_eof(),
    "close": lambda transport, sock: transport.close(),
    "abort": lambda transport, sock: transport.abort(),
}


@pytest.mark.promise("P35")
@ways
@pytest.mark.parametrize("look", LOOKS)
def test_what_shows_the_difference_sends_first(loop, way, look):
    with connection(loop, way) as opened:

        def write_and_look():
            opened.transport.write(b"written ")
            opened.transport.write(b"before")
            LOOKS[look](opened.transport, opened.socket)
            return opened.peer.recv(14, socket.MSG_WAITALL)

        assert in_one_turn(loop, write_and_look) == b"written before"


@pytest.mark.promise("P35")
@ways
@pytest.mark.parametrize("exposed_by", ["fileno", "dup", "socket of the socket", "socket of the transport"])
def test_a_program_that_has_the_socket_may_use_it_at_any_time(loop, way, exposed_by):
    with connection(loop, way) as opened:
        LOOKS[exposed_by](opened.transport, opened.socket)

        def write():
            opened.transport.write(b"one")
            opened.transport.writelines([b"two", b"three"])
            return opened.peer.recv(11, socket.MSG_WAITALL)

        assert in_one_turn(loop, write) == b"onetwothree"


@pytest.mark.promise("P35")
@pytest.mark.parametrize("reference", ["strong", "weak", "descriptor"])
def test_a_program_that_keeps_its_socket_may_use_it_at_any_time(loop, reference):
    ours, peer = connected_sockets("tcp")
    peer.settimeout(SECONDS_FOR_BYTES)
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    protocol.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    kept = ours if reference == "strong" else weakref.ref(ours) if reference == "weak" else protocol.transport._sock_fd
    del ours

    def write():
        protocol.transport.write(b"one")
        return peer.recv(3, socket.MSG_WAITALL)

    with peer:
        assert in_one_turn(loop, write, other_callbacks=True) == b"one"
        assert kept is not None
        protocol.transport.abort()
        run_until(loop, lambda: protocol.lost)


@pytest.mark.only("c", reason="gathers the writes of a turn")
@counts_segments
@pytest.mark.parametrize("way", ["connected", "accepted", pytest.param("given up", marks=has_gil)])
def test_asking_whether_the_connection_is_broken_sends_nothing(loop, way):
    """Libraries ask before or after each write; while other callbacks are queued, the writes share one segment."""
    with connection(loop, way) as opened:
        before = data_segments(opened.socket)

        def write_and_ask():
            for _ in range(10):
                opened.transport.write(b"x" * 10)
                assert opened.transport.is_reading() and not opened.transport.is_closing()

        in_one_turn(loop, write_and_ask, other_callbacks=True)
        assert opened.peer.recv(100, socket.MSG_WAITALL) == b"x" * 100
        assert data_segments(opened.socket) == before + 1


def test_a_write_fails_before_the_end_of_the_connection_is_read(loop):
    """The write comes first, though the end has arrived. It finds the peer gone, so the connection is broken: the
    protocol is not told of an end."""
    ours, peer = connected_sockets("pair")
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    del ours
    peer.close()
    loop.call_soon(protocol.transport.write, b"x")
    run_until(loop, lambda: protocol.lost)
    assert protocol.events == ["connection_made", ("connection_lost", "BrokenPipeError")]


@pytest.mark.promise("P35")
@pytest.mark.skipif(not hasattr(socket, "send_fds"), reason="uses send_fds() to pass descriptors")
def test_descriptors_sent_by_the_program(loop):
    ours, peer = connected_sockets("pair")
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    with open(os.devnull) as file, peer:

        def write_and_send():
            protocol.transport.write(b"header:")
            socket.send_fds(ours, [b"F"], [file.fileno()])

        in_one_turn(loop, write_and_send)
        data, fds, _, _ = socket.recv_fds(peer, 7, 1)
        assert (data, fds) == (b"header:", [])
        data, fds, _, _ = socket.recv_fds(peer, 7, 1)
        assert (data, len(fds)) == (b"F", 1)
        os.close(fds[0])
        protocol.transport.abort()
        run_until(loop, lambda: protocol.lost)


PIECES = {"bytes": b"x" * 100, "bytearray": bytearray(100), "much": bytearray(100_000)}


@pytest.mark.promise("P35")
@ways
@pytest.mark.parametrize("other_callbacks", [False, True])
@pytest.mark.parametrize("piece", PIECES)
def test_a_write_to_a_peer_that_is_gone(loop, way, piece, other_callbacks):
    """The connection is closing as soon as write() has returned, and connection_lost() gets the error of that write."""
    with connection(loop, way) as opened:
        reset(opened.peer)

        def write_and_ask():
            while opened.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b"\x07":  # TCP_CLOSE
                time.sleep(0.001)
            opened.transport.write(PIECES[piece])
            return opened.transport.is_closing(), opened.transport.is_reading()

        assert in_one_turn(loop, write_and_ask, other_callbacks=other_callbacks) == (True, False)
        run_until(loop, lambda: opened.protocol.lost)
        assert type(opened.protocol.error) is ConnectionResetError


@pytest.mark.promise("P35")
@pytest.mark.parametrize("other_callbacks", [False, True])
def test_drain_tells_of_a_peer_that_is_gone(loop, other_callbacks):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            _, writer = await asyncio.open_connection(*listener.getsockname())
            peer, _ = listener.accept()
            reset(peer)
            # The loop does not run in between.
            info = writer.get_extra_info("socket")
            while info.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b"\x07":
                time.sleep(0.001)
            if other_callbacks:
                loop.call_soon(list)
            writer.write(b"in vain")
            with pytest.raises(ConnectionResetError, match="Connection lost"):
                await writer.drain()
            with pytest.raises(ConnectionResetError):
                await writer.wait_closed()

    loop.run_until_complete(main())


if sys.platform != "linux":
    for test in (test_a_write_to_a_peer_that_is_gone, test_drain_tells_of_a_peer_that_is_gone):
        globals()[test.__name__] = pytest.mark.skip(reason="looks at Linux's TCP_INFO")(test)


def in_one_callback(loop, function):
    """Like in_one_turn(), but outside of a task: the function runs the loop."""
    results = []

    def run():
        try:
            results.append(function())
        finally:
            loop.stop()

    loop.call_soon(run)
    loop.run_forever()
    return results[0]


def wait_by_iterations(loop, _impl, peer):
    seen = []
    loop.add_reader(peer, seen.append, "data")
    timer = loop.call_later(SECONDS_FOR_BYTES, seen.append, "nothing")
    while not seen:
        loop._run_once()
    timer.cancel()
    loop.remove_reader(peer)
    return seen[0]


def wait_by_the_selector(loop, _impl, peer):
    """As nest_asyncio's iteration, where apply() was called while the loop ran."""
    loop.add_reader(peer, list)
    assert not loop._ready
    events = loop._selector.select(SECONDS_FOR_BYTES)
    loop._process_events(events)
    loop._ready.clear()
    loop.remove_reader(peer)
    return "data" if peer.fileno() in [key.fd for key, _ in events] else "nothing"


@contextlib.contextmanager
def another_loop(impl):
    """Another loop to run inside a callback."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    other = impl.new_event_loop()
    try:
        yield other
    finally:
        other.close()
        asyncio._set_running_loop(running)


def wait_by_another_loop(_loop, impl, peer):
    with another_loop(impl) as other:
        return wait_by_iterations(other, impl, peer)


@pytest.mark.promise("P35")
@ways
@pytest.mark.parametrize("wait", [wait_by_iterations, wait_by_the_selector, wait_by_another_loop])
def test_a_callback_writes_and_then_waits_for_the_peer(loop, impl, way, wait):
    with connection(loop, way) as opened:

        def write_and_wait():
            opened.transport.write(b"written")
            seen = wait(loop, impl, opened.peer)
            opened.transport.write(b" and more")
            return seen, wait(loop, impl, opened.peer)

        assert in_one_callback(loop, write_and_wait) == ("data", "data")
        assert opened.peer.recv(16, socket.MSG_WAITALL) == b"written and more"


@pytest.mark.promise("P35")
@ways
def test_a_callback_of_another_loop_writes_and_then_waits_for_the_peer(loop, impl, way):
    with connection(loop, way) as opened:

        def write_and_wait(other):
            opened.transport.write(b"written")
            return wait_by_iterations(other, impl, opened.peer)

        def run_another_loop():
            results = []
            with another_loop(impl) as other:
                other.call_soon(lambda: results.append(write_and_wait(other)))
                other._run_once()
            return results

        assert in_one_callback(loop, run_another_loop) == ["data"]


@pytest.mark.promise("P35")
@ways
def test_a_callback_writes_and_then_waits_in_a_loop_that_the_program_runs_itself(loop, impl, way):
    """As nest_asyncio does: it looks at that loop's queue, and then waits by its selector."""

    def write_and_wait():
        opened.transport.write(b"written")
        with another_loop(impl) as other:
            return wait_by_the_selector(other, impl, opened.peer)

    with connection(loop, way) as opened:
        assert in_one_callback(loop, write_and_wait) == "data"


@pytest.mark.promise("P35")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_callback_writes_and_then_closes_the_loop(impl):
    loop = impl.new_event_loop()
    ours, peer = connected_sockets("tcp")
    peer.settimeout(SECONDS_FOR_BYTES)
    transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
    del ours

    def write_and_close():
        transport.write(b"written")
        loop.close()

    loop.call_soon(write_and_close)
    loop._run_once()
    with peer:
        assert peer.recv(7, socket.MSG_WAITALL) == b"written"
    # The transport warns that it is unclosed while this test's filter ignores that.
    del write_and_close
    transport = None
    gc.collect()


# pytest's faulthandler_timeout has its own thread, so fork() warns; from 3.15 on the warning can be raised.
@pytest.mark.promise("P35")
@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("end", ["close", "abort", "is_closing"])
def test_a_forked_child_sends_nothing_of_its_parents(loop, end):
    """Data written before the fork is sent once."""
    with connection(loop, "accepted") as opened:

        def write_and_fork():
            opened.transport.write(b"once")
            pid = os.fork()
            if pid == 0:
                try:
                    getattr(opened.transport, end)()
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            opened.transport.write_eof()

        in_one_turn(loop, write_and_fork)
        assert opened.peer.recv(100, socket.MSG_WAITALL) == b"once"


@pytest.mark.only("c", reason="asyncio sends each write at once")
@pytest.mark.promise("P35")
@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("raises", [False, True])
def test_a_fork_while_a_turn_is_sent(loop, caplog, raises):
    """The loop sends what two connections have written; the program forks when it hears that the first is broken."""
    children = []

    def fork(record):
        if record.getMessage().endswith("Fatal write error on socket transport"):
            pid = os.fork()
            if pid == 0:
                try:
                    os._exit(opened.peer.recv(100) != b"written before")
                finally:
                    os._exit(1)
            children.append(os.waitpid(pid, 0)[1])
        return False

    def write():
        broken.transport.write(b"in vain")
        opened.transport.write(b"written before")
        if raises:
            raise KeyboardInterrupt

    with connection(loop, "accepted") as broken, connection(loop, "accepted") as opened:
        loop.set_debug(True)
        loop.slow_callback_duration = 3600
        logger = logging.getLogger("asyncio")
        with caplog.at_level(logging.DEBUG, "asyncio"):
            logger.addFilter(fork)
            reset(broken.peer)
            loop.call_soon(loop.stop)
            loop.call_soon(write)  # the last one: what it has written is left to the end of the turn, if it raises
            with pytest.raises(KeyboardInterrupt) if raises else contextlib.nullcontext():
                loop.run_forever()
            logger.removeFilter(fork)
        loop.set_debug(False)
    assert children == [0]


@pytest.mark.only("c", reason="since CPython 3.12 asyncio's child sends it in writelines()")
@pytest.mark.promise("P35")
@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_sends_nothing_that_waits_in_its_parent(loop):
    ours, peer = socket.socketpair()
    with peer:
        peer.setblocking(False)
        transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
        while not transport.get_write_buffer_size():
            transport.write(bytes(65536))
        pid = os.fork()
        if pid == 0:
            try:
                with contextlib.suppress(BlockingIOError):
                    while peer.recv(65536):
                        pass
                transport.writelines([b"of ", b"the child"])
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        with pytest.raises(BlockingIOError):
            peer.recv(1)
        transport.abort()
        run_once(loop)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="since 3.14 asyncio steps no task that a forked child inherits")
@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_may_go_on_with_its_copy_of_a_connection(loop):
    """It closes the copy, lets the loop turn, and asks what it likes."""
    with connection(loop, "accepted") as opened:
        transport = opened.transport

        async def write_and_fork():
            transport.write(b"once")
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    transport.abort()
                    for _ in range(3):
                        await asyncio.sleep(0)
                    for ask in (transport.is_closing, transport.is_reading, transport.get_write_buffer_size):
                        ask()
                    transport.write(b"late")
                    transport.close()
                    code = 0
                finally:
                    os._exit(code)
            return os.waitpid(pid, 0)[1]

        assert loop.run_until_complete(write_and_fork()) == 0
        assert opened.peer.recv(4, socket.MSG_WAITALL) == b"once"


@pytest.mark.only("c", reason="gathers the writes of a turn; asyncio has sent")
def test_a_program_that_ends_the_connection_itself(loop):
    """_call_connection_lost() is no public method, but asyncio's code calls it on transports of its own."""
    with connection(loop, "accepted") as opened:
        transport = opened.transport

        def write_and_end():
            transport.write(b"before")
            transport._call_connection_lost(None)
            assert transport.is_closing() and not transport.is_reading() and transport.get_write_buffer_size() == 0
            transport.set_write_buffer_limits()
            transport.write(b"late")

        in_one_turn(loop, write_and_end, other_callbacks=True)
        assert opened.peer.recv(100, socket.MSG_WAITALL) == b"before"


@pytest.mark.promise("P35")
def test_another_thread_may_look_on(loop):
    """The other thread may ask the transport anything, but only the loop's thread sends and calls the protocol."""
    with connection(loop, "accepted") as opened:

        def look():
            opened.transport.is_closing()
            opened.transport.get_write_buffer_size()
            opened.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            opened.socket.fileno()

        def write_and_wait():
            opened.transport.write(b"one ")
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            opened.transport.write(b"two")

        in_one_turn(loop, write_and_wait)
        assert opened.peer.recv(7, socket.MSG_WAITALL) == b"one two"


@pytest.mark.only("c", reason="gathers the writes of a turn")
@counts_segments
@pytest.mark.parametrize("way", ["connected", "accepted"])
def test_the_usual_questions_leave_a_turns_writes_together(loop, way):
    """Servers ask each connection for its addresses and set TCP_NODELAY; a turn's writes still share one segment."""
    with connection(loop, way) as opened:
        assert isinstance(opened.socket, asyncio.trsock.TransportSocket)
        opened.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert opened.socket.getpeername() == opened.peer.getsockname()
        assert opened.socket.getsockname() == opened.peer.getpeername()
        assert (opened.socket.family, opened.socket.type) == (socket.AF_INET, socket.SOCK_STREAM)
        assert opened.socket.proto in (0, socket.IPPROTO_TCP)
        assert repr(opened.socket).startswith("<asyncio.TransportSocket fd=")
        before = data_segments(opened.socket)

        def write():
            for _ in range(10):
                opened.transport.write(b"x" * 10)

        in_one_turn(loop, write)
        assert opened.peer.recv(100, socket.MSG_WAITALL) == b"x" * 100
        assert data_segments(opened.socket) == before + 1


@pytest.mark.only("c", reason="asyncio's transports are part of their own cycles")
def test_asking_for_the_socket_makes_no_garbage(loop):
    """The object given to the caller refers to the transport, but does not keep it alive."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        protocol = Recorder()
        loop.run_until_complete(loop.create_connection(lambda: protocol, *listener.getsockname()))
        protocol.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gc.collect()
        with without_collector():
            protocol.transport.close()
            run_until(loop, lambda: protocol.lost)
            gone = weakref.ref(protocol.transport)
            run_once(loop, 2)
            protocol.transport = None
            assert gone() is None


@pytest.mark.promise("P35")
@pytest.mark.parametrize("kind", ["tcp", "pair"])
@pytest.mark.parametrize("look", ["shutdown", "setsockopt", "fileno", "dup"])
def test_what_shows_the_difference_sends_first_over_tls(tls, kind, look):
    tls_connection = tls.open(kind=kind)
    tls_connection.peer.socket.settimeout(SECONDS_FOR_BYTES)

    def write_and_look():
        tls_connection.transport.write(b"written ")
        tls_connection.transport.write(b"before")
        LOOKS[look](tls_connection.transport, tls_connection.socket)
        received = b""
        while len(received) < 14:
            try:
                received += tls_connection.peer.tls.read(100)
            except ssl.SSLWantReadError:
                data = tls_connection.peer.socket.recv(1 << 16)
                assert data
                tls_connection.peer.incoming.write(data)
        return received

    assert in_one_turn(tls.loop, write_and_look) == b"written before"
    tls_connection.peer.socket.setblocking(False)
