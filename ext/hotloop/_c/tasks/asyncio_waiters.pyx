"""Which task goes on after one of asyncio's own callbacks, for tools that show which task waits for which.

asyncio's TaskGroup and gather() wait by callbacks, from which such a tool could not tell (Python 3.14 and later).
"""

from cpython.object cimport PyObject

import asyncio
import sys

cdef extern from "Python.h":
    bint PyMethod_Check(object) noexcept
    PyObject *PyMethod_GET_SELF(object) noexcept
    bint PyFunction_Check(object) noexcept
    PyObject *PyFunction_GET_CODE(object) noexcept
    PyObject *PyFunction_GET_DEFAULTS(object) noexcept

# What those callbacks consist of.
cdef object AsyncioTaskGroup = None
cdef object asyncio_gather_code = None
if sys.version_info >= (3, 14):
    from asyncio.taskgroups import TaskGroup as AsyncioTaskGroup

    from hotloop._asyncio.gather_callback import gather_callback
    asyncio_gather_callback = gather_callback(asyncio.tasks.gather)
    if asyncio_gather_callback is not None and asyncio_gather_callback.takes_caller:
        asyncio_gather_code = asyncio_gather_callback.code


cdef object waiting_behind(object callback):
    """The task, or what stands in its place; None: none is known."""
    cdef object owner
    cdef PyObject *defaults
    if PyMethod_Check(callback):
        owner = <object>PyMethod_GET_SELF(callback)
        return getattr(owner, "_parent_task", None) if type(owner) is AsyncioTaskGroup else None
    if PyFunction_Check(callback) and PyFunction_GET_CODE(callback) == <PyObject *>asyncio_gather_code:
        defaults = PyFunction_GET_DEFAULTS(callback)
        return (<tuple>defaults)[0] if defaults != NULL and len(<tuple>defaults) == 1 else None
    return None
