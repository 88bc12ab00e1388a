"""Handle: a callback, its arguments and the context it runs in. Handles and contexts are recycled.

A handle that the program gives no context takes a cached one when it is made. Where none is cached, and in a call from
another thread, it acquires one when it runs: see context_cache.h.
"""

cimport cython
from cpython.contextvars cimport PyContext_CheckExact, PyContext_Enter, PyContext_Exit
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF

from hotloop._c.runtime.locking cimport (
    FREE_THREADED,
    PyThread_get_thread_ident,
    load_acquire_bint,
    object_section,
    section_enter,
    section_leave,
    store_release_bint,
)
from hotloop._c.runtime.python_api cimport Py_REFCNT
from hotloop._c.runtime.recycling cimport (
    COLLECTOR_WORDS,
    free_list,
    free_list_accepts,
    free_list_acquire,
    free_list_release,
    is_unshared_native,
    uncounted_install,
)
from hotloop._c.runtime.references cimport steal
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, Runnable, push, unwrap

import asyncio
import copyreg
import sys
import threading
import types
from asyncio import events, format_helpers

from hotloop._asyncio.classes import own_method

cdef extern from "runtime/vectorcall.h":
    object call_with_tuple(object callable, object args)

cdef extern from *:
    """
    /* What a burst of calls needs, for instance from another thread. A handle is 112 bytes. */
    #define FREE_LIST_CAPACITY 32768
    #include "runtime/recycling.h"
    """

cdef extern from "runtime/context_cache.h":
    int context_cache_install() except -1
    void context_cache_begin_run()
    void context_cache_end_run()
    PyObject *context_cache_template_of_current()
    object context_copy(object context)
    object context_copy_current()
    object context_cache_acquire()
    PyObject *context_cache_acquire_cached()
    object context_cache_acquire_copy(object context)
    PyObject *context_cache_acquire_for(PyObject *template)
    void context_cache_release(PyObject *context)
    void context_cache_release_of_callback(PyObject *context)

cdef object MethodDescriptorType = types.MethodDescriptorType
# Since 3.14 cancel() of a call_soon_threadsafe() handle waits for a callback that another thread is running.
cdef bint threadsafe_handles = hasattr(events, "_ThreadSafeHandle")
cdef free_list free_handles, free_threadsafe_handles


cdef int run_reporting(Runnable item, object loop) except -1:
    """Run an item. Its exceptions go to the loop's exception handler, except KeyboardInterrupt and SystemExit."""
    try:
        item.run()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        report_exception(loop, item, error)
    return 0


cdef int report_exception(object loop, Runnable item, object error) except -1:
    cdef object text
    cdef dict context
    cdef Handle handle
    if isinstance(item, Handle):
        handle = item
        text = callback_text(handle)
        context = {"message": f"Exception in callback {text}", "exception": error, "handle": item}
        with cython.critical_section(handle):
            source_traceback = handle.source_traceback
        if source_traceback:
            context["source_traceback"] = source_traceback
    else:
        # The message names the item, which says more than its method. asyncio would have a handle for it.
        item_handle = unwrap(item)
        text = repr(item_handle)
        if item_handle is item:
            item_handle = new_handle(item._run, (), loop, None)
        context = {"message": f"Exception in callback {text}", "exception": error, "handle": item_handle}
    loop.call_exception_handler(context)
    return 0


if sys.version_info >= (3, 13):
    # Arguments may hold secrets: since 3.13 they are shown in debug mode only.
    def format_callback(callback, args, loop):
        return format_helpers._format_callback_source(callback, args, debug=loop.get_debug())
else:
    def format_callback(callback, args, loop):
        return format_helpers._format_callback_source(callback, args)


cdef object callback_text(Handle handle):
    cdef object callback, args, loop
    cdef object_section section
    section_enter(&section, handle)
    callback = handle.callback
    args = handle.args
    loop = handle.loop
    section_leave(&section)
    return format_callback(callback, args, loop)


# The cache of contexts is this module's: each module that includes context_cache.h has another. The rest of the package
# uses it through these functions.

cdef object copy_context(object context):
    """A copy; an empty one of a context that the garbage collector has cleared. TypeError if it is no context."""
    return context_copy(context)


cdef object copy_current_context():
    return context_copy_current()


cdef object acquire_context():
    """A copy of the current context, or a cached one in its place, for one callback or task to run in."""
    return context_cache_acquire()


cdef void release_context(PyObject *context) noexcept:
    """To be called before the caller drops its reference to such a context: it is cached if that is the last one."""
    context_cache_release(context)


cdef void begin_caching_contexts() noexcept:
    """A loop begins to run in the current context."""
    context_cache_begin_run()


cdef void end_caching_contexts() noexcept:
    """The loop has stopped."""
    context_cache_end_run()


cdef inline Handle filled(Handle handle, object callback, tuple args, object loop, object context):
    handle.callback = callback
    handle.args = args
    handle.loop = loop
    handle.context = context
    return handle


cdef inline Handle take_handle():
    cdef PyObject *kept = free_list_acquire(&free_handles)
    return Handle.__new__(Handle) if kept == NULL else <Handle>steal(kept)


cdef Handle new_handle(object callback, tuple args, object loop, object context):
    """A Handle as call_soon() makes one: outside debug mode, and with the current context if none is given."""
    cdef Handle handle = take_handle()
    cdef PyObject *cached
    if context is not None:
        return filled(handle, callback, args, loop, context)
    cached = context_cache_acquire_cached()
    if cached != NULL:
        return filled(handle, callback, args, loop, steal(cached))
    return borrow_template(handle, callback, args, loop)


cdef Handle borrow_template(Handle handle, object callback, tuple args, object loop):
    """Complete a handle that acquires its context when it runs."""
    cdef PyObject *template = context_cache_template_of_current()
    filled(handle, callback, args, loop, context_copy_current() if template == NULL else <object>template)
    handle.context_shared = template != NULL
    return handle


cdef Handle new_threadsafe_handle(object callback, tuple args, object loop, object context):
    """A handle as call_soon_threadsafe() makes one, outside debug mode."""
    cdef PyObject *kept
    cdef Handle handle
    if threadsafe_handles:
        kept = free_list_acquire(&free_threadsafe_handles)
        handle = _ThreadSafeHandle.__new__(_ThreadSafeHandle) if kept == NULL else <Handle>steal(kept)
    else:
        handle = take_handle()
    if context is not None:
        return filled(handle, callback, args, loop, context)
    # If it had a cached context from here, each context would travel from one processor's cache to another's and back.
    return borrow_template(handle, callback, args, loop)


cdef int retire(PyObject *item) except -1:
    """Give up a reference to an item that has run. If it is the last one, the handle and its context are recycled."""
    cdef free_list *handles
    cdef object context
    if type(<object>item) is Handle:
        handles = &free_handles
    elif type(<object>item) is _ThreadSafeHandle:
        handles = &free_threadsafe_handles
    else:
        if is_unshared_native(item) and isinstance(<object>item, Handle):
            # A timer: only its memory is kept, and its context.
            context_cache_release_of_callback(<PyObject *>(<Handle>item).context)
        Py_DECREF(<object>item)
        return 0
    if (
        not free_list_accepts(handles, item)
        or (<Handle>item).source_traceback is not None
        or (<Handle>item).cancelled_repr is not None
    ):
        Py_DECREF(<object>item)
        return 0
    (<Handle>item).callback = None
    (<Handle>item).args = None
    (<Handle>item).loop = None
    (<Handle>item).was_cancelled = False
    context = (<Handle>item).context
    (<Handle>item).context = None
    (<Handle>item).context_shared = False
    context_cache_release_of_callback(<PyObject *>context)
    free_list_release(handles, item)
    return 0


cdef inline bint acquire_cached_context(Handle handle) noexcept:
    """Replace the template by a cached context to run in. False: none is cached, or the shared context is another."""
    cdef PyObject *cached = context_cache_acquire_for(<PyObject *>handle.context)
    if cached == NULL:
        return False
    handle.context = steal(cached)
    handle.context_shared = False
    return True


cdef class Handle(Runnable):
    """A callback with its arguments and its context, as call_soon() returns it. See asyncio.Handle."""

    def __init__(self, callback, args, loop, context=None):
        self.callback = callback
        self.args = tuple(args)
        self.loop = loop
        self.context = context_copy_current() if context is None else context
        if loop.get_debug():
            self.record_source_traceback()

    @property
    def __class__(self):
        return asyncio.Handle

    cdef int record_source_traceback(self) except -1:
        self.source_traceback = format_helpers.extract_stack(sys._getframe())
        return 0

    cdef int run(self) except -1:
        cdef object callback, args, context, _result
        cdef object_section section
        if self.context_shared and not acquire_cached_context(self) and not self.has_own_context():
            return 1
        # Hold the callback: while it runs, it or another thread may cancel this handle.
        section_enter(&section, self)
        if self.was_cancelled:
            section_leave(&section)
            return 1
        callback = self.callback
        args = self.args
        context = self.context
        section_leave(&section)
        if type(args) is not tuple:
            args = tuple(args)
        if type(callback) is MethodDescriptorType:
            callback = own_method(callback, args)
        if not PyContext_CheckExact(context):
            # asyncio's handles take any object with a run() method.
            context.run(callback, *args)
            return 0
        PyContext_Enter(context)
        try:
            # Dropped at the end of this method: as in asyncio, a destructor does not see the context's variables.
            _result = call_with_tuple(callback, args)
        finally:
            PyContext_Exit(context)
        return 0

    cdef int is_cancelled(self) except -1:
        return load_acquire_bint(&self.was_cancelled)

    cdef object own_context(self):
        """The context to run in, which is the handle's own from now on."""
        cdef object shared, own
        if self.context_shared and Py_REFCNT(<PyObject *>self.context) == 1:
            # All others have copied it or are gone.
            self.context_shared = False
        elif self.context_shared:
            shared = self.context
            own = context_cache_acquire_copy(shared)
            # Making it may have run the garbage collector, and with it code that has asked for the context.
            if self.context_shared:
                self.context_shared = False
                self.context = own
        # Another thread may set it.
        with cython.critical_section(self):
            return self.context

    cdef bint has_own_context(self) except -1:
        """own_context(), which may run the garbage collector, and with it code that cancels. False: there is no memory
        for it, and the handle is queued again. asyncio's has its context from the beginning, and is called anyway."""
        cdef object queue
        try:
            self.own_context()
        except MemoryError:
            queue = getattr(self.loop, "_ready", None)
            if not isinstance(queue, ReadyQueue):
                raise
            push(<ReadyQueue>queue, self)
        return not self.context_shared

    cdef int cancel_now(self) except -1:
        cdef object callback, args
        cdef object_section section
        section_enter(&section, self)
        if self.was_cancelled:
            section_leave(&section)
            return 0
        store_release_bint(&self.was_cancelled, True)
        section_leave(&section)
        if self.source_traceback is not None:
            # Made in debug mode: keep the repr(), because the callback is dropped below.
            text = repr(self)
            with cython.critical_section(self):
                self.cancelled_repr, text = text, self.cancelled_repr
        section_enter(&section, self)
        if FREE_THREADED:
            callback = self.callback
            args = self.args
        self.callback = None
        self.args = None
        section_leave(&section)
        if FREE_THREADED:
            # Outside the section, because dropping them may run finalizers.
            del callback, args
        return 0

    def cancel(self):
        """Make sure that the callback will not be called. Idempotent."""
        self.cancel_now()

    def cancelled(self):
        """True if cancel() was called."""
        return load_acquire_bint(&self.was_cancelled)

    def get_context(self):
        """The context that the callback runs in."""
        return self.own_context()

    def _run(self):
        with cython.critical_section(self):
            loop = self.loop
        run_reporting(self, loop)

    def _repr_info(self):
        info = [type(self).__name__]
        if self.was_cancelled:
            info.append("cancelled")
        if self._callback is not None:
            info.append(callback_text(self))
        with cython.critical_section(self):
            source_traceback = self.source_traceback
        if source_traceback:
            frame = source_traceback[len(source_traceback) - 1]
            info.append(f"created at {frame[0]}:{frame[1]}")
        return info

    def __repr__(self):
        with cython.critical_section(self):
            text = self.cancelled_repr
        if text is not None:
            return text
        return f"<{' '.join(self._repr_info())}>"

    # The attributes of asyncio.Handle, which programs read and may set.

    @property
    def _callback(self):
        with cython.critical_section(self):
            return self.callback

    @_callback.setter
    def _callback(self, callback):
        # The earlier one is dropped after the section, on return: its destructor may be the program's.
        with cython.critical_section(self):
            self.callback, callback = callback, self.callback

    @property
    def _args(self):
        with cython.critical_section(self):
            return self.args

    @_args.setter
    def _args(self, args):
        with cython.critical_section(self):
            self.args, args = args, self.args

    @property
    def _context(self):
        return self.own_context()

    @_context.setter
    def _context(self, context):
        # Stop sharing the other context first.
        self.own_context()
        with cython.critical_section(self):
            self.context, context = context, self.context

    @property
    def _cancelled(self):
        return bool(self.is_cancelled())

    @_cancelled.setter
    def _cancelled(self, value):
        cdef bint cancelled = bool(value)
        store_release_bint(&self.was_cancelled, cancelled)

    @property
    def _loop(self):
        with cython.critical_section(self):
            return self.loop

    @_loop.setter
    def _loop(self, loop):
        with cython.critical_section(self):
            self.loop, loop = loop, self.loop

    @property
    def _source_traceback(self):
        with cython.critical_section(self):
            return self.source_traceback

    @_source_traceback.setter
    def _source_traceback(self, traceback):
        with cython.critical_section(self):
            self.source_traceback, traceback = traceback, self.source_traceback

    @property
    def _repr(self):
        with cython.critical_section(self):
            return self.cancelled_repr

    @_repr.setter
    def _repr(self, text):
        with cython.critical_section(self):
            self.cancelled_repr, text = text, self.cancelled_repr

    def __getstate__(self):
        """The state that copy.copy() copies: asyncio's attributes, and those that a subclass adds."""
        names = [*copyreg._slotnames(self.__class__), *copyreg._slotnames(type(self))]
        state = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return getattr(self, "__dict__", None), state


cdef class _ThreadSafeHandle(Handle):
    """A Handle whose cancel() and cancelled(), called from another thread, wait while the callback runs."""
    cdef unsigned long runner   # the thread that is running the callback; 0: none
    cdef object finished        # a threading.Event that is set after the run; None: no thread waits for it

    @property
    def __class__(self):
        return events._ThreadSafeHandle

    cdef int run(self) except -1:
        cdef object finished
        cdef object_section section
        section_enter(&section, self)
        self.runner = PyThread_get_thread_ident()
        section_leave(&section)
        try:
            return Handle.run(self)
        finally:
            section_enter(&section, self)
            self.runner = 0
            if self.finished is None:
                section_leave(&section)
            else:
                finished = self.finished
                self.finished = None
                section_leave(&section)
                finished.set()

    cdef int wait_for_run(self) except -1:
        """Wait until no other thread is running the callback."""
        cdef object finished = None, made = None
        cdef unsigned long runner
        cdef object_section section
        while True:
            section_enter(&section, self)
            runner = self.runner
            if runner != 0:
                if self.finished is None:
                    self.finished = made
                finished = self.finished
            section_leave(&section)
            if runner == 0 or runner == PyThread_get_thread_ident():
                return 0
            if finished is None:
                made = threading.Event()
            else:
                finished.wait()

    def cancel(self):
        """Make sure that the callback will not be called, or has ended. Idempotent."""
        self.wait_for_run()
        self.cancel_now()
        if FREE_THREADED:
            # The callback may have begun just before cancel_now().
            self.wait_for_run()

    def cancelled(self):
        """True if cancel() was called."""
        self.wait_for_run()
        return load_acquire_bint(&self.was_cancelled)


context_cache_install()
if sys.getsizeof([]) - [].__sizeof__() == COLLECTOR_WORDS * sizeof(void *):
    uncounted_install(<PyTypeObject *>Handle)  # TimerHandle inherits it
    uncounted_install(<PyTypeObject *>_ThreadSafeHandle)
