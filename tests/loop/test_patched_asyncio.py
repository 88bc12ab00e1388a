"""Methods that a program replaces in asyncio's own classes, as tracers and tests do."""

import asyncio
import functools
import socket
from asyncio import base_events
from unittest import mock

import pytest


def test_create_task_of_asyncios_loop_is_wrapped(impl, loop):
    def count(loop):
        own, seen = base_events.BaseEventLoop.create_task, []

        @functools.wraps(own)
        def traced(self, coro, **keywords):
            seen.append((coro.__name__, sorted(keywords)))
            return own(self, coro, **keywords)

        async def main():
            await asyncio.create_task(asyncio.sleep(0))
            await asyncio.gather(asyncio.sleep(0), loop.create_task(asyncio.sleep(0), name="named"))
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
            if hasattr(asyncio, "eager_task_factory"):
                loop.set_task_factory(asyncio.eager_task_factory)
                await loop.create_task(asyncio.sleep(0))

        async def afterwards():
            await asyncio.create_task(asyncio.sleep(0))

        loop.run_until_complete(afterwards())
        with mock.patch.object(base_events.BaseEventLoop, "create_task", traced):
            loop.run_until_complete(main())
        loop.set_task_factory(None)
        loop.run_until_complete(afterwards())
        return seen

    own = asyncio.SelectorEventLoop()
    try:
        expected = count(own)
    finally:
        own.close()
    assert count(loop) == expected
    assert len(expected) >= 5


@pytest.mark.parametrize("method", ["send", "recv"])
def test_methods_of_the_socket_class_are_replaced_before_a_transport_is_made(loop, method):
    calls = []
    own = getattr(socket.socket, method)

    def replaced(sock, *arguments):
        calls.append(method)
        return own(sock, *arguments)

    async def main():
        ours, theirs = socket.socketpair()
        with theirs, mock.patch.object(socket.socket, method, replaced):
            received = loop.create_future()

            class Receiver(asyncio.Protocol):
                def data_received(self, data):
                    received.set_result(data)

            transport, _ = await loop.connect_accepted_socket(Receiver, ours)
            del ours
            transport.write(b"data")
            theirs.sendall(b"answer")
            assert await received == b"answer"
            transport.abort()
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert calls


def test_a_protocol_that_is_set_as_an_attribute(loop):
    """As programs did before set_protocol()."""

    class Receiver(asyncio.Protocol):
        def __init__(self):
            self.received = loop.create_future()

        def data_received(self, data):
            self.received.set_result(data)

    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            transport, first = await loop.connect_accepted_socket(Receiver, ours)
            del ours
            second = transport._protocol = Receiver()
            theirs.sendall(b"data")
            assert await second.received == b"data" and not first.received.done()
            assert transport.get_protocol() is second
            transport.abort()
            await asyncio.sleep(0)

    loop.run_until_complete(main())


TRACERS = {
    "another function": """
        own = BaseEventLoop.create_task
        def create_task(self, coro, **keywords):
            traced.append(coro.__qualname__)
            task = own(self, coro, **keywords)
            task.add_done_callback(lambda task: None)
            return task
        def patch():
            BaseEventLoop.create_task = create_task
    """,
    "a function that wraps the coroutine": """
        own = BaseEventLoop.create_task
        async def wrap(coro):
            return await coro
        def create_task(self, coro, *, name=None, context=None, **keywords):
            traced.append(coro.__qualname__)
            return own(self, wrap(coro), name=name, context=context, **keywords)
        def patch():
            BaseEventLoop.create_task = create_task
    """,
    "another code": """
        function = BaseEventLoop.create_task
        own = type(function)(function.__code__, function.__globals__, function.__name__, function.__defaults__)
        own.__kwdefaults__ = function.__kwdefaults__
        function.__globals__["traced_create_task"] = lambda self, coro, keywords: (
            traced.append(coro.__qualname__) or own(self, coro, **keywords)
        )
        def create_task(self, coro, **keywords):
            return traced_create_task(self, coro, keywords)
        def patch():
            function.__code__ = create_task.__code__
            function.__kwdefaults__ = None
    """,
}


@pytest.mark.parametrize("early", [True, False], ids=["before the import", "after the import"])
@pytest.mark.parametrize("tracer", TRACERS.values(), ids=TRACERS)
def test_a_tracer_of_create_task(impl, tracer, early):
    """ddtrace, for one, replaces the code in place, and does so before the program begins."""
    script = f"""if True:
        import asyncio, importlib, sys, warnings
        from asyncio.base_events import BaseEventLoop
        warnings.simplefilter("error")
        traced = []
        {tracer}
        early, package = {early}, {"asyncio" if impl.is_oracle else "hotloop"!r}
        if early:
            patch()
        module = importlib.import_module(package)
        if not early:
            patch()
        async def child():
            pass
        async def main():
            await asyncio.create_task(child())
            await asyncio.gather(child(), child())
            asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))
            await asyncio.create_task(child())
        module.run(main())
        assert [name for name in traced if name == "child"] == ["child"] * 4, traced
        if package == "hotloop":
            assert module.implementation == {impl.name!r}, module.implementation
    """
    impl.run_script(script)
