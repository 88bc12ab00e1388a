"""Child processes: from the end of a process to its subprocess transport, without a child watcher.

A pidfd becomes readable when its process ends, whatever thread the loop runs in and whatever handles SIGCHLD. Where the
kernel has none, or no descriptor is left, a thread waits for that one process. In either case the loop's own thread
reaps the process, so that a signal sent from that thread never reaches another process with the same pid.

Source: pidfd_open(2), waitid(2); asyncio/unix_events.py, _PidfdChildWatcher and _ThreadedChildWatcher.
"""

cimport cython
from cpython.contextvars cimport PyContext_Enter, PyContext_Exit
from cpython.object cimport PyTypeObject

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport POLLER_READ, Watcher
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.scheduler.handles cimport copy_current_context, run_reporting
from hotloop._c.scheduler.ready_queue cimport push
from hotloop._c.system.os_errors cimport os_error

import asyncio
import os
import threading
from asyncio import base_events, unix_events

cdef extern from "system/process_calls.h":
    int process_open(int pid)
    bint process_has_exited(int pid, int *exit_code)


def pidfd_open(pid):
    """A descriptor that becomes readable when the process ends. OSError if the kernel does not supply one."""
    cdef int fd = process_open(pid)
    if fd < 0:
        raise os_error(fd)
    return fd


@cython.final
@cython.no_gc_clear
cdef class ProcessWatcher(Watcher):
    """One running child process."""
    cdef LoopCore loop
    cdef object transport           # asyncio's subprocess transport; None: it knows the exit code
    cdef object context             # of the call that started the process
    cdef int pid
    cdef int fd                     # the pidfd; -1: closed
    cdef int exit_code              # if `exited`
    cdef bint exited                # reported by the kernel, which may do that only once
    cdef bint tell_again            # the transport is to be told again: the first time memory ran out
    cdef bint queued

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        # A loop may be closed while child processes run.
        if self.fd >= 0:
            close(self.fd)

    cdef int on_events(self, int events) except -1:
        if not self.queued:
            push(self.loop.ready, self)
            self.queued = True
        return 0

    cdef int run(self) except -1:
        cdef object transport = self.transport
        self.queued = False
        if transport is None:
            return 0
        try:
            returncode = self.reap_if_ended()
            if returncode is None:
                return 0
            PyContext_Enter(self.context)
            try:
                if self.tell_again and transport.get_returncode() is not None:
                    finish_process_exit(transport)
                else:
                    self.loop._child_watcher_callback(self.pid, returncode, transport)
            finally:
                PyContext_Exit(self.context)
        except MemoryError:
            # The pidfd stays readable, so the poller reports it again.
            self.tell_again = True
            raise
        except BaseException:
            self.close_pidfd()
            raise
        return self.close_pidfd()

    cdef object reap_if_ended(self):
        """The exit code; None if the process has not ended."""
        if self.tell_again and self.exited:
            try:
                os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pass
            return self.exit_code
        self.exited = process_has_exited(self.pid, &self.exit_code)
        return reap(self.pid, self.transport, os.WNOHANG)

    cdef int close_pidfd(self) except -1:
        cdef int fd = self.fd
        self.transport = None
        self.fd = -1
        if self.loop.poller is not None:
            self.loop.poller.detach(fd)
        close(fd)
        return 0

    def _run(self):
        run_reporting(self, self.loop)

    cdef int taken_off(self, bint dropped) except -1:
        # The next poll reports the end again.
        self.queued = False
        return 0

    def __repr__(self):
        return f"<{type(self).__name__} pid={self.pid} fd={self.fd}>"


cdef extern from "unistd.h":
    int close(int fd)


cdef int watch_process(LoopCore loop, object transport) except -1:
    """Have loop._child_watcher_callback() called when the process of a subprocess transport has ended."""
    cdef ProcessWatcher watcher = ProcessWatcher.__new__(ProcessWatcher)
    cdef PollerSelector poller
    watcher.loop = loop
    watcher.transport = transport
    watcher.context = copy_current_context()
    watcher.pid = transport.get_pid()
    # An audit hook may have closed the loop, or set another selector, when the process was started.
    loop.check_open()
    poller = loop.poller
    try:
        if poller is not None:
            watcher.fd = pidfd_open(watcher.pid)
            poller.attach(watcher.fd, watcher, POLLER_READ)
            return 0
    except OSError:
        pass
    wait_in_thread(loop, watcher.pid, transport, watcher.context)
    return 0


cdef object reap(int pid, object transport, int options):
    """The exit code of a child that has ended; None if it has not, and `options` has WNOHANG."""
    try:
        found, status = os.waitpid(pid, options)
    except ChildProcessError:
        pass
    else:
        return unix_events.waitstatus_to_exitcode(status) if found else None
    return returncode_of_reaped(pid, transport)


cdef object returncode_of_reaped(int pid, object transport):
    """The exit code of a child that other code has reaped: its Popen object has it if poll() or wait() did that."""
    cdef object returncode = transport.get_extra_info("subprocess").returncode
    if returncode is None:
        base_events.logger.warning("child process pid %d exit status already read:  will report returncode 255", pid)
        returncode = 255
    return returncode


cdef int finish_process_exit(object transport) except -1:
    """The transport knows the exit code, but memory ran out before it told the tasks that wait for the process.

    Up to Python 3.13 the loop calls _process_exited() in another callback, so the watcher never sees its exceptions.
    """
    cdef object waiters = transport._exit_waiters
    if not transport._finished:
        transport._try_finish()
    if waiters is None:
        return 0
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(transport.get_returncode())
    transport._exit_waiters = None
    return 0


def report_exit(loop, pid, transport, returncode):
    """Tell the transport the exit code; reap its process first if that is not known yet."""
    if returncode is None:
        returncode = reap(pid, transport, 0)
    loop._child_watcher_callback(pid, returncode, transport)


# -- where there is no pidfd -------------------------------------------------------------------------------------------

def wait_in_thread(loop, pid, transport, context):
    threading.Thread(
        target=wait_for_process, args=(loop, pid, transport, context), name=f"asyncio-waitpid-{pid}", daemon=True
    ).start()


def wait_for_process(loop, pid, transport, context):
    returncode = wait_until_exited(pid, transport)
    try:
        loop.call_soon_threadsafe(report_exit, loop, pid, transport, returncode, context=context)
    except RuntimeError:
        base_events.logger.warning("Loop %r that handles pid %r is closed", loop, pid)
        if returncode is None:
            # No other code would.
            reap(pid, transport, 0)


def wait_until_exited(pid, transport):
    """Block until a child has ended, without reaping it. If that is impossible, reap it and return its exit code."""
    if not hasattr(os, "waitid"):
        # Python before 3.13 on macOS.
        return reap(pid, transport, 0)
    try:
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT).si_code == os.CLD_STOPPED:
            # macOS reports children that are merely stopped, too: see asyncio/unix_events.py of Python 3.14.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG)
    except ChildProcessError:
        pass
    return None


# -- child watchers that a program has set, on Python up to 3.13 -------------------------------------------------------

cdef tuple ASYNCIO_WATCHERS = tuple(
    getattr(unix_events, name) for name in ("ThreadedChildWatcher", "PidfdChildWatcher") if hasattr(unix_events, name)
)


cdef bint program_set_child_watcher() except -1:
    """Whether the program has called asyncio.set_child_watcher(). It expects its watcher to be used, and some watchers
    reap any child they find. asyncio's default watcher, which may be set already, does no more than this module."""
    if not ASYNCIO_WATCHERS:
        return False
    watcher = getattr(asyncio.get_event_loop_policy(), "_watcher", None)
    return watcher is not None and type(watcher) not in ASYNCIO_WATCHERS


remove_constructor(<PyTypeObject *>ProcessWatcher)
