"""asyncio.StreamWriter's and StreamReaderProtocol's attributes: the compiled ones do what asyncio's own do."""

import asyncio
import gc
import inspect
import warnings
from collections import deque

import pytest
from support.comparing import BOTH, outcome, outcome_of, same_on_both, turns
from support.writer_states import PROTOCOL_NAMES, RecordingTransport, end, streams


@pytest.mark.parametrize("name", ["StreamWriter", "StreamReaderProtocol"])
def test_class_is_a_subclass_of_asyncios(name):
    own, compiled = (getattr(module, name) for module in BOTH)
    assert issubclass(compiled, own)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        assert getattr(compiled, attribute) == getattr(own, attribute)
    for attribute in dir(own):
        function = getattr(own, attribute)
        if inspect.isfunction(function) and attribute not in ("__getstate__", "__reduce_ex__"):
            replaced = getattr(compiled, attribute)
            assert inspect.signature(replaced) == inspect.signature(function)
            assert replaced.__doc__ == function.__doc__
            assert replaced.__qualname__ == function.__qualname__
            assert replaced.__module__ == function.__module__
            assert inspect.iscoroutinefunction(replaced) == inspect.iscoroutinefunction(function)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_constructors(loop):
    async def use(module):
        running = asyncio.get_running_loop()
        found = []
        reader = module.StreamReader(limit=5, loop=running)
        for arguments, keywords in [
            ((None,), {}),
            ((reader,), {}),
            ((reader,), {"loop": running}),
            ((reader, None), {"loop": running}),
            ((reader, print), {"loop": running}),
            ((reader, print, running), {}),
            ((), {"stream_reader": reader, "client_connected_cb": print, "loop": running}),
            ((None,), {"loop": running}),
            (("no reader",), {"loop": running}),
            ((), {}),
            ((reader, print, running, 4), {}),
        ]:
            made = outcome(module.StreamReaderProtocol, *arguments, **keywords)
            if isinstance(made, tuple):
                found.append(made)
                continue
            found += [
                (made._paused, made._connection_lost, made._drain_waiters, type(made._closed).__name__, made._task),
                (made._reject_connection, made._over_ssl, made._transport, made._client_connected_cb),
                (hasattr(made, "_strong_reader"), hasattr(made, "_stream_writer"), made._source_traceback),
                made._stream_reader is reader,
            ]
        for arguments in [(1, 2, None, running), (1, 2, reader, running), (1, 2, "no reader", running), (1, 2, 3)]:
            made = outcome(lambda given: type("Quiet", (), {"made": module.StreamWriter(*given)}), arguments)
            if not isinstance(made, tuple):
                writer = made.made
                made = repr(writer), writer.transport, writer._complete_fut.result()
                writer._transport = RecordingTransport([])
                writer._transport.closing = True
            found.append(made)
        return found

    # If a writer's constructor fails, so does its __del__().
    same_on_both(loop, use)


def test_attributes_are_missing_until_they_are_set():
    for module in BOTH:
        protocol = module.StreamReaderProtocol.__new__(module.StreamReaderProtocol)
        for name in (*PROTOCOL_NAMES, "_task", "_transport", "_over_ssl", "_strong_reader"):
            with pytest.raises(AttributeError, match=f"StreamReaderProtocol' object has no attribute '{name}'"):
                getattr(protocol, name)
        assert protocol._source_traceback is None


@pytest.mark.parametrize("name", ["_transport", "_protocol", "_reader", "_loop"])
def test_attributes_of_a_writer_can_be_deleted(loop, name):
    async def use(module):
        log = []
        for method, *arguments in [
            ("write", b"x"), ("writelines", [b"x"]), ("close",), ("is_closing",), ("drain",), ("wait_closed",),
            ("get_extra_info", "a"), ("get_extra_info", "a", "b"), ("write_eof",), ("can_write_eof",),
        ]:  # fmt: skip
            _, protocol, writer = streams(module, log)
            protocol._closed.set_result(None)
            delattr(writer, name)
            result = outcome(getattr(writer, method), *arguments)
            log.append((method, await outcome_of(result) if inspect.isawaitable(result) else result))
            writer.__init__(RecordingTransport(log), protocol, None, asyncio.get_running_loop())
            log.append(repr(writer))
            end(protocol, writer)
        return log

    same_on_both(loop, use)


@pytest.mark.parametrize("name", PROTOCOL_NAMES)
@pytest.mark.parametrize("paused", [False, True])
def test_attributes_of_a_protocol_can_be_deleted(loop, name, paused):
    async def use(module):
        log = []
        for method, *arguments in [
            ("pause_writing",), ("resume_writing",), ("data_received", b"x"), ("_drain_helper",), ("eof_received",),
        ]:  # fmt: skip
            reader, protocol, writer = streams(module, log)
            protocol._paused = paused
            delattr(protocol, name)
            for call in (getattr(protocol, method), writer.drain):
                result = outcome(call, *(arguments if call is not writer.drain else ()))
                if inspect.isawaitable(result):
                    task = asyncio.ensure_future(outcome_of(result))
                    await turns(3)
                    result = task.result() if task.done() else "waits"
                    task.cancel()
                    await turns(1)
                log.append((method, result, reader._buffer))
            protocol.__init__(reader, loop=asyncio.get_running_loop())
            log += [protocol._paused, protocol._drain_waiters, protocol._stream_reader is reader]
            end(protocol, writer)
        return log

    same_on_both(loop, use)


def test_attributes_of_other_types(loop):
    async def use(module):
        log = []
        for owner, name, value in [
            ("writer", "_reader", None), ("writer", "_reader", 5), ("writer", "_protocol", 5), ("writer", "_loop", 5),
            ("protocol", "_paused", 1), ("protocol", "_paused", []), ("protocol", "_connection_lost", "x"),
            ("protocol", "_drain_waiters", []), ("protocol", "_drain_waiters", deque()), ("protocol", "_loop", 5),
            ("protocol", "_stream_reader_wr", None), ("protocol", "_stream_reader_wr", lambda: None),
            ("reader", "_buffer", b""), ("reader", "_exception", OSError("set")), ("reader", "_exception", 3),
        ]:  # fmt: skip
            for paused in (False, True):
                reader, protocol, writer = objects = streams(module, log)
                protocol._paused = paused
                setattr(objects[("reader", "protocol", "writer").index(owner)], name, value)
                log.append((owner, name, outcome(protocol.data_received, b"x"), reader._buffer))
                for method in ("drain", "wait_closed"):
                    task = asyncio.ensure_future(outcome_of(getattr(writer, method)()))
                    await turns(3)
                    log.append((method, task.result() if task.done() else "waits"))
                    log.append(outcome(protocol.resume_writing))
                    await turns(3)
                    log.append((method, task.result() if task.done() else "waits"))
                    task.cancel()
                    await turns(1)
                log += [outcome(protocol.pause_writing), outcome(protocol.resume_writing)]
                if not isinstance(writer._protocol, int):
                    writer._protocol._loop = asyncio.get_running_loop()
                writer._loop = asyncio.get_running_loop()
                end(protocol, writer)
        return log

    same_on_both(loop, use)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_writer_that_is_not_closed_warns(loop):
    async def use(module):
        log = []
        _, protocol, writer = streams(module, log)
        protocol._closed.cancel()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del writer
            gc.collect()
        return log, [(str(warning.message), warning.category) for warning in caught]

    same_on_both(loop, use)
