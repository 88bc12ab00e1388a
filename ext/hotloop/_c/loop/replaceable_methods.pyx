"""ReplaceableMethods: the methods of a loop that the compiled code calls itself, and that a program may replace.

A test clock takes the place of time(), a patched call_soon() or _run_once() that of asyncio's, on the class or on the
loop object. The compiled code asks here whether a method is still the original before it takes a short cut. A test
clock may also set how early timers fire, _clock_resolution, or take the place of time.monotonic(), which time() calls.
"""

cimport cython
from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetItem
from cpython.object cimport PyObject, PyObject_GenericSetAttr, PyTypeObject
from libc.math cimport INFINITY, nextafter

from hotloop._c.loop.state cimport LoopState
from hotloop._c.runtime.instance_dict cimport (
    instance_dict_clear,
    instance_dict_get,
    instance_dict_install,
    instance_dict_is_absent,
    instance_dict_set,
)
from hotloop._c.runtime.locking cimport publish_size, published_size, store_release_bint, store_release_version
from hotloop._c.scheduler.ready_queue cimport NO_VERSION, type_version_of

import time
from types import BuiltinFunctionType

from hotloop._asyncio.own_create_task import create_task_is_asyncios

cdef extern from "Python.h":
    int PyObject_GenericDelAttr "PyObject_GenericSetAttr" (object, object, PyObject *) except -1

cdef extern from "system/clock.h":
    double clock_seconds()

cdef extern from *:
    """
    #define INSTANCE_DICT_OWNER struct __pyx_obj_7hotloop_2_c_4loop_19replaceable_methods_ReplaceableMethods

    /* Whether the attribute of this name in the object's class is `attribute`. */
    static inline int is_in_class(PyObject *object, PyObject *name, PyObject *attribute)
    {
        return _PyType_Lookup(Py_TYPE(object), name) == attribute;
    }
    """
    bint is_in_class(object, object name, object attribute) noexcept

# LoopCore's own methods, by name: see declare_originals().
cdef dict ORIGINALS = {}
# LoopCore's descriptors of the settings that the loop's __dict__ shows, as asyncio's does: there mock.patch.object()
# looks for what it has to put back. All are set by name only.
cdef dict SHOWN = {}
# What asyncio sets _clock_resolution to.
cdef double RESOLUTION = time.get_clock_info("monotonic").resolution
cdef dict time_names = time.__dict__
cdef object own_monotonic = None        # time.monotonic(), from the first time that it is not the program's


cdef class ReplaceableMethods(LoopState):
    """What of a loop's methods is still the original."""

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        self.replaced_methods = set()

    @property
    def __dict__(self):
        attributes = instance_dict_get(self)
        for name, setting in SHOWN.items():
            if is_in_class(self, name, setting):
                PyDict_SetItem(attributes, name, setting.__get__(self))
        return attributes

    @__dict__.setter
    def __dict__(self, attributes):
        instance_dict_set(self, attributes)

    def __setattr__(self, name, value):
        PyObject_GenericSetAttr(self, name, value)
        if name in SHOWN and not instance_dict_is_absent(self) and is_in_class(self, name, SHOWN[name]):
            # The dictionary keeps nothing that was replaced.
            PyDict_SetItem(instance_dict_get(self), name, value)
        if name in ORIGINALS:
            self.replaced_methods.add(name)
            self.count_replacement()
            self.find_overrides()
        elif name == "_clock_resolution":
            self.resolution = value if isinstance(value, (int, float)) else 0.0

    def __delattr__(self, name):
        delete_attribute(self, name)
        if name in ORIGINALS:
            self.replaced_methods.discard(name)
            self.count_replacement()
            self.find_overrides()

    cdef int count_replacement(self) except -1:
        with cython.critical_section(self):
            publish_size(&self.replacements, self.replacements + 1)
        return 0

    cdef int find_overrides(self) except -1:
        """Find the methods that a program has replaced: a test clock for time(), a patched call_soon() or _run_once().

        The version tag of a class changes when the class or one of its bases is changed, so checking again costs one
        comparison. A class that was changed too often has no tag any more (0), and is searched each time.

        A method may be replaced during the search, without the GIL by another thread. The tag is from before it, so
        that a class that was changed since is searched again, and so is a loop on which something was set."""
        cdef object cls = type(self), time_replacement
        cdef Py_ssize_t known = published_size(&self.replacements)
        cdef unsigned int version
        cdef set replaced
        cdef bint creation_replaced
        # The interpreter assigns a tag at a lookup.
        getattr(cls, "time")
        version = type_version_of(self)
        replaced = {name for name, original in ORIGINALS.items() if getattr(cls, name) is not original}
        replaced |= self.replaced_methods
        time_replacement = self.time if "time" in replaced else None
        creation_replaced = not create_task_is_asyncios()
        with cython.critical_section(self):
            # The earlier one is dropped on return.
            self.time_replacement, time_replacement = time_replacement, self.time_replacement
            self.creation_replaced = creation_replaced
            self.note_overrides(replaced, version if known == self.replacements else 0)
        return 0

    cdef int note_overrides(self, set replaced, unsigned int version) except -1:
        store_release_bint(&self.run_once_is_original, "_run_once" not in replaced)
        self.call_soon_is_original = "call_soon" not in replaced
        self.call_at_is_original = "call_at" not in replaced
        self.create_task_is_original = "create_task" not in replaced
        self.process_events_is_original = "_process_events" not in replaced
        self.run_forever_halves_are_original = replaced.isdisjoint(("_run_forever_setup", "_run_forever_cleanup"))
        store_release_version(&self.type_version, version or NO_VERSION)
        self.update_short_cuts()
        return 0

    cdef bint creation_is_replaced(self) except -1:
        """Whether a program has replaced BaseEventLoop.create_task(), which makes all tasks then."""
        if self.type_version != type_version_of(self):
            self.find_overrides()
        return self.creation_replaced

    cdef double current_time(self, bint *patched) except? -1:
        """The loop's time, and whether a program has replaced the clock."""
        if self.type_version != type_version_of(self):
            self.find_overrides()
        patched[0] = clock_is_patched()
        if self.time_replacement is not None:
            # Another thread may drop it.
            with cython.critical_section(self):
                replacement = self.time_replacement
            if replacement is not None:
                return replacement()
        return time.monotonic() if patched[0] else clock_seconds()

    cdef double due_until(self, double now, bint patched) noexcept:
        """The latest deadline of the timers that are due at `now` and `patched` of current_time(). Never early by the
        system's clock, unless the program has set how early. By a clock of the program's as early as under asyncio:
        one that adds up the waits of the loop misses deadlines by errors of rounding."""
        if self.resolution <= 0:
            return now
        if self.resolution == RESOLUTION and not patched and self.time_replacement is None:
            return now
        return max(now, nextafter(now + self.resolution, -INFINITY))


instance_dict_install(<PyTypeObject *>ReplaceableMethods)


cdef bint clock_is_patched() except -1:
    """Whether time.monotonic() is the program's, as freezegun's is."""
    # Only compared: another thread may replace it, and free it, at any time.
    cdef PyObject *found = PyDict_GetItemWithError(time_names, "monotonic")
    # The program's may be None, too.
    if own_monotonic is not None and found == <PyObject *>own_monotonic:
        return False
    return own_monotonic is not None or not find_own_monotonic()


cdef bint find_own_monotonic() except -1:
    global own_monotonic
    # Not time_names.get(), for which Cython borrows the value, too.
    cdef object found = getattr(time, "monotonic", None)
    if not is_the_clock(found):
        return False
    own_monotonic = found
    return True


cdef bint is_the_clock(object function) except -1:
    return type(function) is BuiltinFunctionType and function.__self__ is time and function.__name__ == "monotonic"


cdef int declare_originals(type core) except -1:
    """Tell which class has the original methods and settings."""
    for name in (
        *("time", "call_soon", "call_at", "create_task", "_process_events"),
        *("_run_once", "_run_forever_setup", "_run_forever_cleanup"),
    ):
        ORIGINALS[name] = getattr(core, name)
    for name in ("_clock_resolution", "_debug", "slow_callback_duration", "_task_factory", "_selector"):
        SHOWN[name] = getattr(core, name)
    return 0


cdef int delete_attribute(object owner, object name) except -1:
    return PyObject_GenericDelAttr(owner, name, NULL)
