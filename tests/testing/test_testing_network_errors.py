"""pipe_network() raises a clear error for wrong arguments and wrong uses, and leaves nothing half done."""

import asyncio
import contextlib
import errno
import functools
import random
import socket
import ssl
from math import inf, nan

import pytest
from support.leftovers import open_descriptors
from support.memory_network import echo, swallow
from support.virtual_time import run_virtual, virtual_class

from hotloop.testing import pipe_network


@pytest.fixture
def run(impl):
    return functools.partial(run_virtual, impl)


def settings_of(network):
    sender = network._name("127.0.0.1")
    links = network._links
    return links.latency(sender, sender, random.Random()), links.bandwidth(sender, sender)


# -- values ------------------------------------------------------------------------------------------------------------

WRONG = [
    ({"latency": -1}, ValueError, "latency must not be negative: -1"),
    ({"latency": nan}, ValueError, "latency must be finite"),
    ({"latency": inf}, ValueError, "latency must be finite"),
    ({"latency": None}, TypeError, "latency must be a number of seconds"),
    ({"latency": True}, TypeError, "latency must be a number of seconds"),
    ({"latency": (2, 1)}, ValueError, r"latency must be \(lowest, highest\)"),
    ({"latency": (1, nan)}, ValueError, "latency must be finite"),
    ({"latency": (1, 2, 3)}, ValueError, r"\(lowest, highest\) or a function"),
    ({"bandwidth": 0}, ValueError, "bandwidth must be positive: 0"),
    ({"bandwidth": -5.0}, ValueError, "bandwidth must be positive"),
    ({"bandwidth": nan}, ValueError, "bandwidth must be finite"),
    ({"bandwidth": "1"}, TypeError, "bandwidth must be a number of bytes per second, or None"),
    ({"fragment": 0}, ValueError, "fragment must be positive: 0"),
    ({"fragment": 1.5}, TypeError, "fragment must be a number of bytes"),
    ({"fragment": (5, 1)}, ValueError, r"fragment must be \(lowest, highest\)"),
    ({"fragment": (0, 1)}, ValueError, "fragment must be positive: 0"),
]


@pytest.mark.parametrize(("setting", "error", "message"), WRONG)
def test_settings(run, setting, error, message):
    with pytest.raises(error, match=message):
        pipe_network(**setting)

    async def main():
        with pipe_network(latency=1, bandwidth=7) as network:
            with pytest.raises(error, match=message):
                network.link(**{"latency": 2, "bandwidth": 8} | setting)
            assert settings_of(network) == (1, 7)

    run(main())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"buffer": 0}, ValueError, "buffer must be positive"),
        ({"buffer": 1.5}, TypeError, "buffer must be a number of bytes"),
        ({"seed": 1.5}, TypeError, "seed must be a number, a string or None"),
        ({"seed": True}, TypeError, "seed must be a number, a string or None"),
        ({"trace": []}, TypeError, "trace must be a function"),
    ],
)
def test_options(options, error, message):
    with pytest.raises(error, match=message):
        pipe_network(**options)


@pytest.mark.parametrize("setting", [{"latency": lambda rng: nan}, {"fragment": lambda rng: 0}])
def test_a_function_that_gives_nonsense_breaks_the_connection(run, setting, asyncio_log):
    async def main():
        with pipe_network() as network:
            server = await asyncio.start_server(swallow, "server.test", 80)
            reader, writer = await asyncio.open_connection("server.test", 80)
            network.link(**setting)
            writer.write(b"hello")
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()
            assert "function returns must be" in asyncio_log.take()[0]
            if "latency" in setting:
                with pytest.raises(ValueError, match="what the latency function returns must be finite"):
                    await asyncio.open_connection("server.test", 80)
            server.close()
            await asyncio.sleep(1)

    run(main())


def fails_once():
    """A latency function whose first result is invalid."""
    latencies = iter([nan])
    return lambda rng: next(latencies, 0.5)


def test_a_function_that_fails_for_one_connection_costs_no_other(run):
    """The function returns an invalid latency when heal() sends all data that a partition held."""

    async def serve(reader, writer):
        with contextlib.suppress(ConnectionResetError):
            await echo(reader, writer)

    async def main():
        async with pipe_network() as network:
            server = await asyncio.start_server(serve, "server.test", 80)
            clients = [await asyncio.open_connection("server.test", 80) for _ in range(3)]
            await asyncio.sleep(1)
            network.partition("server.test")
            for _, writer in clients:
                writer.write(b"hello")
            await asyncio.sleep(1)
            network.link(latency=fails_once())
            with pytest.raises(ValueError, match="what the latency function returns must be finite"):
                network.heal()
            (broken, _), *others = clients
            with pytest.raises(ConnectionResetError):
                await broken.read()
            for reader, _ in others:
                assert await reader.readexactly(5) == b"hello"
            for _, writer in clients:
                writer.close()
            server.close()
            await asyncio.sleep(1)

    run(main())


def test_a_function_that_fails_for_one_that_was_not_accepted(run):
    """The others are still reset when the server is closed, and the listener leaves nothing behind."""

    async def main():
        async with pipe_network() as network:
            server = await asyncio.start_server(echo, "server.test", 80)
            [listener] = network._listeners
            asyncio.get_running_loop()._remove_reader(listener.fileno())
            clients = [await asyncio.open_connection("server.test", 80) for _ in range(3)]
            await asyncio.sleep(1)
            network.link(latency=fails_once())
            with pytest.raises(ValueError, match="what the latency function returns must be finite"):
                server.close()
            assert listener.fileno() == listener._bell.fileno() == -1
            for reader, writer in clients:
                with pytest.raises(ConnectionResetError):
                    await reader.read()
                writer.close()

    run(main())


def test_no_descriptors_for_the_other_side(run, monkeypatch):
    async def main():
        loop = asyncio.get_running_loop()
        async with pipe_network() as network:
            server = await loop.create_server(asyncio.Protocol, "server.test", 80)
            before = open_descriptors()
            pairs = iter([socket.socketpair])

            def socketpair():
                make = next(pairs, None)
                if make is None:
                    raise OSError(errno.EMFILE, "Too many open files")
                return make()

            with monkeypatch.context() as patch:
                patch.setattr("socket.socketpair", socketpair)
                with pytest.raises(OSError, match="Too many open files"):
                    await loop.create_connection(asyncio.Protocol, "server.test", 80)
            assert network.connections == () and open_descriptors().keys() == before.keys()
            server.close()

    run(main())


def test_a_trace_that_fails_loses_nothing(run, asyncio_log):
    def fail(delivery):
        raise ZeroDivisionError

    async def main():
        with pipe_network(trace=fail):
            server = await asyncio.start_server(swallow, "server.test", 80)
            _, writer = await asyncio.open_connection("server.test", 80)
            writer.write(b"hello")
            writer.close()
            await asyncio.sleep(1)
            assert [message.splitlines()[-1] for message in asyncio_log.take()] == ["ZeroDivisionError"] * 3
            server.close()

    run(main())


def test_a_trace_may_break_what_it_is_told_of(run):
    async def main():
        def reset(delivery):
            network.connections[0].reset()

        with pipe_network(trace=reset) as network:
            server = await asyncio.start_server(swallow, "server.test", 80)
            reader, writer = await asyncio.open_connection("server.test", 80)
            writer.write(b"hello")
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()
            server.close()
            await asyncio.sleep(1)

    run(main())


class Narrow:
    """A socket that takes little at a time."""

    def __init__(self, sock):
        self.sock = sock
        self.fileno, self.shutdown, self.close = sock.fileno, sock.shutdown, sock.close

    def send(self, data):
        return self.sock.send(data[:4])


@pytest.mark.parametrize("resets", [False, True])
def test_a_trace_may_break_what_is_half_delivered(run, resets):
    async def main():
        deliveries = []

        def trace(delivery):
            deliveries.append(delivery.data)
            if resets:
                network.connections[0].reset()

        async with pipe_network(trace=trace) as network:
            await asyncio.start_server(swallow, "server.test", 80)
            reader, writer = await asyncio.open_connection("server.test", 80)
            pipe = network.connections[0]._to_server
            pipe._target = Narrow(pipe._target)
            writer.write(b"hello, hello")
            if resets:
                with pytest.raises(ConnectionResetError):
                    await reader.read()
                assert deliveries == [b"hell"]
            else:
                writer.write_eof()
                assert await reader.read() == b""
                assert deliveries == [b"hell", b"o, h", b"ello", b"", b""]
            writer.close()

    run(main())


# -- hosts -------------------------------------------------------------------------------------------------------------


def test_hosts(run):
    network = pipe_network()
    network.host("one.test", "192.0.2.1")
    assert network.host("One.Test") == network.host("one.test", "192.0.2.1") == ("192.0.2.1",)
    with pytest.raises(ValueError, match=r"addresses of 'one\.test' are"):
        network.host("one.test", "192.0.2.2")
    with pytest.raises(ValueError, match=r"192\.0\.2\.1 is an address of 'one.test' already"):
        network.host("two.test", "192.0.2.3", "192.0.2.1")
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        network.host("two.test", "192.0.2.256")
    with pytest.raises(ValueError, match="must not be empty"):
        network.host("")
    with pytest.raises(ValueError, match="must not be empty"):
        network.host(".")
    with pytest.raises(TypeError, match="a host's name must be a string"):
        network.host(None)
    assert "two.test" not in repr(network)


def test_who_is_not_there():
    network = pipe_network()
    network.host("one.test")
    for method in (network.link, network.partition, network.heal):
        for hosts in (("two.test",), ("one.test", "two.test"), ("10.0.0.2",)):
            with pytest.raises(ValueError, match=f"there is no host '{hosts[-1]}' in this network"):
                method(*hosts)
        with pytest.raises(TypeError, match="must be a string"):
            method(1)
    with pytest.raises(ValueError, match=r"there is no partition of 'one\.test'"):
        network.heal("one.test")
    for method in (network.link, network.heal):
        with pytest.raises(ValueError, match="needs its first host"):
            method(None, "one.test")


def test_what_the_network_leaves_to_the_loop(run):
    """The loop's own errors stay the same."""

    async def main():
        loop = asyncio.get_running_loop()
        with pipe_network() as network:
            with pytest.raises(ValueError, match="Neither host/port nor sock"):
                await loop.create_server(asyncio.Protocol)
            with pytest.raises(TypeError, match="ssl argument must be"):
                await loop.create_server(asyncio.Protocol, "server.test", 80, ssl=True)
            with pytest.raises(TypeError):
                await loop.create_server(asyncio.Protocol, "server.test", 80, nonsense=True)
            with pytest.raises(OSError, match="no host of this network has it"):
                network.host("server.test")
                await loop.create_connection(asyncio.Protocol, "server.test", 80, local_addr=("192.0.2.1", 0))
            with pytest.raises(OSError):
                await loop.create_server(asyncio.Protocol, ["server.test", "server.test", None], "no such service")
            assert network._listeners == []
            connection = ssl.create_default_context().wrap_socket(socket.socket(), server_hostname="server.test")
            with connection, pytest.raises(TypeError, match="cannot be of type SSLSocket"):
                await loop.sock_connect(connection, ("server.test", 80))
            loop.set_debug(True)
            with socket.socket() as sock, pytest.raises(ValueError, match="the socket must be non-blocking"):
                await loop.sock_connect(sock, ("server.test", 80))

    run(main())


# -- where and when ----------------------------------------------------------------------------------------------------


def test_on_a_loop_that_is_not_for_tests(impl):
    async def main():
        with pytest.raises(TypeError, match=r"needs a loop of hotloop\.testing"), pipe_network():
            pass

    impl.run(main())


def test_without_a_loop():
    with pytest.raises(RuntimeError, match="no running event loop"), pipe_network():
        pass


def test_nested(run):
    async def main():
        with pipe_network() as network:
            with pytest.raises(RuntimeError, match="the loop has a network already"), pipe_network():
                pass
            with pytest.raises(RuntimeError, match="attached to a loop already"), network:
                pass
            await asyncio.start_server(swallow, "server.test", 80)

    run(main())


def methods_of(network, connection):
    """Methods for the loop's own thread only, and for a network that is not closed."""
    return (
        network.link,
        network.heal,
        functools.partial(network.host, "a"),
        functools.partial(network.partition, "server.test"),
        network.at("server.test").__enter__,
        connection.reset,
        connection.stall,
        connection.resume,
    )


def test_in_another_thread(run):
    async def main():
        loop = asyncio.get_running_loop()
        with pipe_network() as network:
            server = await asyncio.start_server(swallow, "server.test", 80)
            _, writer = await asyncio.open_connection("server.test", 80)
            (connection,) = network.connections
            for method in (network.close, *methods_of(network, connection)):
                with pytest.raises(RuntimeError, match="another thread"):
                    await asyncio.to_thread(method)
            writer.close()
            server.close()
        other = pipe_network(loop=loop)
        with pytest.raises(RuntimeError, match="another thread"):
            await asyncio.to_thread(other.__enter__)
        assert loop._network is None

    run(main())


def test_after_close(run):
    async def main():
        with pipe_network() as network:
            server = await asyncio.start_server(swallow, "server.test", 80)
            _, writer = await asyncio.open_connection("server.test", 80)
            (connection,) = network.connections
        for method in (network.__enter__, *methods_of(network, connection)):
            with pytest.raises(RuntimeError, match="the network is closed"):
                method()
        assert "closed" in repr(network) and "closed" in repr(connection)
        network.close()
        server.close()
        writer.close()
        await asyncio.sleep(1)

    run(main())
    never = pipe_network()
    never.close()
    with pytest.raises(RuntimeError, match="the network is closed"):
        never.__enter__()


def test_a_loop_that_does_not_run_yet(impl):
    """Fixtures enter and leave a network in this way."""
    loop = virtual_class(impl.EventLoop)(shuffle=5)
    with contextlib.closing(loop), pipe_network(loop=loop, latency=1) as network:
        assert network.seed == 5
        network.host("server.test")

        async def main():
            server = await asyncio.start_server(swallow, "server.test", 80)
            _, writer = await asyncio.open_connection("server.test", 80)
            writer.close()
            await asyncio.sleep(5)
            server.close()

        loop.run_until_complete(main())
        assert network.connections == ()
    with pytest.raises(RuntimeError, match="closed"), pipe_network(loop=loop):
        pass
