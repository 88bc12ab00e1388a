"""Datagram transports: behaviour specific to an implementation that makes system calls without Python's socket
object."""

import gc
import selectors
import socket
import sys

import pytest
from support.endpoints import close, over, reports_of, until
from support.recording import DatagramRecorder
from support.stepping import run_once

compiled = pytest.mark.only("c", reason="the pure loop uses asyncio's transports, which take one datagram in each turn")


@pytest.fixture
def peer():
    """A plain UDP socket to talk to an endpoint with."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


def bound(loop, factory=DatagramRecorder):
    return loop.run_until_complete(loop.create_datagram_endpoint(factory, local_addr=("127.0.0.1", 0)))


@pytest.mark.promise("P23")
@compiled
def test_one_wake_up_drains_32_datagrams_and_leaves_the_others_their_turn(loop, peer):
    transports, protocols = zip(*[bound(loop) for _ in range(2)], strict=True)
    busy, quiet = protocols
    for number in range(100):
        peer.sendto(b"%d" % number, transports[0].get_extra_info("sockname"))
    peer.sendto(b"me too", transports[1].get_extra_info("sockname"))
    run_once(loop)
    assert 32 <= len(busy.received) < 100
    assert quiet.received == [b"me too"]
    run_once(loop, 3)
    assert busy.received == [b"%d" % number for number in range(100)]
    loop.run_until_complete(close(*transports))


@compiled
def test_the_address_of_a_busy_peer_is_one_object(loop, peer):
    transport, protocol = bound(loop)
    for _ in range(3):
        peer.sendto(b"x", transport.get_extra_info("sockname"))
    run_once(loop)
    assert len(protocol.addresses) == 3
    assert len({id(address) for address in protocol.addresses}) == 1
    loop.run_until_complete(close(transport))


def test_answers_go_to_the_given_address(loop):
    async def main():
        server, protocol = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
        at = server.get_extra_info("sockname")
        clients = [(await loop.create_datagram_endpoint(DatagramRecorder, remote_addr=at))[0] for _ in range(2)]
        for client in clients:
            client.sendto(b"hello")
        await until(lambda: len(protocol.received) == 2)
        for address in [*protocol.addresses, *reversed(protocol.addresses), *map(tuple, map(list, protocol.addresses))]:
            server.sendto(repr(address[1]).encode(), address)
        for client in clients:
            answers = client.get_protocol().received
            await until(lambda answers=answers: len(answers) == 3)
            assert answers == [repr(client.get_extra_info("sockname")[1]).encode()] * 3
        await close(server, *clients)

    loop.run_until_complete(main())


class Wrapping(socket.socket):
    """A socket class that changes each datagram, as a class that speaks through a proxy does."""

    def recvfrom(self, *arguments):
        data, address = super().recvfrom(*arguments)
        return data.removeprefix(b"wrapped "), address

    def sendto(self, data, address):
        return super().sendto(b"wrapped " + data, address)

    def send(self, data):
        return super().send(b"wrapped " + data)


@pytest.mark.parametrize("connected", [True, False])
def test_a_class_of_socket_with_its_own_methods_is_asked(loop, peer, connected):
    async def main():
        sock = Wrapping(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        if connected:
            sock.connect(peer.getsockname())
        transport, protocol = await over(loop, sock)
        transport.sendto(b"ping", None if connected else peer.getsockname())
        assert peer.recvfrom(100) == (b"wrapped ping", transport.get_extra_info("sockname"))
        peer.sendto(b"wrapped pong", transport.get_extra_info("sockname"))
        await until(lambda: protocol.received)
        assert (protocol.received, protocol.addresses) == ([b"pong"], [peer.getsockname()])
        await close(transport)

    loop.run_until_complete(main())


class Failing(socket.socket):
    """A socket class whose methods raise `error`, once."""

    error = None

    def fail(self):
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def recvfrom(self, *arguments):
        self.fail()
        return super().recvfrom(*arguments)

    def sendto(self, *arguments):
        self.fail()
        return super().sendto(*arguments)


@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("error", [BlockingIOError(), InterruptedError(), OSError("system"), ValueError("program")])
def test_errors_of_a_class_of_socket(loop, peer, operation, error):
    """After a `not now` error the transport tries again, an OSError goes to error_received(), any other error is
    fatal."""
    fatal, is_reported = isinstance(error, ValueError), type(error) is OSError

    async def main():
        sock = Failing(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        transport, protocol = await over(loop, sock)
        sock.error = error
        with reports_of(loop) as reports:
            if operation == "read":
                peer.sendto(b"in", transport.get_extra_info("sockname"))
                await until(lambda: protocol.lost if fatal else protocol.received)
            else:
                transport.sendto(b"out", peer.getsockname())
                if fatal:
                    await until(lambda: protocol.lost)
                elif not is_reported:
                    assert transport.get_write_buffer_size() > 0
                    peer.setblocking(False)
                    assert await loop.sock_recv(peer, 100) == b"out"
        assert [report["exception"] for report in reports] == [error] * fatal
        assert [report["message"] for report in reports] == [f"Fatal {operation} error on datagram transport"] * fatal
        assert protocol.errors == [error] * is_reported
        if not fatal:
            await close(transport)
        assert protocol.events == ["connection_made", ("connection_lost", "ValueError" if fatal else None)]

    loop.run_until_complete(main())


def test_data_of_the_right_type_that_cannot_be_sent(loop, peer):
    released = memoryview(b"released")
    released.release()

    async def main():
        for data, error in ((memoryview(b"every other")[::2], BufferError), (released, ValueError)):
            transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
            with reports_of(loop) as reports:
                if data is released and sys.version_info < (3, 13):
                    with pytest.raises(error):
                        transport.sendto(data, peer.getsockname())
                    await close(transport)
                    continue
                transport.sendto(data, peer.getsockname())
                await until(lambda protocol=protocol: protocol.lost)
            assert [type(report["exception"]) for report in reports] == [error]
            assert protocol.events == ["connection_made", ("connection_lost", error.__name__)]

    loop.run_until_complete(main())


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets")
def test_a_path_that_is_too_long(loop):
    async def main():
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        transport, protocol = await over(loop, sock)
        transport.sendto(b"x", "/" + 200 * "x")
        await until(lambda: protocol.errors)
        assert [str(error) for error in protocol.errors] == ["AF_UNIX path too long"]
        await close(transport)

    loop.run_until_complete(main())


def test_the_names_are_those_of_the_beginning(loop, peer):
    """The first datagram gives the socket a port; like asyncio's, the transport still reports the names that it began
    with."""

    async def main():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        transport, _ = await over(loop, sock)
        transport.sendto(b"x", peer.getsockname())
        assert transport.get_extra_info("sockname") == ("0.0.0.0", 0)
        assert sock.getsockname()[1] != 0
        sock.connect(peer.getsockname())
        assert transport.get_extra_info("peername") is None
        await close(transport)

    loop.run_until_complete(main())


@pytest.mark.parametrize("method", ["write", "writelines", "write_eof", "can_write_eof"])
def test_what_only_streams_can_do(loop, method):
    transport, _ = bound(loop)
    with pytest.raises(NotImplementedError):
        getattr(transport, method)(*{"write": [b"x"], "writelines": [[b"x"]]}.get(method, []))
    loop.run_until_complete(close(transport))


@pytest.mark.promise("P09")
def test_sendto_after_connection_lost(loop, peer, asyncio_log):
    """A connected endpoint warns. An unconnected one raises asyncio's exception: asyncio uses its socket, by then
    None."""
    transport, _ = bound(loop)
    connected, _ = loop.run_until_complete(
        loop.create_datagram_endpoint(DatagramRecorder, remote_addr=transport.get_extra_info("sockname"))
    )
    loop.run_until_complete(close(transport, connected))
    for _ in range(6):
        connected.sendto(b"too late")
        with pytest.raises(AttributeError, match="'NoneType' object has no attribute"):
            transport.sendto(b"too late", peer.getsockname())
    assert set(asyncio_log.take()) == {"socket.send() raised exception."}


@pytest.mark.only("c", reason="asyncio's transports use their loop, which is None by then")
def test_a_transport_that_has_lost_its_connection_may_be_ended_again(loop):
    transport, _ = bound(loop)
    loop.run_until_complete(close(transport))
    transport.abort()
    transport.close()
    assert transport.get_write_buffer_size() == 0


def test_a_paused_transport_that_is_dropped_warns(impl):
    loop = impl.new_event_loop()
    transport, protocol = bound(loop)
    sock = transport.get_extra_info("socket")
    transport.pause_reading()
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport, protocol
        gc.collect()
    assert sock.fileno() == -1
    loop.close()


def test_on_any_selector(impl, peer):
    loop = impl.EventLoop(selectors.SelectSelector())

    async def main():
        transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
        for _ in range(3):
            peer.sendto(b"ping", transport.get_extra_info("sockname"))
        await until(lambda: len(protocol.received) == 3)
        transport.sendto(b"pong", protocol.addresses[0])
        assert peer.recv(100) == b"pong"
        await close(transport)

    loop.run_until_complete(main())
    loop.close()


def test_the_audit_event(impl):
    """Unconnected sends raise the audit event, as socket.sendto() does; a hook may refuse."""
    impl.run_script(
        """if True:
        import asyncio, socket
        class Errors(asyncio.DatagramProtocol):
            def error_received(self, error):
                errors.append(error)
        def hook(event, arguments):
            if event == "socket.sendto":
                seen.append((arguments[0].fileno(), *arguments[1:]))
                if refused is not None:
                    raise refused
        seen, errors, refused = [], [], None
        async def main():
            global refused
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(Errors, local_addr=("127.0.0.1", 0))
            fd = transport.get_extra_info("socket").fileno()
            at = transport.get_extra_info("sockname")
            connected, _ = await loop.create_datagram_endpoint(Errors, remote_addr=at)
            seen.clear()
            connected.sendto(b"x")
            transport.sendto(b"x", at)
            transport.sendto(bytearray(b"x"), ("localhost", at[1]))
            assert seen == [(fd, at), (fd, ("localhost", at[1]))], seen
            refused = PermissionError("not from here")
            transport.sendto(b"x", at)
            assert errors == [refused] and not transport.is_closing()
            loop.set_exception_handler(lambda loop, context: errors.append(context["exception"]))
            refused = ZeroDivisionError()
            transport.sendto(b"x", at)
            assert errors[1:] == [refused] and transport.is_closing()
            refused = None
            connected.close()
            await asyncio.sleep(0.001)
        loop = impl.new_event_loop()
        sys.addaudithook(hook)
        loop.run_until_complete(main())
        loop.close()
        """
    )
