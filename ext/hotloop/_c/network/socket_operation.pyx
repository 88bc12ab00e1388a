"""SocketOperation: the coroutine that a sock_*() method returns; SocketWatcher: how it waits.

An operation is tried when it is awaited. If the socket is ready, that is all: no future, no task, no registration.
Otherwise the operation yields a future. The poller's next event for the socket finishes it, in the place of the
callback by which asyncio would, and the operation is tried again when its task resumes it. Only then are data taken off
the socket, so a task that is cancelled in between loses none.

The registration stays with the poller afterwards, edge-triggered, and the next operation renews it: one system call,
where asyncio makes two. This is safe, although the program may close its socket and open another one that gets the same
descriptor:

- Every operation is tried before it waits, so it does not depend on events that came before.
- A registration is for one socket object. Another one with the same descriptor gets a registration of its own, and
  events of the former file have another generation. Renewing it notices a descriptor onto which dup2() put another
  file.
- An event for which no operation waits ends the registration. Until then it is not part of the selector's map.

Otherwise the operation waits as asyncio's do, by add_reader() or add_writer(): for a subclass of socket, which may have
its own recv(), on another selector than hotloop's, and on a descriptor with callbacks.

Source: epoll(7); PEP 492; asyncio/selector_events.py.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.loop.loop_core cimport LoopCore, refuse_other_threads
from hotloop._c.loop.state cimport backoff_reset
from hotloop._c.poller.descriptor_callbacks cimport receiver_of
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport POLLER_EDGE, POLLER_READ, POLLER_WRITE, Watcher
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.runtime.recycling cimport finalizer_skip, free_memory_install
from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.runtime.send_slots cimport (
    PYGEN_ERROR,
    PYGEN_NEXT,
    PYGEN_RETURN,
    PySendResult,
    install_send_slots,
    raise_set_error,
    sendfunc,
)
from hotloop._c.scheduler.handles cimport Handle, run_reporting
from hotloop._c.scheduler.ready_queue cimport push
from hotloop._c.tasks.future cimport Future, new_future
from hotloop._c.tasks.future_core cimport PENDING
from hotloop._c.tasks.stop_iteration cimport end_iteration
from hotloop._c.tasks.thrown_exceptions cimport exception_to_throw, refuses_before_it_looks, warn_of_signature

import _socket
import inspect
import socket
import sys
import types
import warnings
from asyncio import base_events, selector_events

from hotloop._asyncio.coroutine_frames import stand_in

cdef extern from "runtime/error_indicator.h":
    int set_error_again(object) except -1

# What `cr_state` says, in Stage's order.
cdef tuple STATES = (inspect.CORO_CREATED, inspect.CORO_RUNNING, inspect.CORO_SUSPENDED, inspect.CORO_CLOSED)

cdef object socket_class = socket.socket

cdef extern from "system/socket_object.h":
    bint socket_object_find_functions(object type)
    int socket_object_fileno(object) except? -1

socket_object_find_functions(_socket.socket)

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 256
    #include "runtime/recycling.h"
    """

cdef extern from "Python.h":
    object PyWeakref_NewRef(object, PyObject *)

cdef extern from *:
    """
    static inline int refers_to(PyObject *reference, PyObject *object)
    {
    #if PY_VERSION_HEX >= 0x030D0000
        PyObject *found = NULL;

        (void)PyWeakref_GetRef(reference, &found);
        Py_XDECREF(found);
        return found == object;
    #else
        return PyWeakref_GET_OBJECT(reference) == object;
    #endif
    }
    """
    bint refers_to(object reference, object) noexcept


cdef SocketOperation new_operation(
    LoopCore loop, str name, attempt_function attempt, int event, object sock, object argument, object second_argument
):
    cdef SocketOperation operation = SocketOperation.__new__(SocketOperation)
    operation.loop = loop
    operation.name = name
    operation.attempt = attempt
    operation.event = event
    operation.sock = sock
    operation.argument = argument
    operation.second_argument = second_argument
    if loop.debug:
        operation.origin = find_origin()
    return operation


cdef tuple find_origin():
    """What the interpreter puts in a coroutine's cr_origin: see sys.set_coroutine_origin_tracking_depth()."""
    cdef int depth = sys.get_coroutine_origin_tracking_depth()
    cdef list origin = []
    frame = sys._getframe() if depth else None
    while frame is not None and len(origin) < depth:
        origin.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(origin) or None


@cython.final
@cython.no_gc_clear
cdef class SocketOperation:
    """The coroutine that loop.sock_recv() and its like return, to be awaited or made a task."""

    # -- a coroutine ---------------------------------------------------------------------------------------------------

    def __await__(self):
        if self.stage == WAITING:
            raise RuntimeError("coroutine is being awaited already")
        return self

    def send(self, value, /):
        """Go on: returns a future to wait for, or raises StopIteration with the result, or the operation's error."""
        cdef PyObject *result = NULL
        cdef PySendResult status = operation_send(<PyObject *>self, <PyObject *>value, &result)
        if status == PYGEN_ERROR:
            raise_set_error()
        if status == PYGEN_NEXT:
            return steal(result)
        raise StopIteration(steal(result))

    def throw(self, kind, value=None, traceback=None, /):
        """End the operation, and raise an exception out of it."""
        error = None
        if self.stage not in (RUNNING, CLOSED) or not refuses_before_it_looks:
            error = exception_to_throw(kind, value, traceback)
        elif value is not None or traceback is not None:
            warn_of_signature()
        self.check_usable()
        self.end()
        set_error_again(error)      # as a future's throw(), without a context

    def close(self):
        """End the operation. Idempotent. Raises ValueError if it is running."""
        refuse_other_threads(self.loop)
        if self.stage != CLOSED:
            self.check_usable()
        self.end()

    def __del__(self):
        if self.stage == CREATED and self.loop is not None:
            warnings._warn_unawaited_coroutine(self)

    def __repr__(self):
        return f"<coroutine object {self.__qualname__} at {id(self):#x}>"

    @property
    def __name__(self):
        """The name of the loop's method that made it."""
        return self.name

    @property
    def __qualname__(self):
        """The same with the name of the class."""
        return f"EventLoop.{self.name}"

    # -- what tools ask a coroutine for --------------------------------------------------------------------------------

    @property
    def __class__(self):
        return types.CoroutineType

    @property
    def cr_await(self):
        """What it waits for: the iterator of a future."""
        return iter(self.waiter) if self.stage == WAITING else None

    @property
    def cr_code(self):
        """The code of asyncio's own method."""
        return asyncios_method(self).__code__

    @property
    def cr_frame(self):
        """A frame of asyncio's own method, at the line where the coroutine is; None if it has ended."""
        cdef int awaits = (2 if self.name == "sock_connect" else 1) if self.stage == WAITING else 0
        if self.stage == CLOSED:
            return None
        self.shown = stand_in(
            asyncios_method(self), (self.loop, self.sock, self.argument, self.second_argument), awaits
        )
        return self.shown.cr_frame

    @property
    def cr_running(self):
        return self.stage == RUNNING

    @property
    def cr_suspended(self):
        return self.stage == WAITING

    @property
    def cr_state(self):
        """What inspect.getcoroutinestate() returns, which asks for it since Python 3.15."""
        return STATES[<int>self.stage]

    @property
    def cr_origin(self):
        """Where the coroutine was made, if that is tracked; see sys.set_coroutine_origin_tracking_depth()."""
        return self.origin

    # -- its stages ----------------------------------------------------------------------------------------------------

    cdef int check_usable(self) except -1:
        """Raise what a coroutine raises that runs, because the program's code that it calls uses it, or has ended."""
        if self.stage == RUNNING:
            raise ValueError("coroutine already executing")
        if self.stage == CLOSED:
            raise RuntimeError("cannot reuse already awaited coroutine")
        return 0

    cdef int check_socket(self) except -1:
        """asyncio's checks of a socket, for debug mode and for other classes than socket.socket."""
        base_events._check_ssl_socket(self.sock)
        if self.loop.debug and self.sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")
        return 0

    cdef int resume(self) except -1:
        """Resumed: the event came, or the wait was cancelled. Raises the waiter's exception."""
        cdef Future waiter = self.waiter
        self.check_usable()
        self.stage = RUNNING
        self.stop_waiting()
        if waiter.state == PENDING:
            raise RuntimeError("await wasn't used with future")
        error = waiter.take_error()
        if error is not None:
            raise error
        return 0

    cdef int wait_for_socket(self) except -1:
        """Make `waiter`, a future that is done when the socket may be ready."""
        cdef LoopCore loop = self.loop
        cdef bint again = self.waiter is not None
        self.waiter = Future(loop=loop) if loop.debug else new_future(loop, loop.ready)
        if self.yields_once:
            self.yields_once = False
            self.waiter.finish(None)
            return 0
        loop.check_open()
        refuse_other_threads(loop)
        backoff_reset(&loop.metrics.backoff)
        if self.may_register:
            # The program may have closed the socket since the attempt began: in an audit hook, or in a method of the
            # buffer's.
            self.fd = socket_object_fileno(self.sock)
        if not self.may_register or self.fd < 0 or loop.poller is None or not watch_socket(loop.poller, self, again):
            self.fd = self.sock.fileno()
            self.wait_by_callback(again)
        return 0

    cdef int wait_by_callback(self, bint again) except -1:
        cdef LoopCore loop = self.loop
        if not again:
            loop._ensure_fd_no_transport(self.fd)
        elif loop.poller is not None and receiver_of(loop.poller, self.fd, self.event) is not None:
            # Something has taken the place of this operation's callback since. As under asyncio, it waits in vain.
            return 0
        add = loop._add_reader if self.event == POLLER_READ else loop._add_writer
        self.handle = add(self.fd, wake_up, self)
        self.callback_entry = None if loop.poller is None else loop.poller.entry(self.fd)
        return 0

    cdef int stop_waiting(self) except -1:
        """Remove everything that would wake the operation."""
        cdef PollerSelector poller = self.loop.poller
        cdef Handle handle = self.handle
        cdef object entry = None if poller is None else poller.entry(self.fd)
        if handle is None:
            if type(entry) is SocketWatcher:
                (<SocketWatcher>entry).forget_operation(self)
            return 0
        self.handle = None
        # Another callback or a transport may have taken the place of this one.
        if not handle.was_cancelled and entry is self.callback_entry:
            self.remove_callback()
        self.callback_entry = None
        return 0

    cdef int remove_callback(self) except -1:
        remove = self.loop._remove_reader if self.event == POLLER_READ else self.loop._remove_writer
        try:
            remove(self.fd)
        except Exception as error:
            # The number may be another file's by now. asyncio removes it in a callback, whose errors are reported.
            self.loop.call_exception_handler(
                {"message": f"Exception while {self.name}() ended its wait for a descriptor", "exception": error}
            )
        return 0

    cdef int end(self) except -1:
        """Stop, and drop all references."""
        cdef bint waiting = self.stage == WAITING
        self.stage = CLOSED
        if waiting:
            self.stop_waiting()
        return self.drop_references()

    cdef int drop_references(self) noexcept:
        """A task may keep the coroutine object, which must not keep the buffer."""
        self.sock = self.argument = self.second_argument = self.view = self.waiter = self.shown = None
        return 0


cdef object asyncios_method(SocketOperation operation):
    return getattr(selector_events.BaseSelectorEventLoop, operation.name)


def wake_up(SocketOperation operation):
    # Kept, here and below: a replaced call_soon() may resume the task at once, which drops it.
    cdef Future waiter = operation.waiter
    if operation.stage == WAITING and waiter.state == PENDING:
        waiter.finish(None)


cdef PySendResult advance(PyObject *operation, PyObject *value, PyObject **result) except PYGEN_ERROR:
    cdef SocketOperation self = <SocketOperation>operation
    cdef PyObject *done
    if self.stage != CREATED:
        self.resume()
    else:
        if value != NULL and value != <PyObject *>None:
            raise TypeError("can't send non-None value to a just-started coroutine")
        # The finalizer warns of a coroutine that was never awaited.
        finalizer_skip(self)
        self.stage = RUNNING
        if self.loop.debug or type(self.sock) is not socket_class:
            self.check_socket()
    done = self.attempt(self)
    if done != NULL:
        result[0] = done
        return PYGEN_RETURN
    self.wait_for_socket()
    self.stage = WAITING
    self.waiter.blocking = True
    result[0] = Py_NewRef(self.waiter)
    return PYGEN_NEXT


# advance() without its declared error value: operation_send() passes the status and the error indicator on.
cdef sendfunc advance_unchecked = <sendfunc>advance


cdef PySendResult operation_send(PyObject *operation, PyObject *value, PyObject **result) noexcept:
    """The am_send slot. See FutureIter."""
    cdef SocketOperation self = <SocketOperation>operation
    # A send() from inside an attempt is refused, and does not end the operation.
    cdef bint inside = self.stage == RUNNING
    cdef PySendResult status = advance_unchecked(operation, value, result)
    if self.stage == RUNNING and not inside:
        self.stage = CLOSED
        self.drop_references()
    return status


cdef PyObject *operation_next(PyObject *operation) noexcept:
    """The tp_iternext slot."""
    cdef PyObject *result = NULL
    if operation_send(operation, NULL, &result) == PYGEN_RETURN:
        end_iteration(steal(result))
        return NULL
    return result


install_send_slots(<PyTypeObject *>SocketOperation, operation_send, operation_next)
free_memory_install(<PyTypeObject *>SocketOperation)


# -- waiting -----------------------------------------------------------------------------------------------------------

@cython.final
@cython.no_gc_clear
cdef class SocketWatcher(Watcher):
    """The operations that wait for one socket, and its edge-triggered registration, for their events or more."""
    cdef LoopCore loop
    cdef PollerSelector poller
    cdef object socket              # a weak reference
    cdef SocketOperation reader
    cdef SocketOperation writer
    cdef int fd
    cdef int events                 # reported and not yet handled
    cdef bint queued                # on the ready queue, because of these events

    cdef int on_events(self, int events) except -1:
        if not self.queued:
            push(self.loop.ready, self)
            self.queued = True
        self.events |= events
        return 0

    cdef int run(self) except -1:
        cdef int events = self.events
        cdef bint woken = False
        self.events = 0
        self.queued = False
        if events & POLLER_READ:
            woken = self.wake_operation(POLLER_READ)
        if events & POLLER_WRITE:
            woken = self.wake_operation(POLLER_WRITE) or woken
        if not woken:
            self.reduce_registration()
        return 0

    def _run(self):
        run_reporting(self, self.loop)

    cdef int taken_off(self, bint dropped) except -1:
        # The next poll reports the events again.
        if self.queued:
            self.queued = False
            if self.poller.entry(self.fd) is self:
                self.poller.rearm(self.fd)
        return 0

    cdef bint wake_operation(self, int event) except -1:
        """Finish the waiter of the operation that waits for `event`, which resumes the task that awaits it. Until then
        the operation stays here, because it may have to wait again."""
        cdef SocketOperation operation = self.reader if event == POLLER_READ else self.writer
        cdef Future waiter
        if not is_pending(operation) or operation.handle is not None and operation.handle.was_cancelled:
            return False
        waiter = operation.waiter
        waiter.finish(None)
        return True

    cdef int reduce_registration(self) except -1:
        """An event came for which no operation waits: register only for the others."""
        cdef int events = self.awaited_events()
        if self.poller.entry(self.fd) is not self:
            # A callback or a transport has taken its place since.
            return 0
        if events == 0:
            self.poller.detach(self.fd)
            return 0
        try:
            self.poller.change(self.fd, events | POLLER_EDGE)
        except OSError:
            # The socket is closed: the event came for another descriptor of the same file.
            pass
        return 0

    cdef SocketOperation set_operation(self, int event, SocketOperation operation):
        """Set the operation that waits for `event`; returns the one before."""
        cdef SocketOperation before
        if event == POLLER_READ:
            before = self.reader
            self.reader = operation
        else:
            before = self.writer
            self.writer = operation
        return before

    cdef int awaited_events(self) noexcept:
        """The events for which operations wait that were not cancelled."""
        return (POLLER_READ if is_pending(self.reader) else 0) | (POLLER_WRITE if is_pending(self.writer) else 0)

    cdef bint is_idle(self) noexcept:
        return self.awaited_events() == 0

    cdef bint waits_for(self, object sock) except -1:
        return (self.reader is not None or self.writer is not None) and refers_to(self.socket, sock)

    cdef int add_operation(self, SocketOperation operation, bint again) except -1:
        """Let `operation` wait here, in place of any other. One that waits `again`, woken too early, displaces none."""
        cdef int event = operation.event
        if again and self.awaited_events() & event:
            return 0
        self.poller.change(self.fd, self.awaited_events() | event | POLLER_EDGE)
        # An event of this turn was for the operation before, and the kernel now reports the socket's state again.
        self.events &= ~event
        self.set_operation(event, operation)
        return 0

    cdef int forget_operation(self, SocketOperation operation) except -1:
        if operation is self.reader:
            self.reader = None
        elif operation is self.writer:
            self.writer = None
        return 0

    cdef int yield_to_callback(self) except -1:
        """A callback is added for this descriptor: let the operations wait by callbacks, too."""
        cdef SocketOperation operation
        cdef Future waiter
        cdef bint same_file = self.poller.detach(self.fd)
        for event in (POLLER_READ, POLLER_WRITE):
            operation = self.reader if event == POLLER_READ else self.writer
            # One whose socket was closed waits in vain, as under asyncio: the callback is for another file. One whose
            # socket was only detached finds with the next event that it has no descriptor.
            if is_pending(operation) and (same_file or socket_object_fileno(operation.sock) >= 0):
                try:
                    operation.wait_by_callback(True)
                except Exception as error:
                    # This operation gets the error, unless a replaced _add_reader() has closed it; the other one still
                    # gets its callback.
                    if is_pending(operation):
                        waiter = operation.waiter
                        waiter.fail(error)
            # An event of this turn still wakes it in its place, unless another callback takes that of its own.
            if not self.events & event:
                self.set_operation(event, None)
        return 0


cdef inline bint is_pending(SocketOperation operation) noexcept:
    return operation is not None and operation.stage == WAITING and operation.waiter.state == PENDING


cdef bint watch_socket(PollerSelector poller, SocketOperation operation, bint again) except -1:
    """Let the operation wait by its socket's registration, an old or a new one; False if that is not possible."""
    cdef int fd = operation.fd
    cdef object entry = poller.entry(fd)
    cdef SocketWatcher watcher
    if type(entry) is SocketWatcher:
        watcher = <SocketWatcher>entry
        if refers_to(watcher.socket, operation.sock):
            watcher.add_operation(operation, again)
            return True
        if not watcher.is_idle():
            return False
    elif poller.is_registered(fd):
        return False
    watcher = SocketWatcher.__new__(SocketWatcher)
    watcher.loop = operation.loop
    watcher.poller = poller
    watcher.fd = fd
    watcher.socket = PyWeakref_NewRef(operation.sock, NULL)
    poller.attach(fd, watcher, operation.event | POLLER_EDGE)
    watcher.set_operation(operation.event, operation)
    return True


remove_constructor(<PyTypeObject *>SocketOperation)
remove_constructor(<PyTypeObject *>SocketWatcher)
