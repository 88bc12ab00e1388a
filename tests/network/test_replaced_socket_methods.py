"""Connecting calls what a program has put in the place of socket.socket's methods, and fails as asyncio does."""

import asyncio
import socket

import pytest
from support.endpoints import close
from support.recording import Recorder


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
