"""Subclasses of Future and Task: `__class__` is the subclass, and isinstance() takes their instances for asyncio's."""

import abc
import asyncio
import copy
import operator
import pickle

import pytest


async def nothing():
    pass


@pytest.fixture
def make(impl, loop):
    """Makes instances of subclasses of either class."""
    made = []

    class Base:
        limit = 3

        def by_class(self):
            return self.__class__.limit, self.__class__.__name__, operator.eq(self.__class__, type(self))

        def again(self):
            return self.__class__(*self.arguments(), loop=loop)

    class MyFuture(Base, impl.Future):
        def arguments(self):
            return ()

        def done(self):
            return super().done()

    class MyTask(Base, impl.Task):
        limit = 4

        def arguments(self):
            return (nothing(),)

        def done(self):
            return super().done()

    def make(kind):
        instance = MyFuture(loop=loop) if kind == "Future" else MyTask(nothing(), loop=loop)
        made.append(instance)
        return instance

    yield make
    for instance in made:
        instance.cancel()
        loop.run_until_complete(asyncio.wait([instance]))


KINDS = ("Future", "Task")


@pytest.mark.parametrize("kind", KINDS)
def test_self_class_is_the_subclass(impl, make, kind):
    instance = make(kind)
    cls = type(instance)
    assert instance.by_class() == (cls.limit, cls.__name__, True)
    assert cls == instance.__class__
    assert {cls: 1}[instance.__class__] == 1
    assert str(instance.__class__) == str(cls)
    assert issubclass(instance.__class__, getattr(asyncio, kind))
    assert isinstance(instance, instance.__class__)
    instance.__class__.limit = 5
    assert cls.limit == instance.limit == 5
    del instance.__class__.limit
    assert "limit" not in vars(cls)


@pytest.mark.parametrize("kind", KINDS)
def test_isinstance(impl, make, kind):
    instance = make(kind)
    assert isinstance(instance, getattr(asyncio, kind))
    assert isinstance(instance, asyncio.Future)
    assert isinstance(instance, getattr(impl, kind))
    assert isinstance(instance, type(instance))
    assert isinstance(instance, asyncio.Task) == (kind == "Task")
    assert asyncio.isfuture(instance)


@pytest.mark.parametrize("kind", KINDS)
def test_self_class_is_called(loop, make, kind):
    instance = make(kind)
    another = instance.again()
    assert type(another) is type(instance)
    assert another.done() is False
    another.cancel()
    loop.run_until_complete(asyncio.wait([another]))


@pytest.mark.parametrize("kind", KINDS)
def test_class_assignment(impl, loop, make, kind):
    instance = make(kind)

    class Narrower(type(instance)):
        limit = 9

    before = instance.__class__
    instance.__class__ = Narrower
    assert type(instance) is Narrower
    assert instance.by_class() == (9, "Narrower", True)
    assert isinstance(instance, getattr(asyncio, kind))
    instance.__class__ = before
    assert type(instance) is not Narrower
    for wrong in (int, object(), None):
        with pytest.raises(TypeError):
            instance.__class__ = wrong


@pytest.mark.parametrize("kind", KINDS)
def test_subclass_hooks_run_once(impl, loop, kind):
    """Asking for an object's class must not run the hooks of making a class."""
    made = []

    class Meta(type):
        def __init__(cls, *args, **keywords):
            super().__init__(*args)
            made.append(cls)

    class Registered(getattr(impl, kind), metaclass=Meta):
        def __init_subclass__(cls, *, key, **keywords):
            made.append(key)

    instance = Registered(loop=loop) if kind == "Future" else Registered(nothing(), loop=loop)
    assert instance.__class__ == Registered
    assert isinstance(instance, getattr(asyncio, kind))
    assert made == [Registered]
    instance.cancel()
    loop.run_until_complete(asyncio.wait([instance]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_subclass_with_slots(impl, loop, kind):
    class Slotted(getattr(impl, kind)):
        __slots__ = ("extra",)

    instance = Slotted(loop=loop) if kind == "Future" else Slotted(nothing(), loop=loop)
    instance.extra = 1
    assert instance.__class__ == Slotted
    assert isinstance(instance, getattr(asyncio, kind))
    instance.cancel()
    loop.run_until_complete(asyncio.wait([instance]))


@pytest.mark.parametrize("kind", KINDS)
def test_they_cannot_be_copied_or_pickled(impl, loop, make, kind):
    exact = impl.Future(loop=loop) if kind == "Future" else impl.Task(nothing(), loop=loop)
    for instance in (make(kind), exact):
        for take in (copy.copy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot pickle"):
                take(instance)
    exact.cancel()
    loop.run_until_complete(asyncio.wait([exact]))


class PicklesByName(asyncio.Future):
    pass


def test_the_class_can_be_pickled(impl, loop, monkeypatch):
    cls = type("PicklesByName", (impl.Future,), {"__module__": __name__})
    monkeypatch.setitem(globals(), "PicklesByName", cls)
    instance = cls(loop=loop)
    assert pickle.loads(pickle.dumps(instance.__class__)) is cls
    assert copy.deepcopy(instance.__class__) == cls


def test_a_subclass_in_a_task_factory(impl, loop):
    class MyTask(impl.Task):
        limit = 3

        def go(self):
            return self.__class__.limit

    async def inner():
        return asyncio.current_task().go()

    async def main():
        return await asyncio.create_task(inner())

    loop.set_task_factory(lambda loop, coro, **keywords: MyTask(coro, loop=loop, **keywords))
    assert loop.run_until_complete(main()) == 3


def test_a_method_that_is_set_on_a_subclass_later(impl, loop):
    """A waiting task looks methods up on the class when the future is done, not when the wait began."""
    calls = []

    class MyFuture(impl.Future):
        pass

    async def main():
        return await future

    future = MyFuture(loop=loop)
    loop.run_until_complete(asyncio.sleep(0))
    MyFuture.add_done_callback = lambda self, fn, *, context=None: (
        calls.append("add"),
        impl.Future.add_done_callback(self, fn, context=context),
    )
    MyFuture.result = lambda self: (calls.append("result"), impl.Future.result(self))[1]
    task = loop.create_task(main())
    loop.call_later(0.001, future.set_result, 1)
    assert loop.run_until_complete(task) == 1
    assert calls[:2] == ["add", "result"]


def test_a_subclass_of_an_abstract_base_class(impl, loop):
    class Base(abc.ABC):  # noqa: B024 - its metaclass is what counts
        pass

    class Own(Base, impl.Future):
        pass

    class OwnTask(Base, impl.Task):
        pass

    async def nothing():
        pass

    future, task = Own(loop=loop), OwnTask(nothing(), loop=loop)
    assert isinstance(future, Base)
    assert isinstance(task, Base)
    assert issubclass(Own, Base)
    assert issubclass(OwnTask, Base)
    assert not isinstance(loop.create_future(), Base)
    loop.run_until_complete(task)
