"""P11 and P21: the running Python's asyncio has no name or parameter that hotloop lacks, and isinstance holds for the
objects it returns."""

import asyncio
import contextlib
import inspect
import os
import sys

import pytest
from support.certificates import HOST
from support.endpoints import settle, until
from support.recording import DatagramRecorder, Recorder

# In CPython 3.11 asyncio's own has no narrower base class.
DATAGRAM_TRANSPORT = asyncio.DatagramTransport if sys.version_info >= (3, 12) else asyncio.BaseTransport


def public(cls):
    return [name for name in dir(cls) if not name.startswith("_")]


def accepts(callable_, oracle):
    """The first argument that `oracle` accepts and `callable_` does not; None if it accepts them all."""
    ours = inspect.signature(callable_)
    for parameter in inspect.signature(oracle).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            if not any(own.kind is own.VAR_POSITIONAL for own in ours.parameters.values()):
                return f"*{parameter.name}"
        elif parameter.kind is parameter.VAR_KEYWORD or parameter.kind is parameter.POSITIONAL_ONLY:
            continue
        else:
            takes_any = any(own.kind is own.VAR_KEYWORD for own in ours.parameters.values())
            if parameter.name not in ours.parameters and not takes_any:
                return parameter.name
    return None


@pytest.mark.promise("P11")
def test_no_method_of_the_loop_is_missing(impl, loop):
    assert [name for name in public(asyncio.SelectorEventLoop) if not hasattr(loop, name)] == []


@pytest.mark.promise("P11")
def test_no_keyword_of_the_loops_methods_is_missing(impl):
    refused = {}
    for name in public(asyncio.SelectorEventLoop):
        refusal = accepts(getattr(impl.EventLoop, name), getattr(asyncio.SelectorEventLoop, name))
        if refusal is not None:
            refused[name] = refusal
    assert refused == {}


@pytest.mark.promise("P11")
@pytest.mark.only("c", "python", reason="the signatures of asyncio's C classes cannot be read")
def test_no_keyword_of_futures_and_tasks_is_missing(impl):
    """Compared with asyncio's Python classes, whose signatures can be read."""
    refused = {}
    for ours, oracle in ((impl.Future, asyncio.futures._PyFuture), (impl.Task, asyncio.tasks._PyTask)):
        for name in public(oracle):
            if callable(getattr(oracle, name)):
                refusal = accepts(getattr(ours, name), getattr(oracle, name))
                if refusal is not None:
                    refused[f"{ours.__name__}.{name}"] = refusal
    assert refused == {}


@pytest.mark.promise("P11")
def test_no_keyword_of_handles_is_missing(impl):
    refused = {}
    for ours, oracle in ((impl.Handle, asyncio.Handle), (impl.TimerHandle, asyncio.TimerHandle)):
        for name in public(oracle):
            refusal = accepts(getattr(ours, name), getattr(oracle, name))
            if refusal is not None:
                refused[f"{ours.__name__}.{name}"] = refusal
    assert refused == {}


@pytest.mark.promise("P11")
def test_no_method_of_the_selector_is_missing(impl):
    import selectors

    refused = {}
    for name in public(selectors.DefaultSelector):
        refusal = accepts(getattr(impl.DefaultSelector, name), getattr(selectors.DefaultSelector, name))
        if refusal is not None:
            refused[name] = refusal
    assert refused == {}


class Child(Recorder, asyncio.SubprocessProtocol):
    pass


@contextlib.asynccontextmanager
async def one_of_each_kind(loop, certificates):
    """(server or transport, asyncio's class of that kind, an abstract class of asyncio's) by name."""
    async with contextlib.AsyncExitStack() as stack:
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        tls_server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=certificates.server_context())
        tls_address = tls_server.sockets[0].getsockname()
        files = [stack.enter_context(os.fdopen(fd, mode, 0)) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True)]
        process, told = await loop.subprocess_exec(Child, "cat", stdout=None, stderr=None)
        stack.push_async_callback(until, lambda: told.lost)
        made = {
            "Transport": await loop.create_connection(Recorder, *address),
            "DatagramTransport": await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0)),
            "TLS": await loop.create_connection(
                Recorder, *tls_address, ssl=certificates.client_context(), server_hostname=HOST
            ),
            "read pipe": await loop.connect_read_pipe(Recorder, files[0]),
            "write pipe": await loop.connect_write_pipe(Recorder, files[1]),
        }
        classes = {
            "Transport": (asyncio.selector_events._SelectorSocketTransport, asyncio.Transport),
            "DatagramTransport": (asyncio.selector_events._SelectorDatagramTransport, DATAGRAM_TRANSPORT),
            "TLS": (asyncio.sslproto._SSLProtocolTransport, asyncio.Transport),
            "read pipe": (asyncio.unix_events._UnixReadPipeTransport, asyncio.ReadTransport),
            "write pipe": (asyncio.unix_events._UnixWritePipeTransport, asyncio.WriteTransport),
        }
        try:
            yield {
                "Server": (server, asyncio.Server, asyncio.AbstractServer),
                "subprocess": (process, asyncio.unix_events._UnixSubprocessTransport, asyncio.SubprocessTransport),
                **{kind: (transport, *classes[kind]) for kind, (transport, _) in made.items()},
            }
        finally:
            process.close()
            for transport, protocol in reversed(made.values()):
                transport.close()
                await until(lambda protocol=protocol: protocol.lost)
            for one in (server, tls_server):
                one.close()
                await one.wait_closed()
            await settle()


@pytest.mark.promise("P11")
def test_no_method_or_keyword_of_servers_and_transports_is_missing(loop, certificates):
    async def main():
        async with one_of_each_kind(loop, certificates) as kinds:
            for kind, (thing, oracle, _) in kinds.items():
                assert [name for name in public(oracle) if not hasattr(thing, name)] == [], kind
                methods = [name for name in public(oracle) if inspect.isroutine(getattr(oracle, name))]
                refused = {name: accepts(getattr(type(thing), name), getattr(oracle, name)) for name in methods}
                assert {name: refusal for name, refusal in refused.items() if refusal is not None} == {}, kind

    loop.run_until_complete(main())


@pytest.mark.promise("P21")
def test_servers_and_transports_of_every_kind(loop, certificates):
    async def main():
        async with one_of_each_kind(loop, certificates) as kinds:
            for thing, _, abstract in kinds.values():
                assert isinstance(thing, abstract)
                assert isinstance(thing, asyncio.AbstractServer | asyncio.BaseTransport)

    loop.run_until_complete(main())


@pytest.mark.promise("P21")
def test_isinstance_of_everything_a_loop_hands_out(impl, loop):
    async def main():
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        assert isinstance(server, asyncio.Server) and isinstance(server, asyncio.AbstractServer)
        address = server.sockets[0].getsockname()
        transport, _ = await loop.create_connection(asyncio.Protocol, *address)
        assert isinstance(transport, asyncio.Transport) and isinstance(transport, asyncio.WriteTransport)
        datagram, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
        assert isinstance(datagram, asyncio.transports.BaseTransport)
        handle = loop.call_soon(int)
        timer = loop.call_later(0, int)
        assert isinstance(handle, asyncio.Handle) and isinstance(timer, asyncio.TimerHandle)
        assert isinstance(loop.create_future(), asyncio.Future)
        assert isinstance(asyncio.current_task(), asyncio.Task)
        assert isinstance(loop.run_in_executor(None, int), asyncio.Future)
        transport.close()
        datagram.close()
        server.close()
        await asyncio.sleep(0.001)
        await server.wait_closed()

    loop.run_until_complete(main())


@pytest.mark.promise("P21")
def test_issubclass_and_abstract_classes(impl):
    """Type checks the other way round: other objects must not pass for a future."""
    assert issubclass(impl.Task, impl.Future)
    assert not isinstance(5, impl.Future)
    assert issubclass(impl.EventLoop, asyncio.AbstractEventLoop)


def test_names_and_modules_are_presentable(impl):
    for cls, name in (
        (impl.Future, "Future"),
        (impl.Task, "Task"),
        (impl.Handle, "Handle"),
        (impl.TimerHandle, "TimerHandle"),
    ):
        assert cls.__name__ == cls.__qualname__ == name
        if not impl.is_oracle:
            assert cls.__module__.startswith("hotloop.")
            assert inspect.getdoc(cls)
