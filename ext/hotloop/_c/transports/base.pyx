"""Transport: the base class of stream, datagram and pipe transports: what they all answer, their flow control, and how
they end. When they call the protocol is in protocol_runner.pyx.

Source: the asyncio documentation, "Transports and Protocols"; where it is silent, asyncio/selector_events.py and
unix_events.py are the reference.
"""

cimport cython
from cpython.object cimport PyTypeObject, inquiry

from hotloop._c.loop.loop_core cimport LoopCore, call_in_loop_thread, runs_in_other_thread
from hotloop._c.loop.state cimport backoff_reset
from hotloop._c.runtime.instance_dict cimport (
    instance_dict_clear,
    instance_dict_get,
    instance_dict_install,
    instance_dict_set,
)
from hotloop._c.runtime.locking cimport object_section, section_enter, section_leave
from hotloop._c.system.receive cimport READ_SIZE
from hotloop._c.transports.protocol_runner cimport ProtocolRunner

from asyncio import base_events, constants, transports

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

cdef extern from *:
    """
    #define INSTANCE_DICT_OWNER struct __pyx_obj_7hotloop_2_c_10transports_4base_Transport
    """

cdef Py_ssize_t DEFAULT_HIGH_WATER = 64 * 1024
cdef Py_ssize_t DEFAULT_LOW_WATER = 16 * 1024
# Programs patch this method on asyncio's base class, and so change all of asyncio's transports: see replaced_method().
cdef object GET_EXTRA_INFO = transports.BaseTransport.get_extra_info
# The names for which find_extra() has an answer.
cdef dict EXTRA_NAMES = {name: name for name in ("peername", "sockname", "socket")}
SILENT_LOST_WRITES = constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES


cdef class Transport(ProtocolRunner):
    """A protocol's connection to a descriptor, which it owns: see asyncio.Transport."""

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        self.fd = self.closed_fd = -1
        self.high_water = DEFAULT_HIGH_WATER
        self.low_water = DEFAULT_LOW_WATER
        self.largest_read = READ_SIZE

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
            if self.metrics_kind:
                # The program has closed the descriptor itself before the transport was opened.
                self.release_dropped()
            return
        try:
            # Raises if warnings are errors. Then the descriptor must not stay open either.
            self.warn_unclosed()
        finally:
            self.release_dropped()

    cdef int release_dropped(self) except -1:
        """Release the resources of a transport that nothing refers to any more, in whatever thread frees it."""
        if not runs_in_other_thread(self.loop):
            return self.release_resources()
        # The loop's thread may be using the poller, the metrics and the server, so it releases them. The call keeps
        # the transport alive until then.
        try:
            self.close_dropped()
        finally:
            self.loop.call_soon_threadsafe(release_transport, self)
        return 0

    # -- what each subclass supplies -----------------------------------------------------------------------------------

    cdef int warn_unclosed(self) except -1:
        """Warn that the transport was dropped unclosed. Raises if warnings are errors."""
        raise NotImplementedError

    cdef int end_reading(self) except -1:
        """Ask the poller to report no more reads, unless that costs a system call that can wait. Idempotent."""
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

    cdef bint is_open(self) noexcept:
        return self.fd >= 0

    cdef int count_as(self, int kind) noexcept:
        """Count this transport in loop.metrics() as an open one of that kind; 0: as closed."""
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
        # Kept: the error's class may be a property of the program's, which ends this transport.
        cdef LoopCore loop = self.loop
        if loop is None:
            return 0
        try:
            if isinstance(error, OSError):
                if loop.debug:
                    base_events.logger.debug("%r: %s", self, message, exc_info=error)
            else:
                report_error(loop, self, message, error)
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
        cdef LoopCore loop = self.loop
        cdef bint closed
        if loop is None:
            # A property of the protocol's, or a handler of the log, has ended this transport.
            return 0
        closed = loop.ready.closed
        if not closed:
            self.queue_end(error)
        self.closing = True
        self.lost += 1
        self.end_reading()
        self.stop_watching()
        if closed:
            loop.check_open()
        return 0

    cdef int connection_lost(self, object error) except -1:
        """Call the protocol's connection_lost(), then release all resources."""
        cdef object protocol = self.protocol
        cdef object_section section
        if self.loop is None:
            return 0
        try:
            try:
                if protocol is not None:
                    protocol.connection_lost(error)
            finally:
                if not self.lost:
                    # The program has called _call_connection_lost() itself, and the protocol may have written.
                    self.flush_early()
        finally:
            # After such a call, too, before the protocol goes: its finalizer may run the loop.
            self.closing = True
            self.lost = max(self.lost, 1)
            # The protocol goes first, because it usually holds the only other reference to the transport. If nothing
            # can ask for its address any more, release_resources() saves the system call that keeps it.
            protocol = None
            # Other threads may be reading the attributes `protocol` and `loop`.
            section_enter(&section, self)
            self.protocol = None
            section_leave(&section)
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
            report_error(self.loop, self, "protocol.pause_writing() failed", error)
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
            report_error(self.loop, self, "protocol.resume_writing() failed", error)
        return 0

    cdef int set_limits(self, object high, object low) except -1:
        if high is None:
            high = DEFAULT_HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        high_water, low_water = as_size(high), as_size(low)
        # Other threads may be reading them.
        limits = (low, high)
        with cython.critical_section(self):
            self.limits, limits = limits, self.limits
        self.high_water = high_water
        self.low_water = low_water
        return 0

    def set_write_buffer_limits(self, high=None, low=None):
        """Set the watermarks, in bytes: above `high` the protocol is paused, at `low` it is resumed.

        ValueError unless high >= low >= 0. See asyncio.WriteTransport."""
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.set_write_buffer_limits, (high, low))
        self.set_limits(high, low)
        if self.protocol is not None:
            self.maybe_pause_protocol()

    def get_write_buffer_limits(self):
        """The watermarks (low, high), in bytes."""
        with cython.critical_section(self):
            return (DEFAULT_LOW_WATER, DEFAULT_HIGH_WATER) if self.limits is None else self.limits

    def get_write_buffer_size(self):
        """How many bytes are waiting to be written."""
        return self.unsent_bytes()

    # -- the methods of asyncio.BaseTransport and ReadTransport --------------------------------------------------------

    @property
    def max_size(self):
        """How many bytes a read asks for at most: an attribute of asyncio's transports.

        Programs set it, so that a read takes no more than a part of their format, or less memory."""
        return self.largest_read

    @max_size.setter
    def max_size(self, size):
        cdef Py_ssize_t largest = min(size, READ_SIZE)
        if largest < 0:
            raise ValueError(f"max_size must not be negative: {size!r}")
        self.largest_read = largest

    @max_size.deleter
    def max_size(self):
        # As mock.patch.object() does at its end, because asyncio's default is an attribute of the class.
        self.largest_read = READ_SIZE

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
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.set_protocol, (protocol,))
        self.replace_protocol(protocol)

    cdef int replace_protocol(self, object protocol) except -1:
        """Other threads may be reading it."""
        with cython.critical_section(self):
            self.protocol, protocol = protocol, self.protocol
        return 0

    def get_protocol(self):
        """The protocol that is called."""
        with cython.critical_section(self):
            return self.protocol

    def is_closing(self):
        """True after close() or abort(), or when the connection is broken."""
        return self.closing

    def is_reading(self):
        """True unless paused or closing."""
        return not self.closing and not self.paused

    def pause_reading(self):
        """Pass no data to the protocol until resume_reading(). Does nothing if paused or closing."""
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.pause_reading, ())
        if self.closing or self.paused:
            return
        self.paused = True
        self.end_reading()
        # Here and below: to change the registration may run a finalizer of what had the number before, and the methods
        # of a pipe's file, and these may have ended this transport.
        if self.loop is not None and self.loop.debug:
            base_events.logger.debug("%r pauses reading", self)

    def resume_reading(self):
        """End a pause_reading(). Does nothing if not paused, or closing."""
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.resume_reading, ())
        if self.closing or not self.paused:
            return
        self.paused = False
        # Poll at once, as asyncio does, so that what has arrived meanwhile is delivered in the same iteration.
        backoff_reset(&self.loop.metrics.backoff)
        if self.started:
            self.begin_reading()
        if self.loop is not None and self.loop.debug:
            base_events.logger.debug("%r resumes reading", self)

    def close(self):
        """Write what is buffered, then close; the protocol gets no more data. Idempotent."""
        if runs_in_other_thread(self.loop):
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
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.abort, ())
        self.force_close(None)

    # -- the private names by which asyncio's own code and libraries read the state ------------------------------------

    def _force_close(self, exc):
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self._force_close, (exc,))
        self.force_close(exc)

    def _fatal_error(self, exc, message="Fatal error on transport"):
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self._fatal_error, (exc, message))
        self.fatal_error(exc, message)

    @property
    def _loop(self):
        with cython.critical_section(self):
            return self.loop

    @property
    def _protocol(self):
        with cython.critical_section(self):
            return self.protocol

    @_protocol.setter
    def _protocol(self, value):
        self.set_protocol(value)

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
        with cython.critical_section(self):
            if self.extra is None:
                self.extra = {}
            return self.extra


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


cdef int report_error(LoopCore loop, Transport transport, str message, object error) except -1:
    """Call the loop's exception handler. `loop` is the transport's, unless that has ended since."""
    loop.call_exception_handler(
        {"message": message, "exception": error, "transport": transport, "protocol": transport.protocol}
    )
    return 0


cdef Py_ssize_t as_size(object limit) except? -1:
    """Convert a watermark, which may be any number that compares with an int. One above PY_SSIZE_T_MAX is cut to that:
    it cannot be reached either."""
    if limit >= <object>PY_SSIZE_T_MAX:
        return PY_SSIZE_T_MAX
    return <Py_ssize_t>limit if isinstance(limit, int) else <Py_ssize_t><double>limit


instance_dict_install(<PyTypeObject *>Transport)

cdef inquiry usual_clear = (<PyTypeObject *>Transport).tp_clear


cdef int clear_transport(object transport) except -1:
    """The tp_clear. What the garbage collector has cleared has no loop, as after connection_lost(), and so is closed:
    code that runs while a cycle is cleared may still find it."""
    (<Transport>transport).closing = True
    (<Transport>transport).lost = max((<Transport>transport).lost, 1)
    (<Transport>transport).due_steps = 0
    return usual_clear(transport)


(<PyTypeObject *>Transport).tp_clear = <inquiry>clear_transport
