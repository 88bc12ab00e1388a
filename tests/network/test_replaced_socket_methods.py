"""Connecting calls what a program has put in the place of socket.socket's methods, and fails as asyncio does."""

import asyncio
import inspect
import socket

import pytest
from support.endpoints import close, settle, until
from support.recording import Recorder
from support.serving import Made, serving, stop


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.mark.parametrize("name", ["connect", "getsockopt", "setsockopt", "getpeername"])
def test_a_replaced_method_of_the_socket_class_is_called(loop, listener, monkeypatch, name):
    called = []
    original = getattr(socket.socket, name)

    def replacement(self, *arguments):
        called.append(self.fileno())
        return original(self, *arguments)

    async def main():
        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, name, replacement)
            transport, _ = await loop.create_connection(Recorder, *listener.getsockname())
            assert transport.get_extra_info("socket").fileno() in called
            assert transport.get_extra_info("peername") == listener.getsockname()
        await close(transport)
        called.clear()
        transport, _ = await loop.create_connection(Recorder, *listener.getsockname())
        assert called == []
        await close(transport)

    loop.run_until_complete(main())


def test_the_answer_of_a_replaced_getpeername(loop, listener, monkeypatch):
    def fail(self):
        raise OSError("no peer today")

    async def peername():
        transport, _ = await loop.create_connection(Recorder, *listener.getsockname())
        found = transport.get_extra_info("peername")
        await close(transport)
        return found

    monkeypatch.setattr(socket.socket, "getpeername", lambda self: ("192.0.2.1", 5))
    assert loop.run_until_complete(peername()) == ("192.0.2.1", 5)
    monkeypatch.setattr(socket.socket, "getpeername", fail)
    assert loop.run_until_complete(peername()) is None


def test_a_replaced_set_nodelay_is_called(loop, listener, monkeypatch):
    seen = []

    async def main():
        transport, _ = await loop.create_connection(Recorder, *listener.getsockname())
        option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await close(transport)
        return option

    assert loop.run_until_complete(main()) != 0
    monkeypatch.setattr(asyncio.base_events, "_set_nodelay", lambda sock: seen.append(type(sock)))
    assert loop.run_until_complete(main()) == 0
    assert seen == [socket.socket]


@pytest.mark.parametrize("proto", [0, socket.IPPROTO_TCP])
def test_nodelay_goes_by_what_the_socket_object_says(loop, listener, proto):
    """As in asyncio, which leaves a socket alone that was made without the number of its protocol."""

    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto) as sock:
            sock.connect(listener.getsockname())
            transport, _ = await loop.create_connection(Recorder, sock=sock)
            option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert transport.get_extra_info("peername") == listener.getsockname()
            await close(transport)
        return option != 0

    assert loop.run_until_complete(main()) == (proto != 0)


def refused(tmp_path, placeholder):
    placeholder.bind(("127.0.0.1", 0))
    return socket.AF_INET, placeholder.getsockname()


def missing(tmp_path, placeholder):
    return socket.AF_UNIX, str(tmp_path / "missing")


def no_socket(tmp_path, placeholder):
    (tmp_path / "file").touch()
    return socket.AF_UNIX, str(tmp_path / "file")


def of_another_family(tmp_path, placeholder):
    return socket.AF_UNIX, ("127.0.0.1", 1)


def closed(tmp_path, placeholder):
    return None, ("127.0.0.1", 1)


@pytest.mark.parametrize("where", [refused, missing, no_socket, of_another_family, closed])
def test_a_connection_that_fails_is_asyncios_error(loop, load_implementation, tmp_path, where):
    def error_on(on):
        with socket.socket(family or socket.AF_INET) as client, pytest.raises(Exception) as caught:
            client.setblocking(False)
            if family is None:
                client.close()
            on.run_until_complete(on.sock_connect(client, address))
        return type(caught.value), caught.value.args, str(caught.value)

    reference = load_implementation("asyncio").new_event_loop()
    try:
        with socket.socket() as placeholder:
            family, address = where(tmp_path, placeholder)
            assert error_on(loop) == error_on(reference)
    finally:
        reference.close()


def test_connecting_raises_the_audit_event(impl):
    impl.run_script(
        """if True:
        import asyncio, socket
        seen = []
        sys.addaudithook(lambda event, arguments: event == "socket.connect" and seen.append(arguments))
        async def main():
            with socket.create_server(("127.0.0.1", 0)) as listener:
                address = listener.getsockname()
                transport, _ = await loop.create_connection(asyncio.Protocol, *address)
                transport.abort()
                await asyncio.sleep(0)
            assert [(type(sock), where) for sock, where in seen] == [(socket.socket, address)], seen
        loop = impl.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        """
    )


def test_an_audit_hook_may_refuse_to_connect(impl):
    impl.run_script(
        """if True:
        import asyncio, socket
        def hook(event, arguments):
            if event == "socket.connect":
                raise PermissionError("not from here")
        sys.addaudithook(hook)
        async def main():
            with socket.create_server(("127.0.0.1", 0)) as listener:
                try:
                    await loop.create_connection(asyncio.Protocol, *listener.getsockname())
                except PermissionError as error:
                    assert str(error) == "not from here"
                else:
                    raise AssertionError
        loop = impl.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        """
    )


# What asyncio calls for an address literal, from create_connection() to the transport.
STEPS = ["_ensure_resolved", "_connect_sock", "sock_connect", "_create_connection_transport", "_make_socket_transport"]


def recording(original, called, name):
    def replacement(*arguments, **keywords):
        called.append(name)
        return original(*arguments, **keywords)

    return replacement


async def connected(loop, listener, **options):
    transport, protocol = await loop.create_connection(Recorder, *listener.getsockname(), **options)
    assert protocol.transport is transport
    await close(transport)


@pytest.mark.parametrize("options", [{}, {"ssl": None, "local_addr": None, "server_hostname": None}])
@pytest.mark.parametrize("name", [*STEPS, "create_future"])
def test_a_step_replaced_on_the_loop_is_called(loop, listener, name, options):
    called = []

    async def main():
        await connected(loop, listener, **options)
        setattr(loop, name, recording(getattr(loop, name), called, name))
        await connected(loop, listener, **options)
        assert name in called
        delattr(loop, name)
        called.clear()
        await connected(loop, listener, **options)
        assert called == []

    loop.run_until_complete(main())


@pytest.mark.parametrize("name", STEPS)
def test_a_step_overridden_by_a_subclass_is_called(impl, listener, name):
    base = impl.EventLoop
    called = []
    cls = type("Loop", (base,), {name: recording(getattr(base, name), called, name)})
    loop = cls()
    try:
        loop.run_until_complete(connected(loop, listener))
    finally:
        loop.close()
    assert name in called


async def used_beside_its_transport(transport, sock, peer):
    """The program sends on the socket object of a connection, and closes it."""
    transport.write(b"1")
    sock.send(b"2")
    peer.setblocking(False)
    assert await asyncio.get_running_loop().sock_recv(peer, 2) == b"12"
    sock.close()
    one, other = socket.socketpair()  # `one`, or `other`, gets the number
    with one, other:
        transport.write(b"misdirected")
        await settle()
        for bystander in (one, other):
            bystander.setblocking(False)
            with pytest.raises(BlockingIOError):
                bystander.recv(100)
        transport.abort()
        await settle()


def keeping(original, kept):
    """`original`, which gets or returns a socket object, and also keeps it."""

    def replacement(*arguments, **keywords):
        kept.extend(sock for sock in arguments if isinstance(sock, socket.socket))
        return original(*arguments, **keywords)

    async def connect(*arguments, **keywords):
        kept.append(await original(*arguments, **keywords))
        return kept[-1]

    return connect if original.__name__ == "_connect_sock" else replacement


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("name", STEPS[1:])
def test_a_step_that_keeps_the_socket(loop, listener, name, host):
    """Such a program may use it without calling the transport, as one that passes `sock=` may."""
    kept = []

    async def main():
        setattr(loop, name, keeping(getattr(loop, name), kept))
        transport, _ = await loop.create_connection(Recorder, host, listener.getsockname()[1], family=socket.AF_INET)
        peer, _ = listener.accept()
        with peer:
            await used_beside_its_transport(transport, kept[-1], peer)

    loop.run_until_complete(main())


@pytest.mark.parametrize("name", ["_accept_connection2", "_make_socket_transport"])
def test_a_step_of_accepting_that_keeps_the_socket(loop, name):
    kept = []

    async def main():
        setattr(loop, name, keeping(getattr(loop, name), kept))
        made = Made()
        server = await loop.create_server(made, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as peer:
            await until(lambda: made.protocols and made.protocols[0].transport)
            await used_beside_its_transport(made.protocols[0].transport, kept[-1], peer)
        await stop(server)

    loop.run_until_complete(main())


@pytest.mark.parametrize("name", ["create_connection", "_ensure_resolved", "_connect_sock"])
def test_a_step_replaced_in_asyncio_is_called(loop, listener, monkeypatch, name):
    called = []
    base = asyncio.base_events.BaseEventLoop
    with monkeypatch.context() as patch:
        patch.setattr(base, name, recording(getattr(base, name), called, name))
        loop.run_until_complete(connected(loop, listener))
        assert name in called
    called.clear()
    loop.run_until_complete(connected(loop, listener))
    assert called == []


@pytest.mark.only("c", "python", reason="nothing can come between asyncio's loop and itself")
def test_a_class_between_the_loop_and_asyncio_may_override_create_connection(impl, listener):
    called = []

    class Between(asyncio.SelectorEventLoop):
        async def create_connection(self, *arguments, **options):
            called.append(arguments)
            return await super().create_connection(*arguments, **options)

    class Loop(impl.EventLoop, Between):
        pass

    loop = Loop()
    try:
        loop.run_until_complete(connected(loop, listener))
    finally:
        loop.close()
    assert called == [(Recorder, *listener.getsockname())]


@pytest.mark.parametrize("name", ["_ipaddr_info", "socket.inet_pton", "socket.socket"])
def test_a_replaced_function_of_asyncios_is_called(loop, listener, monkeypatch, name):
    called = []
    where = asyncio.base_events
    owner, _, last = name.rpartition(".")
    target = getattr(where, owner) if owner else where

    async def main():
        with monkeypatch.context() as patch:
            patch.setattr(target, last, recording(getattr(target, last), called, name))
            await connected(loop, listener)
        assert name in called

    loop.run_until_complete(main())


def test_asyncios_socket_module_replaced(loop, listener, monkeypatch):
    """As CPython's own tests do."""
    made = []

    class Module:
        def __getattr__(self, name):
            made.append(name)
            return getattr(socket, name)

    monkeypatch.setattr(asyncio.base_events, "socket", Module())
    loop.run_until_complete(connected(loop, listener))
    assert "socket" in made


@pytest.mark.parametrize("name", ["setblocking", "close", "__init__"])
def test_replaced_methods_by_which_a_socket_is_made_and_closed(loop, listener, monkeypatch, name):
    called = []
    monkeypatch.setattr(socket.socket, name, recording(getattr(socket.socket, name), called, name))
    loop.run_until_complete(connected(loop, listener))
    assert name in called


@pytest.mark.parametrize("name", ["__init__", "setblocking", "getsockname", "shutdown", "close", "_real_close"])
def test_replaced_methods_of_an_accepted_connections_socket(loop, monkeypatch, name):
    called = []

    class Ending(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.get_extra_info("sockname")
            transport.write_eof()

    async def main():
        made = Made(Ending)
        server, address = await serving(loop, made)
        with socket.create_connection(address), monkeypatch.context() as patch:
            patch.setattr(socket.socket, name, recording(getattr(socket.socket, name), called, name))
            await until(lambda: made.protocols and made.protocols[0].transport)
            await close(made.protocols[0].transport)
        await stop(server)

    loop.run_until_complete(main())
    assert name in called


def test_the_socket_is_closed_when_the_connection_is_refused_or_cancelled(loop, monkeypatch):
    made = []

    async def never(sock, address):
        made.append(sock)
        await loop.create_future()

    async def main():
        with socket.socket() as placeholder:
            placeholder.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionRefusedError):
                await loop.create_connection(Recorder, *placeholder.getsockname())
        loop.sock_connect = never
        connecting = loop.create_task(loop.create_connection(Recorder, "127.0.0.1", 1))
        while not made:
            await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert made[0].fileno() == -1

    loop.run_until_complete(main())


@pytest.mark.parametrize(
    "options", [{"sock": None}, {"family": socket.AF_INET}, {"flags": 0}, {"no_such_option": None}]
)
def test_other_options_are_asyncios(loop, listener, options):
    async def main():
        if "no_such_option" in options:
            with pytest.raises(TypeError, match="no_such_option"):
                await connected(loop, listener, **options)
        else:
            await connected(loop, listener, **options)

    loop.run_until_complete(main())


def test_create_connection_looks_like_asyncios(loop):
    own = asyncio.SelectorEventLoop.create_connection
    assert inspect.iscoroutinefunction(loop.create_connection)
    assert inspect.signature(type(loop).create_connection) == inspect.signature(own)
    coroutine = loop.create_connection(Recorder, "127.0.0.1", 1)
    assert coroutine.__name__ == "create_connection"
    assert inspect.iscoroutine(coroutine)
    coroutine.close()


def test_the_audit_events_of_a_connection(impl):
    """What a hook is told of making, connecting and closing the socket is the same."""
    impl.run_script(
        """if True:
        import asyncio, socket
        seen = []
        def hook(event, arguments):
            if event.startswith("socket.") and recording:
                seen.append((event, [repr(a) for a in arguments if not isinstance(a, socket.socket)]))
        recording = False
        sys.addaudithook(hook)
        async def main():
            global recording
            with socket.create_server(("127.0.0.1", 0)) as listener:
                address = listener.getsockname()
                recording = True
                transport, _ = await loop.create_connection(asyncio.Protocol, *address)
                recording = False
                transport.abort()
                await asyncio.sleep(0)
            kinds = [repr(int(kind)) for kind in (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)]
            assert seen == [("socket.__new__", kinds), ("socket.connect", [repr(address)])], seen
        loop = impl.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        """
    )


CLOSED_BY_A_HOOK = """if True:
    import asyncio, errno, os, select, socket
    def hook(event, arguments):
        if event == "socket.{method}" and armed:
            armed.clear()
            sock = arguments[0]
            number = sock.fileno()
            sock.close()
            # The number belongs to another file now.
            os.dup2(stranger.fileno(), number)
            taken.append(number)
    armed, taken = [], []
    # What is sent to the stranger's descriptor would arrive here; a connected one would be connected to another place.
    stranger = socket.socket(socket.AF_INET, socket.{kind})
    if "{method}" == "sendto":
        stranger.bind(("127.0.0.1", 0))
    sys.addaudithook(hook)
    target = socket.socket(socket.AF_INET, socket.{kind})
    target.bind(("127.0.0.1", 0))
    if "{method}" == "connect":
        target.listen()
    async def main():
        sock = socket.socket(socket.AF_INET, socket.{kind})
        sock.setblocking(False)
        armed.append(True)
        try:
            await {call}
        except OSError as error:
            assert error.errno == errno.EBADF, error
        else:
            raise AssertionError("no error")
        assert taken
        if "{method}" == "connect":
            try:
                stranger.getpeername()
            except OSError as error:
                assert error.errno == errno.ENOTCONN, error
            else:
                raise AssertionError("the stranger is connected")
        assert select.select([target], [], [], 0) == ([], [], [])
        os.close(taken[0])
    loop = impl.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    stranger.close()
    target.close()
"""


@pytest.mark.parametrize(
    ("method", "kind", "call"),
    [
        ("connect", "SOCK_STREAM", "loop.sock_connect(sock, target.getsockname())"),
        ("connect", "SOCK_DGRAM", "loop.sock_connect(sock, target.getsockname())"),
        ("sendto", "SOCK_DGRAM", "loop.sock_sendto(sock, b'secret', target.getsockname())"),
    ],
)
def test_an_audit_hook_that_closes_the_socket(impl, method, kind, call):
    """The call fails with EBADF, and does not reach the file that has taken the socket's number."""
    if kind == "SOCK_DGRAM" and method == "connect":
        script = CLOSED_BY_A_HOOK.replace("target.listen()", "pass")
    else:
        script = CLOSED_BY_A_HOOK
    impl.run_script(script.format(method=method, kind=kind, call=call))
