"""Cancelling tasks: when the cancellation arrives, its message, how it is counted, and which code may swallow it."""

import asyncio
import sys

import pytest
from support.stepping import run_once


async def forever(loop):
    await loop.create_future()


def test_cancel_arrives_where_the_task_waits(loop):
    seen = []

    async def main():
        try:
            await loop.create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = loop.create_task(main())
    run_once(loop)
    assert task.cancel() is True
    assert not task.done()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert seen == ["cancelled"] and task.cancelled()
    assert task.cancel() is False
    for method in (task.result, task.exception):
        with pytest.raises(asyncio.CancelledError):
            method()


def test_cancel_before_the_first_step(loop):
    seen = []

    async def main():
        seen.append("ran")

    task = loop.create_task(main())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert seen == [] and task.cancelled()


def test_cancel_cancels_what_is_awaited(loop):
    future = loop.create_future()

    async def inner():
        await future

    async def outer():
        await inner_task

    inner_task = loop.create_task(inner())
    outer_task = loop.create_task(outer())
    run_once(loop, 2)
    outer_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(outer_task)
    assert future.cancelled() and inner_task.cancelled()


def test_cancel_of_the_awaited_future_reaches_the_task(loop):
    future = loop.create_future()

    async def main():
        with pytest.raises(asyncio.CancelledError):
            await future
        return "went on"

    task = loop.create_task(main())
    run_once(loop)
    future.cancel()
    assert loop.run_until_complete(task) == "went on"


def test_cancel_can_be_swallowed(loop):
    async def main():
        try:
            await loop.create_future()
        except asyncio.CancelledError:
            return "swallowed"

    task = loop.create_task(main())
    run_once(loop)
    task.cancel()
    assert loop.run_until_complete(task) == "swallowed"
    assert not task.cancelled() and task.cancelling() == 1


def test_cancel_swallowed_and_waiting_again(loop):
    async def main():
        caught = 0
        for _ in range(3):
            try:
                await loop.create_future()
            except asyncio.CancelledError:
                caught += 1
        return caught

    task = loop.create_task(main())
    for _ in range(3):
        run_once(loop, 2)
        task.cancel()
    assert loop.run_until_complete(task) == 3


def test_cancel_while_ready_to_run(loop):
    """The future is done and the task queued: the cancellation is raised nevertheless, in place of the result."""
    future = loop.create_future()

    async def main():
        await future
        pytest.fail("it was cancelled")

    task = loop.create_task(main())
    run_once(loop)
    future.set_result(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_cancel_by_the_task_itself_arrives_at_the_next_await(loop):
    seen = []

    async def main():
        asyncio.current_task().cancel()
        seen.append("before")
        await asyncio.sleep(0)
        seen.append("after")

    task = loop.create_task(main())
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert seen == ["before"]


def test_cancel_by_itself_and_then_returning(loop):
    async def main():
        asyncio.current_task().cancel()
        return "value"

    task = loop.create_task(main())
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert task.cancelled()


@pytest.mark.parametrize("message", [None, "text", 5], ids=repr)
def test_the_message_arrives(loop, message):
    caught = []

    async def main():
        try:
            await loop.create_future()
        except asyncio.CancelledError as error:
            caught.append(error.args)
            raise

    task = loop.create_task(main())
    run_once(loop)
    task.cancel(message)
    with pytest.raises(asyncio.CancelledError) as outside:
        loop.run_until_complete(task)
    expected = () if message is None else (message,)
    assert caught == [expected] and outside.value.args == expected


def test_the_message_travels_through_a_chain(loop):
    async def inner():
        await loop.create_future()

    async def outer():
        await loop.create_task(inner())

    task = loop.create_task(outer())
    run_once(loop, 2)
    task.cancel(msg="through")
    with pytest.raises(asyncio.CancelledError, match="through"):
        loop.run_until_complete(task)


def test_the_cancelled_error_has_the_traceback_of_where_it_was_raised(loop):
    async def waits_here():
        await loop.create_future()

    task = loop.create_task(waits_here())
    run_once(loop)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        loop.run_until_complete(task)
    names = []
    traceback = caught.value.__traceback__
    while traceback is not None:
        names.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert "waits_here" in names


def test_cancelling_and_uncancel_count(loop):
    task = loop.create_task(forever(loop))
    assert task.cancelling() == 0
    run_once(loop)
    task.cancel()
    assert task.cancelling() == 1
    assert task.cancel() is True
    assert task.cancelling() == 2
    assert task.uncancel() == 1
    assert task.uncancel() == 0
    assert task.uncancel() == 0
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="uncancel() takes a request back since CPython 3.13")
def test_uncancel_to_zero_takes_back_a_request_not_yet_delivered(loop):
    async def main():
        asyncio.current_task().cancel()
        asyncio.current_task().uncancel()
        await asyncio.sleep(0)
        return "went on"

    task = loop.create_task(main())
    assert loop.run_until_complete(task) == "went on"


def test_must_cancel_is_seen(loop):
    task = loop.create_task(forever(loop))
    assert task._must_cancel is False
    task.cancel()
    assert task._must_cancel is True
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert task._must_cancel is False


def test_what_it_waits_for_is_seen(impl, loop):
    """anyio reads `_fut_waiter` to decide whether to cancel."""
    future = loop.create_future()

    async def main():
        await future

    task = loop.create_task(main())
    assert task._fut_waiter is None
    run_once(loop)
    assert task._fut_waiter is future
    assert isinstance(task._fut_waiter, asyncio.Future)
    future.set_result(None)
    loop.run_until_complete(task)
    assert task._fut_waiter is None


def test_a_timeout(loop):
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await loop.create_future()
        assert asyncio.current_task().cancelling() == 0
        async with asyncio.timeout(3600):
            await asyncio.sleep(0)
        return "done"

    assert loop.run_until_complete(main()) == "done"


def test_cancel_during_a_timeout_is_not_mistaken_for_it(loop):
    async def main():
        async with asyncio.timeout(3600):
            await loop.create_future()

    task = loop.create_task(main())
    run_once(loop)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_an_awaited_future_that_cannot_be_cancelled(impl, loop):
    class Stubborn(impl.Future):
        def cancel(self, msg=None):
            return False

    future = Stubborn(loop=loop)

    async def main():
        await future

    task = loop.create_task(main())
    run_once(loop)
    assert task.cancel() is True
    run_once(loop, 2)
    assert not task.done()  # it arrives when the wait is over
    future.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_cancelling_a_finished_coroutines_task_from_its_callbacks(loop):
    async def main():
        pass

    task = loop.create_task(main())
    results = []
    task.add_done_callback(lambda task: results.append(task.cancel()))
    loop.run_until_complete(task)
    run_once(loop)
    assert results == [False] and not task.cancelled()


def test_gather_cancels_its_children(loop):
    children = []

    async def main():
        children.extend(loop.create_task(forever(loop)) for _ in range(5))
        await asyncio.gather(*children)

    task = loop.create_task(main())
    run_once(loop, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert all(child.cancelled() for child in children)


def test_a_cancelled_gather_whose_children_fail_leaves_them_their_exceptions(loop):
    """It is cancelled, whatever the child that is done last has to say."""

    async def fail():
        try:
            await loop.create_future()
        except asyncio.CancelledError:
            raise ValueError("of the child") from None

    async def main():
        children = [loop.create_task(fail()) for _ in range(2)]
        gathered = asyncio.gather(*children, return_exceptions=True)
        await asyncio.sleep(0)
        gathered.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathered
        for child in children:
            with pytest.raises(ValueError, match="of the child"):
                child.result()
            assert str(child.exception()) == "of the child"

    loop.run_until_complete(main())


def test_a_cancelled_error_is_made_of_any_future(loop):
    async def fail():
        raise ValueError("of the task")

    failed = loop.create_future()
    failed.set_exception(ValueError("of the future"))
    task = loop.create_task(fail())
    run_once(loop)
    for future, text in [(failed, "of the future"), (task, "of the task")]:
        assert type(future._make_cancelled_error()) is asyncio.CancelledError
        assert str(future.exception()) == text
        with pytest.raises(ValueError, match=text):
            future.result()


def test_a_task_that_was_given_a_result_keeps_it_when_its_coroutine_is_cancelled(loop):
    async def main():
        type(loop.create_future()).set_result(task, 5)
        raise asyncio.CancelledError

    task = loop.create_task(main())
    assert loop.run_until_complete(task) == 5


def test_cancelling_at_every_point_leaves_no_trace(loop):
    """A task with five awaits, cancelled after each number of turns; its cleanup always runs, exactly once."""
    for turns in range(8):
        cleaned = []

        async def main(cleaned=cleaned):
            try:
                for _ in range(5):
                    await asyncio.sleep(0)
            finally:
                cleaned.append(True)
            return "finished"

        task = loop.create_task(main())
        run_once(loop, turns)
        task.cancel()
        results = loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        assert cleaned == ([] if turns == 0 else [True])
        assert (results == ["finished"]) == (turns >= 6)
