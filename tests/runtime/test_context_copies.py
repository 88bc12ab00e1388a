"""The current context is copied although a finalizer, run by the garbage collector meanwhile, sets a variable in it."""

import sys

import pytest

# Each way to schedule copies the context. The collector runs at the allocation with that number, which differs between
# the ways and the implementations. CPython's free list of contexts is empty, or no allocation would be counted.
PROGRAM = """
import contextvars, gc
variable = contextvars.ContextVar("variable")
loop = impl.new_event_loop()
seen = []

class Setter:
    def __init__(self):
        self.itself = self
    def __del__(self):
        variable.set("by the finalizer")

def callback(*_):
    seen.append(variable.get())

async def coroutine():
    callback()

def schedule(way, allocation):
    future = loop.create_future()
    ways = {
        "call_soon": lambda: loop.call_soon(callback),
        "call_later": lambda: loop.call_later(0, callback),
        "call_soon_threadsafe": lambda: loop.call_soon_threadsafe(callback),
        "create_task": lambda: loop.create_task(coroutine()),
        "add_done_callback": lambda: future.add_done_callback(callback),
    }
    variable.set("before")
    gc.collect()
    Setter()
    gc.set_threshold(gc.get_count()[0] + allocation, 10000, 10000)
    gc.enable()
    scheduled = ways[way]()
    gc.disable()
    gc.collect()
    future.set_result(None)
    return scheduled

gc.disable()
kept = [contextvars.Context() for _ in range(1000)]
for allocation in range(8):
    for number in range(30):
        kept.append(contextvars.Context())
        kept.append(contextvars.Context().run(schedule, sys.argv[1], allocation))
loop.call_later(0, loop.call_later, 0, loop.stop)
loop.run_forever()
loop.close()
assert len(seen) == 240 and set(seen) <= {"before", "by the finalizer"}, seen
del kept
gc.collect()
"""


@pytest.mark.parametrize("way", ["call_soon", "call_later", "call_soon_threadsafe", "create_task", "add_done_callback"])
def test_a_finalizer_may_set_a_variable_while_the_context_is_copied(impl, way):
    if sys.version_info < (3, 12) and impl.name != "c":
        pytest.skip("CPython 3.11's own copy_context() crashes")
    with impl.popen(PROGRAM.replace("sys.argv[1]", repr(way))) as child:
        assert child.wait(60) == 0
