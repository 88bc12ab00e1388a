"""loop.metrics(): bytes, system calls, open transports and watched descriptors."""

import asyncio
import contextlib
import os
import selectors
import socket
import types
from collections.abc import Mapping

import pytest
from support.certificates import HOST
from support.endpoints import until
from support.recording import Recorder

pytestmark = pytest.mark.only("c", "python", reason="asyncio's loop has no metrics")


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    def connection_made(self, transport):
        self.transport = transport
        self.buffer = bytearray(65536)

    def get_buffer(self, size):
        return self.buffer

    def buffer_updated(self, size):
        self.transport.write(bytes(self.buffer[:size]))


class DatagramEcho(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.transport.sendto(data, address)


def moved(metrics):
    return (metrics.bytes_received, metrics.bytes_sent)


def open_transports(loop):
    return {kind: count for kind, count in loop.metrics().transports.items() if count}


@pytest.mark.parametrize("echo", [Echo, BufferedEcho])
def test_streams(impl, echo):
    """The loop does not move the peer's bytes."""

    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(echo, "127.0.0.1", 0)
        before = loop.metrics()
        peer = socket.create_connection(server.sockets[0].getsockname())
        with peer:
            for size in (1, 1000):
                peer.sendall(bytes(size))
                assert len(await asyncio.to_thread(peer.recv, size, socket.MSG_WAITALL)) == size
            happened = loop.metrics() - before
            assert moved(happened) == (1001, 1001)
            # Each was small enough for one call, but the kernel may have passed it on in pieces.
            assert 2 <= happened.receives <= 1001
            assert 2 <= happened.sends <= happened.receives
            assert open_transports(loop) == {"tcp": 1}
            assert loop.metrics().watched == {"server": 1, "transport": 1}
        await until(lambda: open_transports(loop) == {})
        server.close()
        await server.wait_closed()
        assert loop.metrics().watched == {}
        # The end of the stream adds no bytes.
        assert (loop.metrics() - before).bytes_received == 1001

    impl.run(main())


def test_one_write_larger_than_the_kernel_takes_at_once(impl):
    size = 8 * 1024 * 1024

    async def main():
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=one)
        with other:
            before = loop.metrics()
            transport.write(bytes(size))
            received = await asyncio.to_thread(other.recv, size, socket.MSG_WAITALL)
            assert len(received) == size
            await until(lambda: transport.get_write_buffer_size() == 0)
            happened = loop.metrics() - before
            assert happened.bytes_sent == size
            assert happened.sends > 1
            assert open_transports(loop) == {"stream": 1}
            transport.close()
            await until(lambda: open_transports(loop) == {})

    impl.run(main())


def test_a_tls_connection_counts_what_its_stream_moves(impl, certificates):
    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=certificates.context("server"))
        before = loop.metrics()
        reader, writer = await asyncio.open_connection(
            *server.sockets[0].getsockname(), ssl=certificates.context("client"), server_hostname=HOST
        )
        writer.write(b"x" * 1000)
        await reader.readexactly(1000)
        happened = loop.metrics() - before
        # Both ends belong to this loop; the handshake and the records' headers add to it.
        assert happened.bytes_sent > 2000
        assert happened.bytes_received > 2000
        assert open_transports(loop) == {"tcp": 2}
        writer.close()
        await writer.wait_closed()
        await until(lambda: open_transports(loop) == {})
        server.close()

    impl.run(main())


def test_datagrams(impl):
    async def main():
        loop = asyncio.get_running_loop()
        echo, _ = await loop.create_datagram_endpoint(DatagramEcho, local_addr=("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.connect(echo.get_extra_info("sockname"))
            before = loop.metrics()
            for size in (1, 100, 0):
                peer.send(bytes(size))
                if size:
                    assert len(await asyncio.to_thread(peer.recv, 1000)) == size
            await until(lambda: (loop.metrics() - before).receives == 3)
            happened = loop.metrics() - before
            assert moved(happened) == (101, 101)
            assert open_transports(loop) == {"datagram": 1}
        echo.close()
        await until(lambda: open_transports(loop) == {})

    impl.run(main())


def test_pipes(impl):
    async def main():
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        reader, _ = await loop.connect_read_pipe(Recorder, os.fdopen(reading, "rb", 0))
        writer, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(writing, "wb", 0))
        before = loop.metrics()
        writer.write(b"x" * 1000)
        writer.writelines([b"y" * 10, b"z"])
        await until(lambda: (loop.metrics() - before).bytes_received == 1011)
        happened = loop.metrics() - before
        assert moved(happened) == (1011, 1011)
        assert (happened.sends, 1 <= happened.receives <= 2) == (2, True)
        writer.close()
        await until(lambda: open_transports(loop) == {})
        assert reader.is_closing()

    impl.run(main())


def test_open_pipes(impl):
    async def main():
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        await loop.connect_read_pipe(asyncio.Protocol, os.fdopen(reading, "rb", 0))
        writer, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(writing, "wb", 0))
        assert open_transports(loop) == {"read_pipe": 1, "write_pipe": 1}
        writer.close()
        await until(lambda: open_transports(loop) == {})

    impl.run(main())


def test_socket_methods(impl, tmp_path):
    class Own(socket.socket):
        """A subclass: the loop calls its own methods."""

    file = tmp_path / "file"
    file.write_bytes(b"f" * 5000)

    async def main():
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        own = Own(other.family, other.type, other.proto, fileno=other.detach())
        with one, own, open(file, "rb") as content:
            one.setblocking(False)
            own.setblocking(False)
            before = loop.metrics()
            await loop.sock_sendall(one, b"x" * 100)
            assert await loop.sock_recv(own, 60) == b"x" * 60
            assert await loop.sock_recv_into(own, bytearray(100)) == 40
            await loop.sock_sendall(own, b"y" * 20)
            assert await loop.sock_recv(one, 100) == b"y" * 20
            assert moved(loop.metrics() - before) == (120, 120)
            assert await loop.sock_sendfile(one, content) == 5000
            assert (loop.metrics() - before).bytes_sent == 5120
            own.shutdown(socket.SHUT_WR)
            assert (await loop.sock_recv(one, 1)) == b""
            assert (loop.metrics() - before).bytes_received == 120

    impl.run(main())


def test_callbacks_of_descriptors_are_watched(loop):
    one, other = socket.socketpair()
    with one, other:
        loop.add_reader(one, int)
        loop.add_writer(one, int)
        loop.add_reader(other, int)
        assert loop.metrics().watched == {"callback": 2}
        for sock in (one, other):
            loop.remove_reader(sock)
            loop.remove_writer(sock)
        assert loop.metrics().watched == {}


def wake_up():
    """Has the name of the function by which the compiled core's socket methods wait."""


class Waiter:
    """Its methods have names of methods of a loop and of a child watcher."""

    def _sock_recv(self):
        pass

    def _accept_connection(self):
        pass

    def _read_from_self(self):
        pass

    def _do_wait(self):
        pass


class Strange:
    """Its attributes cannot be read."""

    def __call__(self):
        pass

    def __getattr__(self, name):
        raise ZeroDivisionError


CALLBACKS = {
    "wake_up": wake_up,
    "_sock_recv": Waiter()._sock_recv,
    "_accept_connection": Waiter()._accept_connection,
    "_read_from_self": Waiter()._read_from_self,
    "_do_wait": Waiter()._do_wait,
    "strange": Strange(),
    "strange method": types.MethodType(Strange(), 1),
}


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_programs_callback_is_one_whatever_its_name(loop, name):
    one, other = socket.socketpair()
    with one, other:
        loop.add_reader(one, CALLBACKS[name])
        assert loop.metrics().watched == {"callback": 1}
        loop.remove_reader(one)


def test_a_socket_method_of_a_loop_with_another_selector_is_watched(impl):
    async def main(loop):
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            task = loop.create_task(loop.sock_recv(one, 1))
            await until(lambda: loop.metrics().watched)
            assert loop.metrics().watched == {"sock_method": 1}
            other.send(b"x")
            assert await task == b"x"

    with asyncio.Runner(loop_factory=lambda: impl.EventLoop(selectors.SelectSelector())) as runner:
        runner.run(main(runner.get_loop()))


class Interrupted(Mapping):
    """A selector's map that another thread changes while the value of one key is looked for: `change` is called."""

    def __init__(self, mapping, key, change):
        self.mapping, self.key, self.change = mapping, key, change

    def __getitem__(self, key):
        return self.mapping[key]

    def __len__(self):
        return len(self.mapping)

    def __iter__(self):
        for key in self.mapping:
            if key == self.key and self.change is not None:
                change, self.change = self.change, None
                change()
            yield key


@pytest.mark.parametrize("method", ["add_reader", "remove_reader"])
def test_another_thread_asks_while_descriptors_are_added_and_removed(impl, method):
    class Selector(selectors.SelectSelector):
        def get_map(self):
            return super().get_map() if interrupted is None else interrupted

    interrupted = None
    one, other = socket.socketpair()
    with one, other, contextlib.closing(impl.EventLoop(Selector())) as loop:
        loop.add_reader(one, int)
        change = {"add_reader": lambda: loop.add_reader(other, int), "remove_reader": lambda: loop.remove_reader(one)}
        interrupted = Interrupted(loop._selector.get_map(), one.fileno(), change[method])
        assert loop.metrics().watched == ({"callback": 2} if method == "add_reader" else {})
        assert interrupted.change is None
        loop.remove_reader(one)
        loop.remove_reader(other)


def test_a_waiting_socket_method_is_watched(impl):
    async def main():
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            task = loop.create_task(loop.sock_recv(one, 1))
            await until(lambda: loop.metrics().watched)
            assert loop.metrics().watched == {"sock_method": 1}
            other.send(b"x")
            assert await task == b"x"

    impl.run(main())


def test_a_transport_that_was_dropped_is_open_no_more(impl):
    async def main():
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        with other:
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=one)
            assert open_transports(loop) == {"stream": 1}
            transport.abort()
            del transport
            await until(lambda: open_transports(loop) == {})

    impl.run(main())
