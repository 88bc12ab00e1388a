"""Accepting: a server's connections, and protocol factories that work or fail."""

import asyncio
import os
import socket

import pytest
from support.endpoints import collect, reports_of, settle, until
from support.interpreter import limits_memory
from support.leftovers import close_checked
from support.recording import Recorder
from support.serving import Made, clients_of, serving, stop


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()


def test_a_burst_of_connections(loop):
    """Many clients connect before the server accepts any; each gets its own protocol and its bytes."""

    async def main():
        made = Made()
        server, address = await serving(loop, made, backlog=200)
        clients = [socket.create_connection(address) for _ in range(150)]
        for number, client in enumerate(clients):
            client.send(b"%d" % number)
        await until(lambda: len(made.protocols) == 150 and all(protocol.received for protocol in made.protocols))
        assert sorted(int(protocol.received) for protocol in made.protocols) == list(range(150))
        by_peer = {protocol.transport.get_extra_info("peername"): protocol.received for protocol in made.protocols}
        assert by_peer == {client.getsockname(): b"%d" % number for number, client in enumerate(clients)}
        for client in clients:
            client.close()
        await made.gone()
        await stop(server)

    loop.run_until_complete(main())


def test_accepted_sockets(loop):
    """Accepted sockets are non-blocking, not inherited by children, and have TCP_NODELAY; the extra information is
    complete from the start."""
    seen = {}

    class Looking(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            sock = transport.get_extra_info("socket")
            seen["socket"] = isinstance(sock, asyncio.trsock.TransportSocket)
            seen["nodelay"] = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            seen["blocking"] = os.get_blocking(sock.fileno())
            seen["inheritable"] = os.get_inheritable(sock.fileno())
            seen["names"] = transport.get_extra_info("sockname"), transport.get_extra_info("peername")

    async def main():
        made = Made(Looking)
        server, address = await serving(loop, made)
        with socket.create_connection(address) as client:
            await until(lambda: len(seen) == 5)
            names = address, client.getsockname()
        assert seen == {"socket": True, "nodelay": True, "blocking": False, "inheritable": False, "names": names}
        await made.gone()
        await stop(server)

    loop.run_until_complete(main())


@pytest.mark.promise("P30")
@pytest.mark.parametrize("leaving", ["closed", "reset"])
def test_the_peername_is_the_one_at_the_time_of_accepting(loop, leaving):
    """The client leaves before the loop accepts its connection, so getpeername() would fail."""

    async def main():
        made = Made()
        server, address = await serving(loop, made)
        client = socket.create_connection(address)
        own = client.getsockname()
        if leaving == "reset":
            reset(client)
        else:
            client.close()
        await until(lambda: made.protocols and made.protocols[0].transport)
        transport = made.protocols[0].transport
        assert transport.get_extra_info("peername") == own
        assert transport.get_extra_info("sockname") == address
        await made.gone()
        assert transport.get_extra_info("peername") == own
        await stop(server)

    loop.run_until_complete(main())


@pytest.mark.promise("P30")
def test_connecting_and_vanishing_again_and_again(loop):
    """Some clients close, some reset, and some stay: the server loses no connection and goes on."""

    async def main():
        made = Made()
        server, address = await serving(loop, made)
        staying = []
        for number in range(60):
            client = socket.create_connection(address)
            if number % 3 == 0:
                reset(client)
            elif number % 3 == 1:
                client.close()
            else:
                client.send(b"here")
                staying.append(client)
        await until(lambda: sum(protocol.received == b"here" for protocol in made.protocols) == len(staying))
        assert len(made.protocols) in range(40, 61)  # the system may drop connections that were reset in the queue
        for client in staying:
            client.close()
        await made.gone()
        await stop(server)

    loop.run_until_complete(main())


FACTORIES = {
    "raises": lambda: 1 / 0,
    "returns none": lambda: None,
    "returns a number": lambda: 5,
    "returns a class": lambda: asyncio.Protocol,
    "takes an argument": lambda argument: asyncio.Protocol(),
}


@pytest.mark.parametrize("bad", FACTORIES)
@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
@pytest.mark.filterwarnings("ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_factory_that_is_no_good(loop, bad, debug):
    """The server closes the connection, leaves nothing open and goes on. asyncio reports some of these errors, and more
    in debug mode. It leaves the socket to the garbage collector; an implementation may close it at once."""
    factory = {"use": FACTORIES[bad]}
    made = Made()

    async def main():
        server, address = await serving(loop, lambda *arguments: factory["use"](*arguments))
        client = socket.create_connection(address)
        await settle()
        factory["use"] = made
        with socket.create_connection(address) as second:
            second.send(b"works")
            await until(lambda: made.protocols and made.protocols[0].received == b"works")
        client.close()
        await made.gone()
        server.close()  # not wait_closed(): asyncio counts the failed connection until the collector frees it
        await settle()
        collect()

    loop.set_debug(debug)
    loop.slow_callback_duration = 3600
    with reports_of(loop) as reports:
        loop.run_until_complete(main())
    if debug and bad == "raises":
        assert reports[0]["message"] == "Error on transport creation for incoming connection"
        assert isinstance(reports[0]["exception"], ZeroDivisionError)
    if not debug and bad == "raises":
        assert reports == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.filterwarnings("ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_factory_that_interrupts_leaves_the_loop(loop, asyncio_log, caplog, error):
    """asyncio also keeps a task with the exception, and leaves the socket to the garbage collector."""

    def factory():
        raise error

    async def start():
        return await serving(loop, factory)

    server, address = loop.run_until_complete(start())
    with socket.create_connection(address):
        try:  # pytest.raises() would keep the traceback
            loop.run_forever()
        except error:
            pass
        else:
            pytest.fail("it did not leave the loop")
        server.close()
        loop.run_until_complete(settle())
    close_checked(loop)
    collect()
    caplog.clear()  # its records hold the traceback, which holds the socket
    assert all(message.startswith("Task exception was never retrieved") for message in asyncio_log.take())


@pytest.mark.parametrize("how", ["a subclass", "the loop object", "the base class"])
@pytest.mark.parametrize("name", ["_accept_connection2", "_make_socket_transport"])
def test_a_loop_that_accepts_in_another_way(impl, monkeypatch, name, how):
    """asyncio calls these methods of the loop for each connection, so a program may replace them."""
    called = []
    if how == "a subclass":

        def method(self, *arguments, **keywords):
            called.append(name)
            return getattr(super(Loop, self), name)(*arguments, **keywords)

        Loop = type("Loop", (impl.EventLoop,), {name: method})
        loop = Loop()
    else:
        loop = impl.new_event_loop()
        owner = loop
        if how == "the base class":
            owner = next(cls for cls in type(loop).__mro__ if name in cls.__dict__)
            if not hasattr(owner, "__dict__") or owner.__module__.endswith(".network_core"):
                loop.close()
                pytest.skip("a compiled class: its methods cannot be replaced")
        original = getattr(owner, name)

        def replacement(*arguments, **keywords):
            called.append(name)
            return original(*arguments, **keywords)

        monkeypatch.setattr(owner, name, replacement, raising=True)

    async def main():
        made = Made()
        server, address = await serving(loop, made)
        with socket.create_connection(address) as client:
            client.send(b"data")
            await until(lambda: made.protocols and made.protocols[0].received == b"data")
        await made.gone()
        await stop(server)

    try:
        loop.run_until_complete(main())
    finally:
        close_checked(loop)
    assert called == [name]


def test_a_replaced_accept_of_the_socket_class(loop, monkeypatch):
    accepted = []
    original = socket.socket.accept

    def accept(self):
        connection, address = original(self)
        accepted.append(address)
        return connection, address

    async def main():
        made = Made()
        server, address = await serving(loop, made)
        monkeypatch.setattr(socket.socket, "accept", accept)
        with socket.create_connection(address) as client:
            own = client.getsockname()
            await until(lambda: made.protocols)
        monkeypatch.undo()
        assert accepted == [own]
        await made.gone()
        await stop(server)

    loop.run_until_complete(main())


def test_a_servers_methods_of_another_server(loop):
    """A method bound to another server counts the connection there."""

    async def main():
        made = Made()
        one, address = await serving(loop, made)
        other, _ = await serving(loop, made)
        one._attach, one._detach = other._attach, other._detach
        with socket.create_connection(address):
            await until(lambda: made.protocols)
            assert clients_of(other) and not clients_of(one)
        await made.gone()
        del one._attach, one._detach
        await stop(one)
        await stop(other)

    loop.run_until_complete(main())


@limits_memory
@pytest.mark.only("c", reason="in Python the descriptor is lost between accept4() and the socket object, as in asyncio")
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_no_memory_to_accept(impl, kind):
    """The client is served or its connection is closed, and nothing stays open."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script(
        f"""if True:
        import _testcapi, gc, socket, tempfile
        gc.disable()  # it needs memory, too
        class Greeting(asyncio.Protocol):
            def connection_made(self, transport):
                transport.write(b"hello")
        def descriptors():
            return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))
        def run_once(times=1):
            for _ in range(times):
                loop.stop()
                loop.run_forever()
        def ask():
            client = socket.socket(listener.family)
            client.connect(listener.getsockname())
            client.settimeout(0)
            return client
        loop = impl.new_event_loop()
        messages = []
        loop.set_exception_handler(lambda loop, context: messages.append(context["message"]))
        folder = tempfile.TemporaryDirectory()
        if {kind!r} == "tcp":
            server = loop.run_until_complete(loop.create_server(Greeting, "127.0.0.1", 0))
        else:
            server = loop.run_until_complete(loop.create_unix_server(Greeting, folder.name + "/s"))
        (listener,) = server.sockets
        bell, rope = socket.socketpair()
        for allocation in range(-3, 40):
            before = descriptors()
            client = ask()
            rope.send(b"x")
            loop.add_reader(bell, _testcapi.remove_mem_hooks)
            if allocation >= 0:
                # The events come in the order in which the descriptors became ready.
                loop.call_soon(_testcapi.set_nomemory, allocation, allocation + 1)
            run_once()
            _testcapi.remove_mem_hooks()
            loop.remove_reader(bell)
            bell.recv(9)
            run_once(10)
            try:
                assert client.recv(99) in (b"hello", b"")
            except BlockingIOError:
                raise AssertionError(f"{{allocation}}: the client hangs, {{messages}}")
            except ConnectionError:
                pass
            client.close()
            run_once(10)
            assert not getattr(server, "_clients", None) and not getattr(server, "_active_count", 0), allocation
            assert descriptors() == before, f"{{allocation}}: a descriptor is left, {{messages}}"
        server.close()
        loop.run_until_complete(server.wait_closed())
        bell.close()
        rope.close()
        loop.close()
        folder.cleanup()
        """
    )


@pytest.mark.parametrize("false", [0, "", ()], ids=repr)
def test_a_false_ssl_is_no_tls(loop, false):
    async def main():
        async def answer(reader, writer):
            writer.write(b"answer")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=false)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = await reader.read()
        writer.close()
        server.close()
        return received

    assert loop.run_until_complete(main()) == b"answer"


# asyncio leaves the socket to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_an_ssl_that_cannot_say_whether_it_is_false_costs_its_connections_only(loop):
    class Undecided:
        def __bool__(self):
            raise ValueError("neither true nor false")

    async def main():
        server = await asyncio.start_server(print, "127.0.0.1", 0, ssl=Undecided())
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
        server.close()

    with reports_of(loop) as reports:
        loop.run_until_complete(main())
    assert not reports
