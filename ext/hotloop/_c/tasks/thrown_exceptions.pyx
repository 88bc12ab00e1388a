"""Exceptions that are thrown into coroutines: the arguments of throw(), and StopIteration, which cannot be thrown."""

import sys
import types
import warnings

cdef bint warns_of_throw = sys.version_info >= (3, 12)
cdef bint explains_stop_iteration = sys.version_info >= (3, 13)
# Whether a coroutine that runs or has ended refuses throw() before it looks at the arguments.
refuses_before_it_looks = sys.version_info >= (3, 15)


cdef int warn_of_signature() except -1:
    """throw() was called with more than one argument."""
    if warns_of_throw:
        warnings.warn(
            "the (type, exc, tb) signature of throw() is deprecated, use the single-arg signature instead.",
            DeprecationWarning,
            stacklevel=1,
        )
    return 0


cdef object exception_to_throw(object kind, object value, object traceback):
    """The exception that throw(kind, value, traceback) is to raise. Raises the errors of a coroutine's throw()."""
    if value is not None or traceback is not None:
        warn_of_signature()
    if traceback is not None and not isinstance(traceback, types.TracebackType):
        raise TypeError("throw() third argument must be a traceback")
    if is_exception_class(kind):
        if not is_exception(value) or not isinstance(value, kind):
            value = kind() if value is None else kind(*value) if isinstance(value, tuple) else kind(value)
            if not is_exception(value):
                # The class has a __new__() of its own.
                raise TypeError(
                    f"calling {kind!r} should have returned an instance of BaseException, not {type(value).__name__}"
                )
    elif is_exception(kind):
        if value is not None:
            raise TypeError("instance exception may not have a separate value")
        value = kind
    else:
        wanted = "exceptions must be classes deriving BaseException or instances of such a class"
        raise TypeError(f"{wanted}, not {type(kind).__name__}")
    if traceback is not None:
        set_traceback(value, traceback)
    return value


cdef object replace_stop_iteration(object error):
    """`error` itself; a RuntimeError in place of a StopIteration, which cannot be raised into a coroutine. Up to 3.12
    raises TypeError instead."""
    cdef object text = "StopIteration interacts badly with generators and cannot be raised into a Future"
    if explains_stop_iteration and exception_matches(error, StopIteration):
        replacement = RuntimeError(text)
        replacement.__cause__ = error
        replacement.__context__ = error
        return replacement
    if type(error) is StopIteration:
        raise TypeError(text)
    return error
