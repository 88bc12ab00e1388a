"""The __aenter__() and __aexit__() of one object: to code that looks them up they are methods as any others."""

import asyncio
import copy
import functools
import gc
import inspect
import operator
import pickle
import types
import weakref

import pytest
from support.comparing import outcome

import hotloop.asyncio

pytestmark = pytest.mark.only("c", "asyncio", reason="the subject is compiled, and has to work on any loop")


@pytest.fixture(params=["Lock", "Semaphore", "Condition", "TaskGroup"])
def owner(aio, request):
    return getattr(aio, request.param)()


@pytest.fixture(params=["__aenter__", "__aexit__"])
def name(request):
    return request.param


def test_kind(owner, name):
    method = getattr(owner, name)
    assert isinstance(method, types.MethodType) and method.__class__ is types.MethodType
    for question in (inspect.ismethod, inspect.isroutine, inspect.iscoroutinefunction, callable):
        assert question(method), question
    assert not inspect.isfunction(method) and not inspect.isbuiltin(method)
    assert str(inspect.signature(method)) == {"__aenter__": "()"}.get(name, str(inspect.signature(method)))
    assert inspect.unwrap(method) is not None and inspect.getsource(method)


def test_attributes(owner, name):
    method = getattr(owner, name)
    assert method.__self__ is owner and method.__func__ is inspect.getattr_static(type(owner), name)
    assert (method.__name__, method.__doc__) == (name, method.__func__.__doc__)
    assert method.__qualname__ == method.__func__.__qualname__ and method.__code__ is method.__func__.__code__
    assert repr(method) == f"<bound method {method.__qualname__} of {owner!r}>"
    assert "__self__" in dir(method)
    with pytest.raises(AttributeError):
        method.other  # noqa: B018
    with pytest.raises(AttributeError):
        method.other = 1
    with pytest.raises(AttributeError):
        del method.__self__


def test_comparison(aio, owner, name):
    method, other = getattr(owner, name), getattr(type(owner)(), name)
    same = types.MethodType(method.__func__, owner)
    assert method == getattr(owner, name) == same == method and hash(method) == hash(same)
    assert not method != same and not same != method  # noqa: SIM202 - asks __ne__
    assert method != other and other != method and method != types.MethodType(other.__func__, other.__self__)
    assert method != name and name != method
    assert len({method, same, other}) == 2
    for operation in (operator.lt, operator.ge):
        with pytest.raises(TypeError):
            operation(method, same)


def test_copies(aio):
    owner = aio.Lock()
    method = owner.__aenter__
    for made in (copy.copy(method), copy.deepcopy(method)):
        assert isinstance(made, types.MethodType) and made.__func__ is method.__func__
    assert copy.copy(method).__self__ is owner and copy.deepcopy(method).__self__ is not owner
    if aio is asyncio:
        made = pickle.loads(pickle.dumps(method))
        assert made.__func__ is method.__func__ and made.__self__ is not owner


def test_weak_references(owner, name):
    gone = []
    method = getattr(owner, name)
    reference = weakref.ref(method, gone.append)
    assert reference() is method
    del method
    assert gone == [reference] and reference() is None
    assert weakref.WeakMethod(getattr(owner, name))() == getattr(owner, name)


def test_they_hold_the_object_no_longer_than_needed(aio, name):
    owner = type("Own", (aio.Lock,), {})()
    reference = weakref.ref(owner)
    methods = [getattr(owner, name) for _ in range(200)]
    owner.method = methods[0]
    del owner, methods[1:]
    assert methods[0].__self__ is reference()
    del methods
    gc.collect()
    assert reference() is None


def test_an_object_is_freed_with_its_last_method(aio, name):
    owner = aio.Lock()
    reference = weakref.ref(owner)
    method = getattr(owner, name)
    del owner
    assert reference() is not None
    del method
    assert reference() is None


def test_calls(aio, loop):
    async def use():
        lock = aio.Lock()
        enter, leave = lock.__aenter__, lock.__aexit__
        await enter()
        assert lock.locked()
        await leave(None, None, None)
        assert not lock.locked()
        await functools.partial(enter)()
        await leave(*[None] * 3)
        await types.MethodType(enter.__func__, lock)()
        await leave(exc_type=None, exc=None, tb=None)
        return lock.locked()

    assert loop.run_until_complete(use()) is False


@pytest.mark.parametrize("arguments", [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1] * 9])
def test_wrong_arguments(name, arguments):
    def answers(module):
        method = getattr(module.Lock(), name)
        found = [outcome(method, *arguments), outcome(functools.partial(method, wrong=1), *arguments)]
        return [value.close() if inspect.iscoroutine(value) else repr(value) for value in found]

    assert answers(hotloop.asyncio) == answers(asyncio)
