"""The StopIteration of an `await`: tracers, debuggers and code that drives the iterator by hand see the same as with
asyncio."""

import asyncio
import contextlib
import pickle
import sys
import textwrap

import pytest

VALUES = (None, 5, (1, 2), [], "text", ZeroDivisionError("a result"))


def arguments_of_end(impl, value):
    if impl.name == "python":
        return () if value is None else (value,)  # as for any generator
    with contextlib.closing(asyncio.SelectorEventLoop()) as loop:
        future = asyncio.Future(loop=loop)
        future.set_result(value)
        with pytest.raises(StopIteration) as caught:
            future.__await__().send(None)
    return caught.value.args


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("resume", [next, lambda iterator: iterator.__next__()])
def test_the_end_by_hand_is_a_true_stop_iteration(impl, loop, value, resume):
    future = loop.create_future()
    iterator = future.__await__()
    assert resume(iterator) is future
    future.set_result(value)
    with pytest.raises(StopIteration) as caught:
        resume(iterator)
    end = caught.value
    assert type(end) is StopIteration
    assert end.value is value
    if value is not None or impl.name != "c":  # with None only next() makes an exception
        assert end.args == arguments_of_end(impl, value)
    assert repr(pickle.loads(pickle.dumps(end))) == repr(end)
    with pytest.raises(StopIteration):
        resume(iterator)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_the_end_by_send(impl, loop, value):
    future = loop.create_future()
    future.set_result(value)
    with pytest.raises(StopIteration) as caught:
        future.__await__().send(None)
    assert type(caught.value) is StopIteration
    assert caught.value.value is value
    assert caught.value.args == arguments_of_end(impl, value)


def test_the_end_while_an_exception_is_handled(loop):
    """Up to Python 3.13.1 the handled exception is the context of the StopIteration."""

    def context(future):
        future.set_result(1)
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            with pytest.raises(StopIteration) as caught:
                next(future.__await__())
        return repr(caught.value.__context__)

    assert context(loop.create_future()) == context(asyncio.Future(loop=loop))


async def waits(value):
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, value)
    await future
    await future
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        await future
    await inner(value)
    await asyncio.ensure_future(inner(value))


async def inner(value):
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    return value


CODES = (waits.__code__, inner.__code__)


def traced(loop, value):
    events = []

    def trace(frame, event, argument):
        if frame.f_code not in CODES:
            return None
        if event == "exception":
            kind, error, place = argument
            argument = (kind, repr(error), repr(error.__context__), place is None)
        else:
            argument = None
        events.append((frame.f_code.co_name, frame.f_lineno, event, argument))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        loop.run_until_complete(waits(value))
    finally:
        sys.settrace(before)
    return events


def monitored(loop, value):
    raised = []

    def on_raise(code, offset, error):
        if code in CODES:
            raised.append((code.co_name, offset, type(error), repr(error), repr(error.__context__)))

    monitoring = sys.monitoring
    tool = next(tool for tool in range(6) if monitoring.get_tool(tool) is None)
    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.register_callback(tool, monitoring.events.RAISE, on_raise)
        monitoring.set_events(tool, monitoring.events.RAISE)
        loop.run_until_complete(waits(value))
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, monitoring.events.RAISE, None)
        monitoring.free_tool_id(tool)
    return raised


def of_asyncio(look, value):
    loop = asyncio.SelectorEventLoop()
    try:
        return look(loop, value)
    finally:
        loop.close()


compiled = pytest.mark.only("c", "asyncio", reason="futures in Python are generators, which end differently")


@compiled
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_trace_function_sees_what_it_sees_under_asyncio(loop, value):
    assert traced(loop, value) == of_asyncio(traced, value)


@compiled
@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring came with Python 3.12")
@pytest.mark.parametrize("value", VALUES[1:], ids=repr)
def test_a_monitoring_tool_sees_what_it_sees_under_asyncio(loop, value):
    assert monitored(loop, value) == of_asyncio(monitored, value)


SESSION = """
    import asyncio
    import sys

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_soon(future.set_result, 5)
        breakpoint()
        a = await future
        b = await future
        c = await asyncio.sleep(0.001, 7)
        return a + b + c

    from support import implementations
    print("the result", implementations.load(sys.argv[1]).run(main()))
"""


def test_pdb_steps_over_an_await(impl, tmp_path):
    import os
    import subprocess
    from pathlib import Path

    program = tmp_path / "session.py"
    program.write_text(textwrap.dedent(SESSION))
    paths = filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HOTLOOP_IMPL": ""}
    environ.pop("PYTHONBREAKPOINT", None)

    def session(name):
        done = subprocess.run(
            [sys.executable, str(program), name],
            input="next\n" * 4 + "p a, b, c\ncontinue\n",
            capture_output=True,
            text=True,
            env=environ,
            check=True,
            timeout=60,
        )
        assert "the result 17" in done.stdout
        return done.stdout

    assert session(impl.name) == session("asyncio")
