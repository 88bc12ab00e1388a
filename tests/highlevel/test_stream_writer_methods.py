"""The methods of asyncio.StreamWriter: the compiled one does what asyncio's own does."""

import asyncio
import gc

import pytest
from support.comparing import outcome, outcome_of, same_on_both, turns
from support.writer_states import PROTOCOL_NAMES, WRITER_NAMES, RecordingTransport, end, streams


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
            log.append((method, outcome(getattr(writer, method), *arguments, **keywords)))
        writer._transport = None
        log += [outcome(writer.write, b"x"), outcome(writer.is_closing), outcome(writer.close)]
        end(protocol, writer)
        return log

    same_on_both(loop, use)


def test_calls_of_a_transport_that_fails(loop):
    class Failing(RecordingTransport):
        def write(self, data):
            raise ValueError("write")

        def is_closing(self):
            raise KeyError("is_closing")

    async def use(module):
        log = []
        _, protocol, writer = streams(module, log)
        writer._transport = Failing(log)
        log += [outcome(writer.write, b"x"), outcome(writer.is_closing), await outcome_of(writer.drain())]
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
        task = asyncio.ensure_future(outcome_of(writer.drain()))
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
                log.append(outcome(coroutine.throw, KeyError("thrown")))
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
        writer = module.StreamWriter(RecordingTransport(calls), protocol, reader, running)
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
        writer = (module.StreamWriter if name == "exception" else Watched)(
            RecordingTransport(log), protocol, reader, running
        )
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

                class Spoiler(RecordingTransport):
                    def is_closing(self, spoiled=objects[owner], name=name):
                        self.log.append("asked")
                        delattr(spoiled, name)
                        return False

                writer, protocol = objects["writer"], objects["protocol"]
                writer._transport = Spoiler(log)
                found += [owner, name, await outcome_of(writer.drain()), log]
                writer.__init__(RecordingTransport([]), protocol, None, asyncio.get_running_loop())
                if hasattr(protocol, "_closed"):
                    end(protocol, writer)
                writer._transport.closing = True
        return found

    same_on_both(loop, use)
