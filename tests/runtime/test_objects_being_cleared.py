"""A weak reference's callback runs in the middle of an object's tp_clear, finds the object and uses its attributes.

A finalizer makes the weak reference: those that were there before the collection are gone by then. Since CPython 3.14,
and without the GIL, its callback is not called. Each kind of object is tried in a process of its own.
"""

import pytest

PROGRAM = """
import asyncio, gc, socket, sys, sysconfig, weakref
import hotloop, hotloop.asyncio as aio

loop = hotloop.new_event_loop()
asyncio.set_event_loop(loop)
ends = socket.socketpair()
found = []
used = 0

def use(_):
    global used
    target = found[0]()
    if target is not None:
        used += 1
        try:
            target.nothing
        except AttributeError:
            pass
        target.anything = 1
        assert target.anything == 1

class Held:
    def __call__(self, *arguments):
        return 1.0

class Transport(asyncio.Transport):
    def is_closing(self):
        return True

class Finalized:
    def __init__(self, target, held):
        self.target = target
        self.held = held

    def __del__(self):
        found.append(weakref.ref(self.target))
        found.append(weakref.ref(self.held, use))

def a_loop(held):
    made = hotloop.new_event_loop()
    made.time = held
    made.close()
    return made

def a_future(held):
    made = loop.create_future()
    made.set_result(held)
    return made

def a_future_that_calls(held):
    made = loop.create_future()
    made.add_done_callback(held)
    return made

def a_future_of_a_subclass(held):
    class Derived(hotloop.Future):
        pass

    made = Derived(loop=loop)
    made.set_result(held)
    return made

def a_selector(held):
    made = hotloop.DefaultSelector()
    reading, _ = ends
    made.register(reading, 1, held)
    return made

def a_timeout(held):
    made = aio.Timeout(None)
    made._when = held
    return made

def with_loop(made):
    def make(held):
        target = made()
        target._loop = held
        return target
    return make

def make_reader():
    return aio.StreamReader(loop=loop)

def make_protocol():
    return aio.StreamReaderProtocol(make_reader(), loop=loop)

def make_writer():
    return aio.StreamWriter(Transport(), make_protocol(), None, loop)

KINDS = [a_loop, a_future, a_future_that_calls, a_future_of_a_subclass, a_selector, a_timeout]
KINDS += map(with_loop, [aio.Lock, aio.Event, aio.Condition, aio.Semaphore, aio.Queue, make_reader, make_protocol])
KINDS += [with_loop(make_writer), with_loop(aio.TaskGroup)]

def make(kind):
    held = Held()
    target = KINDS[kind](held)
    target.itself = [target]
    target.finalized = Finalized(target, held)

gc.disable()
make(%d)
gc.collect()
gc.collect()
assert found and found[0]() is None
assert used or sys.version_info >= (3, 14) or sysconfig.get_config_var("Py_GIL_DISABLED")
asyncio.set_event_loop(None)
loop.close()
for end in ends:
    end.close()
"""


@pytest.mark.only("c", reason="it is about the compiled classes' tp_clear")
@pytest.mark.parametrize("kind", range(15))
def test_attributes_of_an_object_that_is_being_cleared(impl, kind):
    impl.run_script(PROGRAM % kind)
