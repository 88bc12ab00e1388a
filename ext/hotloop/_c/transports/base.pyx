"""Transport: the base class of stream, datagram and pipe transports.

A transport is a Watcher. When the poller reports an event, the transport records it and puts itself on the ready queue,
without a handle. So I/O runs exactly where asyncio would run it: after everything queued earlier and before the timers.
The transport's state at that time decides: if it was paused or closed in the meantime, it does nothing. The start and
the end of a transport, for which asyncio makes handles, are queued in the same way.

All callbacks of a protocol run in one context: the one that was current when the transport was made. A context cannot
be entered twice. So while a callback runs the loop, as nest_asyncio does, the protocol's other callbacks run in a copy
of it.

Source: the asyncio documentation, "Transports and Protocols"; where it is silent, asyncio/selector_events.py and
unix_events.py are the reference.
"""

from cpython.contextvars cimport PyContext_Copy, PyContext_CopyCurrent, PyContext_Enter, PyContext_Exit
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.loop.loop_core cimport LoopCore, call_in_loop_thread, runs_in_other_thread
from hotloop._c.loop.state cimport backoff_reset
from hotloop._c.poller.watcher cimport POLLER_READ, POLLER_WRITE, Watcher
from hotloop._c.runtime.instance_dict cimport (
    instance_dict_clear,
    instance_dict_get,
    instance_dict_install,
    instance_dict_set,
)
from hotloop._c.runtime.locking cimport FREE_THREADED, object_section, section_enter, section_leave
from hotloop._c.scheduler.ready_queue cimport may_queue_directly, new_handle, push, report_exception

import os
import warnings
from asyncio import base_events, constants, transports

cdef extern from *:
    """
    #define INSTANCE_DICT_OWNER struct __pyx_obj_7hotloop_2_c_10transports_4base_Transport
    """

cdef extern from "Python.h":
    # It fails only if the context is entered already, which is no error here: the caller clears the exception.
    int try_to_enter "PyContext_Enter"(PyObject *context) noexcept

cdef Py_ssize_t DEFAULT_HIGH_WATER = 64 * 1024
cdef Py_ssize_t DEFAULT_LOW_WATER = 16 * 1024
# Programs patch this method on asyncio's base class, and so change all of asyncio's transports: see replaced_method().
cdef object GET_EXTRA_INFO = transports.BaseTransport.get_extra_info
# The names for which find_extra() has an answer.
cdef dict EXTRA_NAMES = {name: name for name in ("peername", "sockname", "socket")}
SILENT_LOST_WRITES = constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES


cdef class Transport(Watcher):
    """A protocol's connection to a descriptor, which it owns: see asyncio.Transport."""

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        self.fd = self.closed_fd = -1
        # Until open() is called, all methods act as on a closed transport.
        self.closing = True
        self.lost = 1
        self.high_water = DEFAULT_HIGH_WATER
        self.low_water = DEFAULT_LOW_WATER

    @property
    def __class__(self):
        return transports._FlowControlMixin

    @property
    def __dict__(self):
        return instance_dict_get(self)

    @__dict__.setter
    def __dict__(self, attributes):
        instance_dict_set(self, attributes)

    def __del__(self):
        if not self.is_open():
            return
        try:
            # Raises if warnings are errors. Then the descriptor must not stay open either.
            warnings.warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
        finally:
            self.release_dropped()

    cdef int release_dropped(self) except -1:
        """Release the resources of a transport that nothing refers to any more, in whatever thread frees it."""
        if not (FREE_THREADED and runs_in_other_thread(self.loop)):
            return self.release_resources()
        # The loop's thread may be using the poller, the metrics and the server, so it releases them. The call keeps
        # the transport alive until then.
        try:
            self.close_dropped()
        finally:
            self.loop.call_soon_threadsafe(release_transport, self)
        return 0

    # -- what each subclass supplies -----------------------------------------------------------------------------------

    cdef int begin_reading(self) except -1:
        """Ask the poller to report reads, for the first time or after end_reading().

        A read that was reported before waits for the next poll, because asyncio has cancelled its handle."""
        raise NotImplementedError

    cdef int end_reading(self) except -1:
        """Ask the poller to report no more reads, unless that costs a system call that can wait. Idempotent."""
        raise NotImplementedError

    cdef int ready_to_read(self) except -1:
        """Read, in the protocol's context; not called while paused or closing. Report errors by fatal_error(); raise
        only what must leave the loop."""
        raise NotImplementedError

    cdef int ready_to_write(self) except -1:
        """Write what is buffered, in the protocol's context."""
        raise NotImplementedError

    cdef int release_resources(self) except -1:
        """Remove the descriptor from the poller, then close it. Idempotent."""
        raise NotImplementedError

    cdef int close_dropped(self) except -1:
        """Close the descriptor at once, in the thread that frees the transport, if the poller does not have it."""
        return 0

    cdef int stop_watching(self) except -1:
        """Remove the descriptor from the poller. Idempotent."""
        raise NotImplementedError

    cdef int discard_unsent(self) except -1:
        """Discard what is buffered."""
        raise NotImplementedError

    cdef int flush_early(self) except -1:
        """Send this turn's writes now: called before an operation that would show that they have not left, or lose
        them."""
        return 0

    cdef Py_ssize_t unsent_bytes(self) noexcept:
        """How many bytes are waiting to be written, as flow control counts them."""
        return 0

    cdef object find_extra(self, str name, object default):
        """The answer of get_extra_info() for a name that is not in `extra`; the default for an unknown name."""
        return default

    # -- calls by the loop ---------------------------------------------------------------------------------------------

    cdef int open(self, LoopCore loop, object protocol, object context, object waiter) except -1:
        """In the next iteration: call connection_made(), begin to read, then resolve the future `waiter`."""
        self.loop = loop
        self.protocol = protocol
        self.context = PyContext_CopyCurrent() if context is None else context
        self.closing = False
        self.lost = 0
        made = loop.schedule_call(protocol.connection_made, (self,), self.context)
        try:
            if may_queue_directly(loop.ready, loop):
                push(loop.ready, self)
                self.waiter = waiter
                self.due_steps |= STEP_START
            else:
                loop.schedule_call(self._start, (waiter,), PyContext_Copy(self.context))
        except BaseException:
            made.cancel()
            raise
        return 0

    def _start(self, waiter):
        self.start_and_notify(waiter)

    cdef int start_and_notify(self, object waiter) except -1:
        try:
            self.start()
        finally:
            if waiter is not None and not waiter.cancelled():
                waiter.set_result(None)
        return 0

    cdef bint step_is_next(self) noexcept:
        """Whether run() was called for a step, not for events. Events come after the start and before the end."""
        return self.due_steps & STEP_START or self.due_steps and not self.queued

    cdef int run_step(self) except -1:
        """Start the transport, or call connection_lost(). An error is reported with the handle that asyncio would have
        made."""
        cdef LoopCore loop = self.loop
        cdef object context
        cdef bint starting = self.due_steps & STEP_START
        cdef object argument = self.waiter if starting else self.error
        try:
            context = enter_or_copy(self.context)
        except MemoryError:
            push(loop.ready, self)
            raise
        if starting:
            self.due_steps &= ~STEP_START
            self.waiter = None
        else:
            self.due_steps = 0
            self.error = None
        try:
            try:
                if starting:
                    self.start_and_notify(argument)
                else:
                    self.connection_lost(argument)
            finally:
                PyContext_Exit(context)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            callback = self._start if starting else self._call_connection_lost
            report_exception(loop, new_handle(callback, (argument,), loop, context), error)
        return 0

    cdef int start(self) except -1:
        self.started = True
        if not self.paused and not self.closing:
            self.begin_reading()
        return 0

    cdef int on_events(self, int events) except -1:
        self.events |= events
        if not self.queued:
            push(self.loop.ready, self)
            self.queued = True
        return 0

    cdef int run(self) except -1:
        cdef int events = self.events
        cdef object context = self.context
        if self.due_steps and self.step_is_next():
            return self.run_step()
        self.queued = False
        if self.loop is None:
            return 0
        if self.read_deferred:
            self.read_deferred = False
            events &= ~POLLER_READ
            if not self.closing:
                self.on_events(0)
        if try_to_enter(<PyObject *>context) < 0:
            PyErr_Clear()
            return self.run_nested(events)
        try:
            self.handle_events(events)
        finally:
            PyContext_Exit(context)
        return 0

    cdef int handle_events(self, int events) except -1:
        """Read and write, in the protocol's context."""
        cdef int outer = self.running
        try:
            if events & POLLER_READ and not self.paused and not self.closing:
                self.running = outer | POLLER_READ
                if events & POLLER_WRITE:
                    self.offer_write()
                self.ready_to_read()
            if events & self.events & POLLER_WRITE and self.loop is not None:
                self.running = outer | POLLER_WRITE
                self.events &= ~POLLER_WRITE
                self.ready_to_write()
        finally:
            self.running = outer
            if self.events & POLLER_WRITE & ~outer and self.loop is not None:
                # ready_to_read() has raised before the write was handled, or the write had to wait for the end of
                # ready_to_write(). An edge-triggered socket will not report it again.
                self.on_events(0)
        return 0

    cdef int offer_write(self) except -1:
        """Before ready_to_read(): if that runs the loop, the write is done there, and not after it."""
        try:
            self.on_events(0)
        except MemoryError:
            pass
        return 0

    cdef int run_nested(self, int events) except -1:
        """run() while a callback of this protocol runs the loop.

        asyncio has a handle for reading and one for writing, each with a context of its own. So it can read while it
        writes, and the other way round; what is under way itself it refuses, with this error. It polls until it can do
        that. Here `events` keeps it, and what is under way looks there when its callback has returned."""
        cdef int waiting = events & self.running
        cdef object context
        try:
            context = PyContext_Copy(self.context)
        except MemoryError:
            # An edge-triggered socket will not report the events again.
            self.on_events(0)
            raise
        PyContext_Enter(context)
        try:
            self.handle_events(events & ~waiting)
        finally:
            PyContext_Exit(context)
        if waiting & POLLER_WRITE or waiting & POLLER_READ and not self.paused and not self.closing:
            raise RuntimeError(f"cannot enter context: {self.context!r} is already entered")
        return 0

    def _run(self):
        self.run()

    cdef int is_open(self) noexcept:
        return self.fd >= 0

    cdef int count_as(self, int kind) noexcept:
        """Count this transport in loop.metrics() as an open one of that kind; 0: no more as any."""
        if self.loop is not None:
            if self.metrics_kind:
                self.loop.metrics.transports[self.metrics_kind] -= 1
            if kind:
                self.loop.metrics.transports[kind] += 1
            self.metrics_kind = kind
            # The other end may belong to this loop, too.
            backoff_reset(&self.loop.metrics.backoff)
        return 0

    # -- connection_lost() ---------------------------------------------------------------------------------------------

    cdef int fatal_error(self, object error, str message) except -1:
        """Close the connection because of an error. An OSError is normal for a connection and only logged in debug
        mode; any other error goes to the exception handler."""
        if self.loop is None:
            return 0
        try:
            if isinstance(error, OSError):
                if self.loop.debug:
                    base_events.logger.debug("%r: %s", self, message, exc_info=error)
            else:
                self.loop.call_exception_handler(
                    {"message": message, "exception": error, "transport": self, "protocol": self.protocol}
                )
        finally:
            self.force_close(error)
        return 0

    cdef int force_close(self, object error) except -1:
        """Close without writing what is buffered, and have connection_lost() called with `error`."""
        if self.lost or self.loop is None:
            return 0
        self.flush_early()
        if self.lost:
            return 0
        self.schedule_connection_lost(error)
        return self.discard_unsent()

    cdef int schedule_connection_lost(self, object error) except -1:
        """Have connection_lost() called. A MemoryError leaves everything unchanged, so the caller can try again."""
        cdef bint closed = self.loop.ready.closed
        if not closed and may_queue_directly(self.loop.ready, self.loop):
            push(self.loop.ready, self)
            self.error = error
            self.due_steps |= STEP_CONNECTION_LOST
        elif not closed:
            self.loop.schedule_call(self._call_connection_lost, (error,), PyContext_Copy(self.context))
        self.closing = True
        self.lost += 1
        self.end_reading()
        self.stop_watching()
        if closed:
            self.loop.check_open()
        return 0

    def _call_connection_lost(self, error):
        self.connection_lost(error)

    cdef int connection_lost(self, object error) except -1:
        """Call the protocol's connection_lost(), then release all resources."""
        cdef object protocol = self.protocol
        cdef object_section section
        if self.loop is None:
            return 0
        try:
            if protocol is not None:
                protocol.connection_lost(error)
        finally:
            # The protocol goes first, because it usually holds the only other reference to the transport. If nothing
            # can ask for its address any more, release_resources() saves the system call that keeps it.
            protocol = None
            # Other threads may be reading the attributes `protocol` and `loop`.
            section_enter(&section, self)
            self.protocol = None
            section_leave(&section)
            # A program may have called _call_connection_lost() itself, but other methods rely on `lost`.
            self.closing = True
            self.lost = max(self.lost, 1)
            try:
                self.release_resources()
            finally:
                section_enter(&section, self)
                self.loop = None
                section_leave(&section)
        return 0

    cdef int count_lost_write(self) except -1:
        """Count a write to a lost connection, and log a warning unless it is one of the first."""
        if self.lost >= SILENT_LOST_WRITES:
            base_events.logger.warning("socket.send() raised exception.")
        self.lost += 1
        return 0

    # -- flow control --------------------------------------------------------------------------------------------------

    cdef int maybe_pause_protocol(self) except -1:
        """Call pause_writing() if more than the high-water mark is buffered and the protocol is not paused yet."""
        if self.protocol_paused or self.unsent_bytes() <= self.high_water:
            return 0
        self.protocol_paused = True
        try:
            self.protocol.pause_writing()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            flow_control_failed(self, "protocol.pause_writing() failed", error)
        return 0

    cdef int maybe_resume_protocol(self) except -1:
        """Call resume_writing() if it is due. The protocol may write again, close the transport or replace itself."""
        if not self.protocol_paused or self.unsent_bytes() > self.low_water:
            return 0
        self.protocol_paused = False
        try:
            self.protocol.resume_writing()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            flow_control_failed(self, "protocol.resume_writing() failed", error)
        return 0

    cdef int set_limits(self, object high, object low) except -1:
        if high is None:
            high = DEFAULT_HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        high_water, low_water = as_size(high), as_size(low)
        self.limits = (low, high)
        self.high_water = high_water
        self.low_water = low_water
        return 0

    def set_write_buffer_limits(self, high=None, low=None):
        """Set the watermarks, in bytes: above `high` the protocol is paused, at `low` it is resumed.

        ValueError unless high >= low >= 0. See asyncio.WriteTransport."""
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.set_write_buffer_limits, (high, low))
        self.set_limits(high, low)
        if self.protocol is not None:
            self.maybe_pause_protocol()

    def get_write_buffer_limits(self):
        """The watermarks (low, high), in bytes."""
        return (DEFAULT_LOW_WATER, DEFAULT_HIGH_WATER) if self.limits is None else self.limits

    def get_write_buffer_size(self):
        """How many bytes are waiting to be written."""
        return self.unsent_bytes()

    # -- the methods of asyncio.BaseTransport and ReadTransport --------------------------------------------------------

    def get_extra_info(self, name, default=None):
        """The information about the connection that has this name, or `default`. See asyncio.BaseTransport."""
        cdef object found = replaced_method(self, "get_extra_info", GET_EXTRA_INFO)
        if found is not None:
            return found(name) if default is None else found(name, default)
        cdef object_section section
        section_enter(&section, self)
        try:
            if self.extra is not None and name in self.extra:
                return self.extra[name]
            if type(name) is not str:
                # A member of a StrEnum, for example, names what it is equal to, as in asyncio's dictionary.
                name = EXTRA_NAMES.get(name)
            return default if name is None else self.find_extra(name, default)
        finally:
            section_leave(&section)

    def set_protocol(self, protocol):
        """Use another protocol from now on."""
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.set_protocol, (protocol,))
        self.protocol = protocol

    def get_protocol(self):
        """The protocol that is called."""
        cdef object_section section
        section_enter(&section, self)
        try:
            return self.protocol
        finally:
            section_leave(&section)

    def is_closing(self):
        """True after close() or abort(), or when the connection is broken."""
        return self.closing

    def is_reading(self):
        """True unless paused or closing."""
        return not self.closing and not self.paused

    def pause_reading(self):
        """Pass no data to the protocol until resume_reading(). Does nothing if paused or closing."""
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.pause_reading, ())
        if self.closing or self.paused:
            return
        self.paused = True
        self.end_reading()
        if self.loop.debug:
            base_events.logger.debug("%r pauses reading", self)

    def resume_reading(self):
        """End a pause_reading(). Does nothing if not paused, or closing."""
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.resume_reading, ())
        if self.closing or not self.paused:
            return
        self.paused = False
        # Poll at once, as asyncio does, so that what has arrived meanwhile is delivered in the same iteration.
        backoff_reset(&self.loop.metrics.backoff)
        if self.started:
            self.begin_reading()
        if self.loop.debug:
            base_events.logger.debug("%r resumes reading", self)

    def close(self):
        """Write what is buffered, then close; the protocol gets no more data. Idempotent."""
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.close, ())
        if self.closing:
            return
        if self.unsent_bytes():
            self.closing = True
            self.end_reading()
        else:
            self.schedule_connection_lost(None)

    def abort(self):
        """Close at once; what is buffered is lost."""
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.abort, ())
        self.force_close(None)

    # -- the private names by which asyncio's own code and libraries read the state ------------------------------------

    def _force_close(self, exc):
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self._force_close, (exc,))
        self.force_close(exc)

    def _fatal_error(self, exc, message="Fatal error on transport"):
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self._fatal_error, (exc, message))
        self.fatal_error(exc, message)

    @property
    def _loop(self):
        cdef object_section section
        section_enter(&section, self)
        try:
            return self.loop
        finally:
            section_leave(&section)

    @property
    def _protocol(self):
        cdef object_section section
        section_enter(&section, self)
        try:
            return self.protocol
        finally:
            section_leave(&section)

    @property
    def _closing(self):
        return self.closing

    @property
    def _paused(self):
        return self.paused

    @property
    def _conn_lost(self):
        return self.lost

    @property
    def _protocol_paused(self):
        return self.protocol_paused

    @property
    def _extra(self):
        cdef object_section section
        section_enter(&section, self)
        try:
            if self.extra is None:
                self.extra = {}
            return self.extra
        finally:
            section_leave(&section)


cdef object enter_or_copy(object context):
    """Enter the context, or a copy of it if it is entered already. Returns which, for PyContext_Exit()."""
    if try_to_enter(<PyObject *>context) < 0:
        PyErr_Clear()
        context = PyContext_Copy(context)
        PyContext_Enter(context)
    return context


def release_transport(Transport transport not None):
    transport.release_resources()


cdef object replaced_method(Transport transport, str name, object original):
    """The method with which a program has replaced the `original` in asyncio's transport classes, bound as on one of
    asyncio's transports; None if it has not."""
    cdef object cls = transport.__class__
    cdef object found = getattr(cls, name)
    if found is original:
        return None
    return found.__get__(transport, cls) if hasattr(found, "__get__") else found


cdef int flow_control_failed(Transport transport, str message, object error) except -1:
    transport.loop.call_exception_handler(
        {"message": message, "exception": error, "transport": transport, "protocol": transport.protocol}
    )
    return 0


cdef Py_ssize_t as_size(object limit) except? -1:
    """Convert a watermark, which may be any number that compares with an int. One above PY_SSIZE_T_MAX is cut to that:
    it cannot be reached either."""
    if limit >= <object>PY_SSIZE_T_MAX:
        return PY_SSIZE_T_MAX
    return <Py_ssize_t>limit if isinstance(limit, int) else <Py_ssize_t><double>limit


cdef object os_error(Py_ssize_t error):
    return OSError(-error, os.strerror(-error))


cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

instance_dict_install(<PyTypeObject *>Transport)
