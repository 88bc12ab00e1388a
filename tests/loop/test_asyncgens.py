"""Asynchronous generators: the hooks are the loop's while it runs, and unfinished generators are closed."""

import asyncio
import gc
import sys

import pytest
from support.stepping import run_once


async def numbers(seen, count=10):
    try:
        for number in range(count):
            await asyncio.sleep(0)
            yield number
    finally:
        await asyncio.sleep(0)
        seen.append("closed")


def test_iterating_to_the_end(loop):
    seen = []

    async def main():
        return [number async for number in numbers(seen, 5)]

    assert loop.run_until_complete(main()) == list(range(5))
    assert seen == ["closed"]


def test_the_hooks_are_set_during_a_run_and_restored_after(loop):
    before = sys.get_asyncgen_hooks()
    inside = []
    loop.call_soon(lambda: inside.append(sys.get_asyncgen_hooks()))
    run_once(loop)
    assert inside[0].firstiter == loop._asyncgen_firstiter_hook
    assert inside[0].finalizer == loop._asyncgen_finalizer_hook
    assert sys.get_asyncgen_hooks() == before


def test_hooks_set_before_the_run_come_back_even_after_an_exception(loop):
    def mine(generator):
        pass

    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=mine, finalizer=mine)
    try:

        async def main():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(main())
        assert sys.get_asyncgen_hooks() == (mine, mine)
    finally:
        sys.set_asyncgen_hooks(*before)


def test_a_dropped_generator_is_closed_by_the_loop(loop):
    seen = []

    async def main():
        generator = numbers(seen)
        async for _ in generator:
            break
        del generator
        gc.collect()
        while not seen:
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert seen == ["closed"]
    run_once(loop, 2)


def test_shutdown_closes_what_is_still_open(loop):
    seen = []

    async def main():
        main.generator = numbers(seen)
        return await anext(main.generator)

    assert loop.run_until_complete(main()) == 0
    assert seen == []
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert seen == ["closed"]


def test_shutdown_reports_failures(loop):
    contexts = []
    loop.set_exception_handler(lambda loop, context: contexts.append(context))

    async def failing():
        try:
            yield 1
        finally:
            raise ZeroDivisionError

    async def main():
        main.generator = failing()
        await anext(main.generator)

    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_asyncgens())
    (context,) = contexts
    assert type(context["exception"]) is ZeroDivisionError
    assert context["asyncgen"] is main.generator
    contexts.clear()
    del main.generator


def test_a_generator_begun_after_the_shutdown_warns(loop):
    seen = []
    loop.run_until_complete(loop.shutdown_asyncgens())

    async def main():
        generator = numbers(seen)
        with pytest.warns(ResourceWarning, match="was scheduled after loop.shutdown_asyncgens"):
            await anext(generator)
        await generator.aclose()

    loop.run_until_complete(main())


def test_a_runner_closes_them(impl):
    seen = []

    async def main():
        main.generator = numbers(seen)
        await anext(main.generator)

    impl.run(main())
    assert seen == ["closed"]
