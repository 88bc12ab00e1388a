"""Compiled classes: a short cut is not taken where the program has changed a class, or an object."""

import abc
import asyncio
import copy
import inspect
import pickle
import typing
import weakref
from unittest import mock

import pytest

import hotloop
import hotloop.asyncio

pytestmark = pytest.mark.only("c", reason="the subject is compiled")

CLASSES = [name for name in hotloop.compiled_asyncio().names if isinstance(getattr(asyncio, name), type)]


def used(queue):
    """What a queue gives after it was used in a few ways."""
    queue.put_nowait(1)
    queue.put_nowait(2)
    return queue.qsize(), queue.get_nowait(), queue.full(), queue.empty(), queue.get_nowait()


PATCHES = {
    "qsize": lambda self: 17,
    "_put": lambda self, item: self._queue.append(-item),
    "_get": lambda self: 18,
    "empty": lambda self: False,
    "full": lambda self: False,
    "put_nowait": lambda self, item: self._queue.append(item * 100),
}


@pytest.mark.parametrize("name", PATCHES)
@pytest.mark.parametrize("where", ["the class", "the object", "a subclass"])
def test_patched_method(impl, name, where):
    def run(module):
        queue = module.Queue()
        if where == "a subclass":
            return used(type("Own", (module.Queue,), {name: PATCHES[name]})())
        patched = queue if where == "the object" else module.Queue
        method = PATCHES[name].__get__(queue) if patched is queue else PATCHES[name]
        with mock.patch.object(patched, name, method):
            result = used(queue)
        assert used(module.Queue()) == (2, 1, False, False, 2)
        return result

    assert run(hotloop.asyncio) == run(asyncio)


def test_patched_while_a_coroutine_waits(loop, aio):
    """Between the call and the first step, and between the wait and its end."""

    async def main():
        queue = aio.Queue()
        queue.put_nowait(1)
        coroutine = queue.get()
        with mock.patch.object(aio.Queue, "get_nowait", lambda self: "patched"):
            assert await coroutine == "patched"
        queue = aio.Queue()
        task = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.put_nowait(1)
        with mock.patch.object(queue, "get_nowait", lambda: "patched", create=True):
            assert await task == "patched"

    loop.run_until_complete(main())


def test_patched_base_class(impl):
    """A change of asyncio's class reaches the compiled class, which derives from it, and is undone there as well."""
    with mock.patch.object(asyncio.Queue, "_get", lambda self: "patched"):
        queue = hotloop.asyncio.Queue()
        queue.put_nowait(1)
        assert queue.get_nowait() == "patched"
    assert queue.get_nowait() == 1
    with mock.patch.object(asyncio.Queue, "added", 1, create=True):
        assert hotloop.asyncio.Queue.added == hotloop.asyncio.Queue().added == 1
    assert not hasattr(hotloop.asyncio.Queue, "added")


def test_looking_at_a_class_does_not_change_it(impl):
    """copy and pickle leave `__slotnames__` in a class, reading its annotations leaves these: short cuts go on."""
    impl.run_script(
        """if True:
        import copy, pickle, sys
        import hotloop.asyncio

        def runs_pythons_code(queue):
            names = []
            sys.setprofile(lambda frame, event, argument: names.append(frame.f_code.co_name))
            queue.qsize()
            sys.setprofile(None)
            return "qsize" in names

        queue = hotloop.asyncio.Queue()
        assert not runs_pythons_code(queue)
        for cls in (asyncio.Queue, hotloop.asyncio.Queue):
            for look in (lambda: copy.copy(cls()), lambda: pickle.dumps(cls()), lambda: cls.__annotations__):
                try:
                    look()
                except AttributeError:
                    pass
                assert not runs_pythons_code(queue)
        asyncio.Queue.unheard_of = 1
        assert runs_pythons_code(queue)
        del asyncio.Queue.unheard_of
        assert not runs_pythons_code(queue)
        """
    )


@pytest.mark.parametrize("name", CLASSES)
def test_the_class_is_described_as_asyncios(impl, name):
    own, compiled = getattr(asyncio, name), getattr(hotloop.asyncio, name)
    assert issubclass(compiled, own) and compiled is not own
    assert type(compiled) is type(own)
    assert (repr(compiled), compiled.__doc__) == (repr(own), own.__doc__)
    assert inspect.signature(compiled) == inspect.signature(own)
    assert {each for each in dir(own) if not each.startswith("__")} <= set(dir(compiled))
    if hasattr(own, "__class_getitem__"):
        assert repr(compiled[int]) == repr(own[int])
        assert typing.get_origin(compiled[int]) is compiled


def test_attributes_that_asyncio_has(impl):
    for name in CLASSES:
        if name in ("Timeout", "StreamReader", "StreamReaderProtocol", "StreamWriter"):
            continue  # they need a loop or a transport
        own, compiled = getattr(asyncio, name)(), getattr(hotloop.asyncio, name)()
        for attribute, value in vars(own).items():
            found = getattr(compiled, attribute)
            assert type(found).__name__ == type(value).__name__, (name, attribute)
            setattr(compiled, attribute, found)
            delattr(compiled, attribute)
            with pytest.raises(AttributeError):
                getattr(compiled, attribute)


def test_subclasses_with_other_bases(impl):
    """The metaclass is `type`, so that any other fits."""
    T = typing.TypeVar("T")

    class Abstract(hotloop.asyncio.Queue, abc.ABC):
        pass

    class Generic(hotloop.asyncio.Queue, typing.Generic[T]):
        pass

    class Slotted(hotloop.asyncio.Queue):
        __slots__ = ("mine",)

    for cls in (Abstract, Generic, Slotted):
        queue = cls(1)
        queue.mine = 1
        queue.put_nowait(1)
        assert queue.full() and queue.get_nowait() == 1 and isinstance(queue, asyncio.Queue)


class Own(hotloop.asyncio.Queue):
    """For pickle, at the top of its module."""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("cls", [hotloop.asyncio.Queue, Own, hotloop.asyncio.PriorityQueue, hotloop.asyncio.LifoQueue])
def test_pickle(impl, cls, protocol):
    queue = cls(5)
    queue.put_nowait(2)
    queue.put_nowait(1)
    queue.mine = "kept"
    again = pickle.loads(pickle.dumps(queue, protocol))
    assert type(again) is cls and again.mine == "kept" and again.maxsize == 5
    assert [again.get_nowait() for _ in range(2)] == [queue.get_nowait() for _ in range(2)]
    assert again._unfinished_tasks == 2 and not again._finished.is_set()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copy(impl, aio, copied):
    queue = aio.Queue(3)
    queue.put_nowait([1])
    again = copied(queue)
    assert type(again) is type(queue) and again._maxsize == 3
    assert (again._queue is queue._queue) == (copied is copy.copy)
    assert again._queue == queue._queue


def test_a_state_of_asyncios_own_object(impl):
    """A pickle made in a process with asyncio's own classes has such a state."""
    own = asyncio.Queue(3)
    own.put_nowait(1)
    queue = hotloop.asyncio.Queue()
    queue.__setstate__(vars(own))
    assert queue.maxsize == 3 and queue.get_nowait() == 1 and vars(queue) == {}


def test_weak_references_and_attributes(impl, aio):
    queue = aio.Queue()
    queue.mine = 1
    assert vars(queue)["mine"] == 1
    reference = weakref.ref(queue)
    assert reference() is queue
    del queue
    assert reference() is None


def test_copies_have_the_slots_of_a_subclass(impl):
    def attributes_of_copies(module):
        class OneSlot(module.Lock):
            __slots__ = "only"

        class Private(module.Lock):
            __slots__ = ("__hidden",)

            def __init__(self):
                super().__init__()
                self.__hidden = 2

            def hidden(self):
                return self.__hidden

        made = OneSlot()
        made.only = 1
        return [(copied(made).only, copied(Private()).hidden()) for copied in (copy.copy, copy.deepcopy)]

    assert attributes_of_copies(hotloop.asyncio) == attributes_of_copies(asyncio)


@pytest.mark.parametrize("name", ["Queue", "LifoQueue", "Lock", "Event", "Condition", "BoundedSemaphore", "TaskGroup"])
def test_attributes_are_missing_before_the_constructor(impl, name):
    fields = ["_loop", *vars(getattr(asyncio, name)())]

    def those_of(module):
        class Unmade(getattr(module, name)):
            def __init__(self):
                pass

        return [field for field in fields if hasattr(Unmade(), field)]

    assert those_of(hotloop.asyncio) == those_of(asyncio)
