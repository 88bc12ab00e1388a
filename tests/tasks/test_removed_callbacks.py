"""remove_done_callback() compares callbacks, and comparing may run any code: the future stays as asyncio's."""

import asyncio
import itertools

import pytest
from support.stepping import run_once


def test_callbacks_change_while_they_are_compared(impl, loop):
    """An __eq__ that removes, adds or finishes: the future stays consistent (CPython has crashed here: bpo-28963)."""

    class Evil:
        def __init__(self, act):
            self.act = act

        def __eq__(self, other):
            act, self.act = self.act, lambda: None
            act()
            return False

        __hash__ = None

        def __call__(self, future):
            pass

    for position in range(3):
        for act in ("clear", "add", "finish"):
            future = impl.Future(loop=loop)
            actions = {
                "clear": lambda f=future: [f.remove_done_callback(id) for _ in range(2)],
                "add": lambda f=future: f.add_done_callback(str),
                "finish": lambda f=future: f.done() or f.set_result(None),
            }
            callbacks = [id, id, id]
            callbacks.insert(position, Evil(actions[act]))
            for callback in callbacks:
                future.add_done_callback(callback)
            future.remove_done_callback(Evil(lambda: None))
            future.remove_done_callback(repr)
            if not future.done():
                future.set_result(None)
            run_once(loop, 2)


MEDDLED = 3  # times that a callback does so: without an end, remove_done_callback() would have none, asyncio's either


class Meddling:
    """A callback that changes the future while it is compared."""

    def __init__(self, future, act):
        self.future, self.act, self.calls = future, act, 0

    def __eq__(self, other):
        self.calls += 1
        if self.act == "add" and self.calls <= MEDDLED:
            self.future.add_done_callback(lambda _: None)
        elif self.act == "remove" and self.calls <= MEDDLED:
            self.future.remove_done_callback(print)
        elif self.act == "finish" and not self.future.done():
            self.future.set_result(None)
        return self.act != "differ"

    __hash__ = None

    def __call__(self, future):
        pass


def counts_of_removals(future, acts, more, chosen):
    """What two calls of remove_done_callback() return, with more callbacks in between, and what each leaves."""
    callbacks = [Meddling(future, act) if act else (lambda _: None) for act in acts]
    for callback in callbacks:
        future.add_done_callback(callback)
    yield future.remove_done_callback(print if chosen is None else callbacks[chosen])
    yield len(future._callbacks or ())
    for act in more:
        future.add_done_callback(Meddling(future, act) if act else lambda _: None)
    yield future.remove_done_callback(print)
    yield [getattr(callback, "act", None) for callback, _ in future._callbacks or ()]


@pytest.mark.parametrize("more", [(), ("",), ("add",), ("add", ""), ("", "add")])
def test_removals_are_asyncios_whatever_the_comparisons_do(impl, loop, more):
    for length in (1, 2, 3):
        for acts in itertools.product(("", "add", "finish", "remove", "differ"), repeat=length):
            for chosen in (None, *range(length)):
                actual = list(counts_of_removals(impl.Future(loop=loop), acts, more, chosen))
                wanted = list(counts_of_removals(asyncio.Future(loop=loop), acts, more, chosen))
                assert actual == wanted, (acts, chosen)


@pytest.mark.only("c", "python", reason="asyncio's own crashes, too")
def test_a_finalizer_that_completes_the_future_while_its_callbacks_are_listed(impl):
    """Up to CPython 3.11 the garbage collector may run wherever an object is made."""
    impl.run_script("""
import asyncio, gc

class Garbage:
    def __init__(self, loop, future):
        self.loop, self.future, self.itself = loop, future, self

    def __del__(self):
        self.future.set_result(None)
        self.loop._ready.clear()

async def waits(future):
    await future

loop = impl.new_event_loop()
loop.set_exception_handler(lambda loop, context: None)
for threshold in range(1, 15):
    future = loop.create_future()
    coroutine = waits(future)
    loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0))
    gc.collect()
    Garbage(loop, future)
    gc.set_threshold(threshold)
    future._callbacks
    gc.set_threshold(700)
    coroutine.close()
    gc.collect()
loop.close()
""")


@pytest.mark.parametrize("removed", ["print", "lambda: None"])
def test_a_finalizer_that_completes_the_future_while_a_callback_is_removed(impl, removed):
    impl.run_script(f"""
import gc

class Garbage:
    def __init__(self, future):
        self.future, self.itself = future, self

    def __del__(self):
        self.future.set_result(None)

loop = impl.new_event_loop()
for callbacks in (print, id), (print, id, print, len), (id, len, print):
    for threshold in range(1, 15):
        future = loop.create_future()
        for callback in callbacks:
            future.add_done_callback(callback)
        gc.collect()
        Garbage(future)
        gc.set_threshold(threshold)
        future.remove_done_callback({removed})
        gc.set_threshold(700)
        gc.collect()
        loop._ready.clear()
loop.close()
""")
