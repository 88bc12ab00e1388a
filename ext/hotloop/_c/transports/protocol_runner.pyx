"""ProtocolRunner: when a transport calls its protocol, and in which context. The base class of Transport.

A transport is a Watcher. When the poller reports an event, the transport records it and puts itself on the ready queue,
without a handle. So I/O runs exactly where asyncio would run it: after everything queued earlier and before the timers.
The transport's state at that time decides: if it was paused or closed in the meantime, it does nothing. The start and
the end of a transport, for which asyncio makes handles, are queued in the same way.

All callbacks of a protocol run in one context: the one that was current when the transport was made. (Those that a
write() or sendto() calls itself, such as pause_writing(), run in its caller's.) A context cannot be entered twice. So
while a callback runs the loop, as nest_asyncio does, the protocol's other callbacks run in a copy of it.

Source: asyncio/selector_events.py.
"""

from cpython.contextvars cimport PyContext_Enter, PyContext_Exit
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.poller.watcher cimport POLLER_READ, POLLER_WRITE, Watcher
from hotloop._c.runtime.python_api cimport try_to_enter
from hotloop._c.scheduler.handles cimport copy_context, copy_current_context, new_handle
from hotloop._c.scheduler.handles cimport report_exception, run_reporting
from hotloop._c.scheduler.ready_queue cimport may_queue_directly, push


cdef class ProtocolRunner(Watcher):
    """Calls a protocol when the poller has reported events, and for the start and the end of its connection."""

    def __cinit__(self, *args, **kwargs):
        # Until open() is called, all methods act as on a closed transport.
        self.closing = True
        self.lost = 1

    # -- what subclasses supply ----------------------------------------------------------------------------------------

    cdef int begin_reading(self) except -1:
        """Ask the poller to report reads, for the first time or after end_reading().

        A read that was reported before waits for the next poll, because asyncio has cancelled its handle."""
        raise NotImplementedError

    cdef int rearm(self, int events) noexcept:
        """Have the next poll report these events again, which are not handled."""
        self.events &= ~events
        return 0

    cdef int report_again(self) except -1:
        """Have the next poll report what may be in `events` again. A level-triggered registration needs nothing for
        that."""
        return 0

    cdef int ready_to_read(self) except -1:
        """Read, in the protocol's context; not called while paused or closing. Report errors by fatal_error(); raise
        only what must leave the loop."""
        raise NotImplementedError

    cdef int ready_to_write(self) except -1:
        """Write what is buffered, in the protocol's context."""
        raise NotImplementedError

    cdef int connection_lost(self, object error) except -1:
        """Call the protocol's connection_lost(), then release all resources."""
        raise NotImplementedError

    # -- the start and the end -----------------------------------------------------------------------------------------

    cdef int open(self, LoopCore loop, object protocol, object context, object waiter) except -1:
        """In the next iteration: call connection_made(), begin to read, then resolve the future `waiter`."""
        self.loop = loop
        self.protocol = protocol
        self.context = copy_current_context() if context is None else context
        self.closing = False
        self.lost = 0
        made = loop.schedule_call(protocol.connection_made, (self,), self.context)
        try:
            if may_queue_directly(loop.ready, loop):
                push(loop.ready, self)
                self.waiter = waiter
                self.due_steps |= STEP_START
            else:
                loop.schedule_call(self._start, (waiter,), copy_context(self.context))
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

    cdef int start(self) except -1:
        self.started = True
        if not self.paused and not self.closing:
            self.begin_reading()
        return 0

    cdef int queue_end(self, object error) except -1:
        """Have connection_lost(error) called, in the next iteration."""
        # Kept: a finalizer that an allocation here has run may end this transport.
        cdef LoopCore loop = self.loop
        if may_queue_directly(loop.ready, loop):
            push(loop.ready, self)
            self.error = error
            self.due_steps |= STEP_CONNECTION_LOST
        else:
            loop.schedule_call(self._call_connection_lost, (error,), copy_context(self.context))
        return 0

    def _call_connection_lost(self, error):
        self.connection_lost(error)

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
            # A program that has called _call_connection_lost() itself has left no loop.
            if loop is not None:
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
            if loop is None:
                # As above. The loop that runs this reports the exception with this transport.
                raise
            callback = self._start if starting else self._call_connection_lost
            report_exception(loop, new_handle(callback, (argument,), loop, context), error)
        return 0

    cdef int taken_off(self, bint dropped) except -1:
        # A start or an end that is dropped does not come, as under asyncio. Events come again with the next poll.
        if dropped:
            self.due_steps = self.withdrawn = 0
            self.waiter = self.error = None
        elif self.withdrawn:
            self.withdrawn -= 1
            return 0
        elif self.due_steps & STEP_START:
            return 0
        if self.queued:
            self.queued = False
            self.report_again()
        return 0

    # -- events --------------------------------------------------------------------------------------------------------

    cdef int on_events(self, int events) except -1:
        self.events |= events
        # A program that runs the loop itself may pass on what select() returned before the transport was closed.
        if not self.queued and self.loop is not None:
            push(self.loop.ready, self)
            self.queued = True
        return 0

    cdef int run(self) except -1:
        cdef int events = self.events
        cdef object context = self.context
        if self.withdrawn:
            self.withdrawn -= 1
            return 1
        if self.due_steps and self.step_is_next():
            return self.run_step()
        self.queued = False
        if self.loop is None:
            return 0
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
        cdef bint offered = False
        try:
            if events & POLLER_READ and not self.paused and not self.closing:
                self.running = outer | POLLER_READ
                if events & POLLER_WRITE:
                    offered = self.offer_write()
                self.ready_to_read()
            if events & self.events & POLLER_WRITE and self.loop is not None:
                self.running = outer | POLLER_WRITE
                self.events &= ~POLLER_WRITE
                self.ready_to_write()
            if offered:
                self.withdraw_offer()
        finally:
            self.running = outer
            if self.events & POLLER_WRITE & ~outer and self.loop is not None:
                # ready_to_read() has raised before the write was handled, or the write had to wait for the end of
                # ready_to_write().
                self.rearm(POLLER_WRITE)
        return 0

    cdef bint offer_write(self) except -1:
        """Before ready_to_read(): if that runs the loop, the write is done there, and not after it."""
        if self.queued:
            return False
        try:
            self.on_events(0)
        except MemoryError:
            return False
        return True

    cdef int withdraw_offer(self) except -1:
        """After both: the entry that offer_write() has queued does nothing any more. What the next poll reports
        comes after all that the callbacks have queued."""
        if self.queued and self.loop is not None:
            self.queued = False
            self.withdrawn += 1
            if self.events:
                # A callback has polled, so the next poll would not report them.
                self.rearm(self.events)
        return 0

    cdef int run_nested(self, int events) except -1:
        """run() while a callback of this protocol runs the loop.

        asyncio has a handle for reading and one for writing, each with a context of its own. So it can read while it
        writes, and the other way round. An event for what is under way it refuses with this error, and each poll
        reports the event again. Here the event stays in `events`, where the method that is under way looks when its
        callback has returned."""
        cdef int waiting = events & self.running
        cdef object context
        try:
            context = copy_context(self.context)
        except MemoryError:
            self.rearm(self.events)
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
        run_reporting(self, self.loop)


cdef object enter_or_copy(object context):
    """Enter the context, or a copy of it if it is entered already. Returns which, for PyContext_Exit()."""
    if try_to_enter(<PyObject *>context) < 0:
        PyErr_Clear()
        context = copy_context(context)
        PyContext_Enter(context)
    return context
