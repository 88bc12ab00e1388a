"""asyncio's functions that make streams, made to use the compiled classes."""

from asyncio import streams
from types import FunctionType
from typing import Any


class _Globals(dict[str, Any]):
    """The globals of asyncio.streams, with the compiled classes in front. The interpreter asks a subclass of dict for
    what is missing, so that a program's changes to the module count."""

    def __missing__(self, name: str) -> Any:
        return vars(streams)[name]


# The interpreter reads these two when it makes a function, and asks nothing.
_globals = _Globals({name: vars(streams)[name] for name in ("__name__", "__builtins__")})


def set_compiled_streams(reader: type, protocol: type, writer: type) -> None:
    """Give the classes that the functions of with_compiled_streams() use."""
    _globals.update(StreamReader=reader, StreamReaderProtocol=protocol, StreamWriter=writer)


def with_compiled_streams(own: FunctionType) -> FunctionType:
    """A function like `own`, one of asyncio.streams, which finds the compiled classes under their names."""
    made = FunctionType(own.__code__, _globals, own.__name__, own.__defaults__, own.__closure__)
    made.__qualname__ = own.__qualname__
    made.__doc__ = own.__doc__
    made.__kwdefaults__ = own.__kwdefaults__
    made.__annotations__ = own.__annotations__
    return made


_OwnStreamReader = streams.StreamReader
_own_writer_init: Any = streams.StreamWriter.__init__


def accept_own_readers() -> None:
    """Have StreamWriter's constructor accept readers of asyncio's own class where the compiled one stands in its place.

    It asserts that a reader is a `StreamReader`, and a program may have imported that name before. The function gets
    other code, because a change of the class would end the compiled class's short cuts."""
    code = _own_writer_init.__code__
    names = ["_OwnStreamReader" if name == "StreamReader" else name for name in code.co_names]
    vars(streams)["_OwnStreamReader"] = _OwnStreamReader
    _own_writer_init.__code__ = code.replace(co_names=tuple(names))
