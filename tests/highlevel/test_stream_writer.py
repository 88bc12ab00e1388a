"""asyncio.StreamWriter and StreamReaderProtocol: the compiled ones do what asyncio's own do, on every loop."""

import asyncio
import gc
import inspect
import re
import warnings
from collections import deque

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, same_on_both, turns

PROTOCOL_NAMES = ("_loop", "_paused", "_drain_waiters", "_connection_lost", "_stream_reader_wr", "_closed")
WRITER_NAMES = ("_transport", "_protocol", "_reader", "_loop", "_complete_fut")


def described(error):
    """All that a program can see of an exception, but the module that a missing field's text has since Python 3.13."""
    if error is None:
        return None
    text = re.sub(r"0x[0-9a-f]+", "0x", str(error)).replace("'asyncio.streams.", "'")
    return type(error).__name__, text, described(error.__cause__), described(error.__context__)


async def outcome(awaitable):
    """What awaiting it returns or raises, to be compared with another's."""
    try:
        return await awaitable
    except Exception as error:
        return described(error)


def call_outcome(call, *arguments, **keywords):
    try:
        return call(*arguments, **keywords)
    except Exception as error:
        return described(error)


class Recorder:
    """A transport that records the calls."""

    def __init__(self, log):
        self.log = log
        self.closing = False

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments, **keywords):
            self.log.append((name, arguments, keywords))
            return f"result of {name}"

        return call

    def is_closing(self):
        self.log.append("is_closing")
        return self.closing

    def close(self):
        self.closing = True
        self.log.append("close")
        return "closed"

    def get_extra_info(self, name, default=None):
        self.log.append((name, default))
        return default

    def __repr__(self):
        return "<Recorder>"


def streams(module, log, *, with_reader=True):
    """A reader, a protocol and a writer on a transport that records the calls."""
    running = asyncio.get_running_loop()
    reader = module.StreamReader(limit=100, loop=running) if with_reader else None
    protocol = module.StreamReaderProtocol(reader, loop=running)
    transport = Recorder(log)
    protocol.connection_made(transport)
    return reader, protocol, module.StreamWriter(transport, protocol, reader, running)


def end(protocol, writer):
    """Leave nothing for __del__() to warn of."""
    writer._transport = Recorder([])
    writer._transport.closing = True
    protocol._closed.cancel()


# -- random programs ---------------------------------------------------------------------------------------------------

actions = strategies.one_of(
    strategies.tuples(
        strategies.sampled_from(
            ["drain", "drain", "wait_closed", "pause_writing", "resume_writing", "close", "lost", "broken", "fail"]
        )
    ),
    strategies.tuples(strategies.sampled_from(["pause", "cancel"]), strategies.integers(0, 4)),
)
tasks_of_a_program = strategies.lists(strategies.lists(actions, max_size=7), min_size=1, max_size=4)


class Player:
    """One run of a program: several tasks that use one writer, and a log of what each action gave, in order."""

    def __init__(self, module):
        self.log = []
        self.tasks = []
        self.reader, self.protocol, self.writer = streams(module, self.log)

    async def play(self, program):
        self.tasks = [asyncio.create_task(self.play_task(*task)) for task in enumerate(program)]
        await turns(40)
        while not all(task.done() for task in self.tasks):
            for task in self.tasks:
                task.cancel()
            await turns(3)
        self.log += [(task.done(), task.cancelled()) for task in self.tasks]
        end(self.protocol, self.writer)
        return self.log

    async def play_task(self, name, program):
        for action, *arguments in program:
            try:
                result = await self.act(action, *arguments)
            except Exception as error:
                result = described(error)
            except asyncio.CancelledError as error:
                self.log.append((name, action, "cancelled", error.args))
                if len(self.log) % 2:
                    raise
                continue
            waiting = len(self.protocol._drain_waiters)
            self.log.append((name, action, result, waiting, self.protocol._paused, self.protocol._connection_lost))

    async def act(self, action, *arguments):
        match action:
            case "drain" | "wait_closed":
                return await getattr(self.writer, action)()
            case "pause_writing" | "resume_writing":
                return getattr(self.protocol, action)()
            case "close":
                return self.writer.close()
            case "lost":
                return self.protocol.connection_lost(None)
            case "broken":
                return self.protocol.connection_lost(OSError("broken"))
            case "fail":
                return self.reader.set_exception(OSError("set"))
            case "pause":
                return await turns(*arguments)
            case "cancel":
                return self.tasks[arguments[0] % len(self.tasks)].cancel(f"by {arguments}")


@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(program=tasks_of_a_program)
def test_random_programs(loop, program):
    async def run(module):
        return await Player(module).play(program)

    same_on_both(loop, run)


# -- what they look like -----------------------------------------------------------------------------------------------


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
            made = call_outcome(module.StreamReaderProtocol, *arguments, **keywords)
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
            made = call_outcome(lambda given: type("Quiet", (), {"made": module.StreamWriter(*given)}), arguments)
            if not isinstance(made, tuple):
                writer = made.made
                made = repr(writer), writer.transport, writer._complete_fut.result()
                writer._transport = Recorder([])
                writer._transport.closing = True
            found.append(made)
        return found

    # A writer whose constructor fails has a __del__() that does, too.
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
            result = call_outcome(getattr(writer, method), *arguments)
            log.append((method, await outcome(result) if inspect.isawaitable(result) else result))
            writer.__init__(Recorder(log), protocol, None, asyncio.get_running_loop())
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
                result = call_outcome(call, *(arguments if call is not writer.drain else ()))
                if inspect.isawaitable(result):
                    task = asyncio.ensure_future(outcome(result))
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
                log.append((owner, name, call_outcome(protocol.data_received, b"x"), reader._buffer))
                for method in ("drain", "wait_closed"):
                    task = asyncio.ensure_future(outcome(getattr(writer, method)()))
                    await turns(3)
                    log.append((method, task.result() if task.done() else "waits"))
                    log.append(call_outcome(protocol.resume_writing))
                    await turns(3)
                    log.append((method, task.result() if task.done() else "waits"))
                    task.cancel()
                    await turns(1)
                log += [call_outcome(protocol.pause_writing), call_outcome(protocol.resume_writing)]
                if not isinstance(writer._protocol, int):
                    writer._protocol._loop = asyncio.get_running_loop()
                writer._loop = asyncio.get_running_loop()
                end(protocol, writer)
        return log

    same_on_both(loop, use)


# -- the writer's methods ----------------------------------------------------------------------------------------------


def test_calls_reach_the_transport(loop):
    async def use(module):
        log = []
        _, protocol, writer = streams(module, log)
        for method, arguments, keywords in [
            ("write", (b"x",), {}), ("write", (), {"data": b"x"}), ("write", (), {}), ("write", (1, 2), {}),
            ("writelines", ([b"x"],), {}), ("writelines", (), {"data": []}), ("write_eof", (), {}),
            ("write_eof", (1,), {}), ("can_write_eof", (), {}), ("is_closing", (), {}), ("get_extra_info", ("a",), {}),
            ("get_extra_info", ("a", 1), {}), ("get_extra_info", (), {"name": "a", "default": 2}),
            ("get_extra_info", ("a",), {"default": 2}), ("get_extra_info", (), {}), ("close", (), {}),
            ("close", (1,), {}), ("is_closing", (), {}),
        ]:  # fmt: skip
            log.append((method, call_outcome(getattr(writer, method), *arguments, **keywords)))
        writer._transport = None
        log += [call_outcome(writer.write, b"x"), call_outcome(writer.is_closing), call_outcome(writer.close)]
        end(protocol, writer)
        return log

    same_on_both(loop, use)


def test_calls_of_a_transport_that_fails(loop):
    class Failing(Recorder):
        def write(self, data):
            raise ValueError("write")

        def is_closing(self):
            raise KeyError("is_closing")

    async def use(module):
        log = []
        _, protocol, writer = streams(module, log)
        writer._transport = Failing(log)
        log += [call_outcome(writer.write, b"x"), call_outcome(writer.is_closing), await outcome(writer.drain())]
        end(protocol, writer)
        return log

    same_on_both(loop, use)


@pytest.mark.parametrize("state", ["open", "closing", "lost", "broken", "paused", "failed", "paused and closing"])
@pytest.mark.parametrize("with_reader", [True, False])
def test_drain(loop, state, with_reader):
    async def use(module):
        log = []
        reader, protocol, writer = streams(module, log, with_reader=with_reader)
        if "closing" in state:
            writer.close()
        if state in ("lost", "broken"):
            protocol.connection_lost(None if state == "lost" else OSError("broken"))
        if "paused" in state:
            protocol.pause_writing()
        if state == "failed" and reader:
            reader.set_exception(OSError("failed"))
        task = asyncio.ensure_future(outcome(writer.drain()))
        for number in range(4):
            await turns(1)
            log.append((number, task.done(), len(protocol._drain_waiters)))
            if number == 2 and "paused" in state:
                protocol.resume_writing()
        log.append(await task)
        end(protocol, writer)
        return log

    same_on_both(loop, use)


def test_drain_of_an_open_connection_needs_no_turn(loop):
    async def use(module):
        _, protocol, writer = streams(module, [])
        passed = []
        asyncio.get_running_loop().call_soon(passed.append, 1)
        for _ in range(5):
            writer.write(b"x")
            await writer.drain()
        found = passed.copy()
        end(protocol, writer)
        return found

    assert same_on_both(loop, use) == []


@pytest.mark.parametrize("ending", ["cancel", "throw", "close", "drop", "unstarted"])
@pytest.mark.parametrize("method", ["drain", "wait_closed"])
@pytest.mark.parametrize("closing", [False, True])
def test_ends_of_a_coroutine(loop, ending, method, closing):
    async def use(module):
        log = []
        _, protocol, writer = streams(module, log)
        protocol.pause_writing()
        writer._transport.closing = closing
        coroutine = getattr(writer, method)()
        log += [coroutine.__qualname__, asyncio.iscoroutine(coroutine)]
        if ending == "unstarted":
            coroutine.close()
        elif ending == "cancel":
            task = asyncio.ensure_future(coroutine)
            await turns(3)
            log.append((len(protocol._drain_waiters), task.cancel("why")))
            await turns(2)
            log.append((task.cancelled(), len(protocol._drain_waiters)))
        else:
            log.append(coroutine.send(None) is None)
            if ending == "throw":
                log.append(call_outcome(coroutine.throw, KeyError("thrown")))
            elif ending == "close":
                coroutine.close()
            else:
                del coroutine
                gc.collect()
            log.append(len(protocol._drain_waiters))
        end(protocol, writer)
        return log

    same_on_both(loop, use)


@pytest.mark.parametrize(
    "name", ["_drain_helper", "pause_writing", "resume_writing", "data_received", "_get_close_waiter"]
)
@pytest.mark.parametrize("way", ["subclass", "object"])
def test_overridden_methods_of_the_protocol_are_called(loop, name, way):
    async def use(module):
        calls = []

        class Watched(module.StreamReaderProtocol):
            pass

        def watched(self, *arguments):
            calls.append((name, arguments if name != "_get_close_waiter" else ()))
            return getattr(module.StreamReaderProtocol, name)(self, *arguments)

        running = asyncio.get_running_loop()
        reader = module.StreamReader()
        protocol = (Watched if way == "subclass" else module.StreamReaderProtocol)(reader, loop=running)
        if way == "subclass":
            setattr(Watched, name, watched)
        else:
            setattr(protocol, name, watched.__get__(protocol))
        writer = module.StreamWriter(Recorder(calls), protocol, reader, running)
        protocol.data_received(b"x")
        await writer.drain()
        protocol.pause_writing()
        task = asyncio.ensure_future(writer.drain())
        await turns(2)
        protocol.resume_writing()
        await task
        protocol.connection_lost(None)
        await writer.wait_closed()
        end(protocol, writer)
        return calls, await reader.read()

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["write", "drain", "is_closing", "exception"])
def test_overridden_methods_of_the_writer_and_reader(loop, name):
    async def use(module):
        log = []

        class Watched(module.StreamReader if name == "exception" else module.StreamWriter):
            pass

        def watched(self, *arguments):
            log.append((name, arguments))
            return getattr(super(Watched, self), name)(*arguments)

        setattr(Watched, name, watched)
        running = asyncio.get_running_loop()
        reader = (Watched if name == "exception" else module.StreamReader)()
        protocol = module.StreamReaderProtocol(reader, loop=running)
        writer = (module.StreamWriter if name == "exception" else Watched)(Recorder(log), protocol, reader, running)
        writer.write(b"x")
        await writer.drain()
        log.append(writer.is_closing())
        end(protocol, writer)
        return log

    same_on_both(loop, use)


def test_transport_that_spoils_the_writer_while_it_is_asked(loop):
    async def use(module):
        found = []
        for owner in ("writer", "protocol"):
            for name in WRITER_NAMES if owner == "writer" else PROTOCOL_NAMES:
                log = []
                objects = dict(zip(("reader", "protocol", "writer"), streams(module, log), strict=True))

                class Spoiler(Recorder):
                    def is_closing(self, spoiled=objects[owner], name=name):
                        self.log.append("asked")
                        delattr(spoiled, name)
                        return False

                writer, protocol = objects["writer"], objects["protocol"]
                writer._transport = Spoiler(log)
                found += [owner, name, await outcome(writer.drain()), log]
                writer.__init__(Recorder([]), protocol, None, asyncio.get_running_loop())
                if hasattr(protocol, "_closed"):
                    end(protocol, writer)
                writer._transport.closing = True
        return found

    same_on_both(loop, use)


# -- the protocol's ----------------------------------------------------------------------------------------------------


def test_flow_control_out_of_turn(loop):
    async def use(module):
        log = []
        _, protocol, writer = streams(module, log)
        log += [call_outcome(protocol.resume_writing), call_outcome(protocol.pause_writing)]
        log += [call_outcome(protocol.pause_writing), call_outcome(protocol.resume_writing)]
        end(protocol, writer)
        return log

    same_on_both(loop, use)


def test_flow_control_is_logged_in_debug_mode(loop, asyncio_log):
    async def use(module):
        _, protocol, writer = streams(module, [])
        protocol.pause_writing()
        protocol.resume_writing()
        end(protocol, writer)
        return [re.sub("0x[0-9a-f]+", "0x", message) for message in asyncio_log.take()]

    loop.set_debug(True)
    loop.run_until_complete(turns(1))
    asyncio_log.take()
    same_on_both(loop, use)


def test_reader_that_is_gone(loop):
    async def use(module):
        log = []
        reader, protocol, writer = streams(module, log)
        del reader
        writer._reader = None
        gc.collect()
        log += [protocol._stream_reader, call_outcome(protocol.data_received, b"x"), await outcome(writer.drain())]
        end(protocol, writer)
        return log

    same_on_both(loop, use)


@pytest.mark.parametrize("data", [b"", b"x", bytearray(b"x"), memoryview(b"x"), "x", None])
def test_received_data(loop, data):
    async def use(module):
        log = []
        reader, protocol, writer = streams(module, log)
        log += [call_outcome(protocol.data_received, data), bytes(reader._buffer)]
        reader.feed_eof()
        log += [call_outcome(protocol.data_received, data), bytes(reader._buffer)]
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
