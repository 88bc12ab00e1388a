"""Compiled functions and methods: to every tool they are asyncio's own functions, also for wrong arguments."""

import asyncio
import copy
import functools
import inspect
import pickle
import pydoc
import types
import typing
import warnings
import weakref
from unittest import mock

import pytest

import hotloop
import hotloop.asyncio

pytestmark = pytest.mark.only("c", reason="the subject is compiled")

NAMES = hotloop.compiled_asyncio().names


def functions():
    """(name, asyncio's own function, the compiled one), for functions and for the methods of the compiled classes."""
    for name in NAMES:
        own, compiled = getattr(asyncio, name), getattr(hotloop.asyncio, name)
        if is_compiled(compiled):
            yield name, own, compiled
        elif isinstance(own, type):
            for attribute, value in vars(compiled).items():
                if is_compiled(value):
                    yield f"{name}.{attribute}", inspect.getattr_static(own, attribute), value


def is_marked_as_coroutine(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.14 on
        return asyncio.iscoroutinefunction(function)


def is_compiled(value):
    return type(value).__name__ == "CompiledFunction"


FUNCTIONS = list(functions())
each_function = pytest.mark.parametrize(
    ("own", "compiled"), [pytest.param(*rest, id=name) for name, *rest in FUNCTIONS]
)


def test_there_are_some():
    assert {"Queue.get", "Queue.__init__", "Event.set"} <= {name for name, _, _ in FUNCTIONS}


@each_function
def test_description(impl, own, compiled):
    for attribute in (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__defaults__",
        "__kwdefaults__",
        "__code__",
    ):
        assert getattr(compiled, attribute) == getattr(own, attribute), attribute
    assert compiled.__annotations__ == own.__annotations__
    assert compiled.__globals__ is own.__globals__
    assert repr(compiled) == repr(own)
    assert inspect.signature(compiled) == inspect.signature(own)
    assert inspect.getfullargspec(compiled) == inspect.getfullargspec(own)
    assert typing.get_type_hints(compiled) == typing.get_type_hints(own)
    assert inspect.getsource(compiled) == inspect.getsource(own)
    assert inspect.getsourcefile(compiled) == inspect.getsourcefile(own)
    if own.__doc__:  # otherwise inspect looks for the function by its name, and for what it overrides
        assert inspect.getdoc(compiled) == inspect.getdoc(own)
        assert pydoc.render_doc(compiled) == pydoc.render_doc(own)


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(getattr(asyncio, name), type)])
def test_source_of_a_class(impl, name):
    own, compiled = getattr(asyncio, name), getattr(hotloop.asyncio, name)
    assert inspect.getsource(compiled) == inspect.getsource(own)
    assert inspect.getsourcefile(compiled) == inspect.getsourcefile(own)


@each_function
def test_kind(impl, own, compiled):
    assert is_marked_as_coroutine(compiled) == is_marked_as_coroutine(own)
    for question in (
        inspect.iscoroutinefunction,
        inspect.isfunction,
        inspect.isroutine,
        inspect.ismethod,
        inspect.isbuiltin,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        callable,
    ):
        assert question(compiled) == question(own), question
    assert isinstance(compiled, types.FunctionType) and compiled.__class__ is types.FunctionType
    assert hash(compiled) and compiled == compiled and compiled != own


@each_function
def test_copies(impl, own, compiled):
    assert copy.copy(compiled) is copy.deepcopy(compiled) is compiled
    if own.__qualname__.partition(".")[0] not in NAMES:
        return  # it is pickled as a method of the base class that has it, which is asyncio's
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(compiled, protocol)) is compiled


@each_function
def test_wraps(impl, own, compiled):
    @functools.wraps(compiled)
    def wrapper(*args, **kwargs):
        return compiled(*args, **kwargs)

    assert wrapper.__wrapped__ is compiled and wrapper.__name__ == own.__name__
    assert inspect.signature(wrapper) == inspect.signature(own)


@each_function
def test_specification_of_a_mock(impl, own, compiled):
    ours, theirs = mock.create_autospec(compiled), mock.create_autospec(own)
    assert is_marked_as_coroutine(ours) == is_marked_as_coroutine(theirs)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert type(ours) is type(theirs)


@each_function
def test_wrong_arguments(impl, own, compiled):
    """asyncio's own function raises the error, so its text is asyncio's."""

    def complaint(function, *args, **kwargs):
        with pytest.raises(TypeError) as caught:
            function(*args, **kwargs)
        return str(caught.value)

    kinds = [parameter.kind for parameter in inspect.signature(own).parameters.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        pytest.skip("it passes all keywords on when it is awaited")
    for arguments, keywords in [((), {"nonsense": 1}), ((object(),) * 3, {"nonsense": 1, "other": 2})]:
        assert complaint(compiled, *arguments, **keywords) == complaint(own, *arguments, **keywords)


def test_method_on_an_object_of_another_class(impl):
    def complaint(function):
        with pytest.raises(AttributeError) as caught:
            function(object())
        return str(caught.value)

    assert complaint(hotloop.asyncio.Queue.qsize) == complaint(asyncio.Queue.qsize)


def test_methods(impl):
    queue = hotloop.asyncio.Queue()
    bound = queue.put_nowait
    assert inspect.ismethod(bound) and bound.__self__ is queue and bound.__func__ is hotloop.asyncio.Queue.put_nowait
    assert isinstance(bound, types.MethodType) and type(bound) is types.MethodType
    assert bound == queue.put_nowait and bound != hotloop.asyncio.Queue().put_nowait
    assert bound.__name__ == "put_nowait" and bound.__doc__ == asyncio.Queue.put_nowait.__doc__
    assert str(inspect.signature(bound)) == "(item)"
    assert repr(bound) == f"<bound method Queue.put_nowait of {queue!r}>"
    bound(1)
    queue.put_nowait(item=2)
    functools.partial(hotloop.asyncio.Queue.put_nowait, queue)(3)
    assert [queue.get_nowait() for _ in range(3)] == [1, 2, 3]
    assert inspect.iscoroutinefunction(queue.get) and is_marked_as_coroutine(queue.put)
    reference = weakref.WeakMethod(bound)
    assert reference() == bound


def test_attributes_of_a_function(impl):
    """They can be set and deleted, and do not reach asyncio's own function."""
    function, own = hotloop.asyncio.Queue.full, asyncio.Queue.full
    function.mine = 1
    assert function.mine == 1 and function.__dict__ == {"mine": 1} and not hasattr(own, "mine")
    del function.mine
    with pytest.raises(AttributeError, match="'function' object has no attribute 'mine'"):
        function.mine  # noqa: B018
    assert weakref.ref(function)() is function


def test_a_mocked_object(impl):
    """create_autospec() of a class and of an object, as with asyncio's."""
    ours, theirs = mock.create_autospec(hotloop.asyncio.Queue), mock.create_autospec(asyncio.Queue)
    assert isinstance(ours(), asyncio.Queue)
    assert is_marked_as_coroutine(ours().get) == is_marked_as_coroutine(theirs().get)
    with pytest.raises(TypeError) as complaint:
        ours().put_nowait()
    with pytest.raises(TypeError) as expected:
        theirs().put_nowait()
    assert str(complaint.value) == str(expected.value)


@pytest.mark.parametrize("name", NAMES)
def test_documents(impl, name):
    assert pydoc.describe(getattr(hotloop.asyncio, name)) == pydoc.describe(getattr(asyncio, name))
