"""LoopState: a loop's state, under the names by which asyncio and others know it.

BaseEventLoop and its subclasses set attributes, and read and write those of the loop they are; so do debuggers, test
suites and packages that run a loop themselves. All of them are here. What has no meaning for the compiled code is kept
as it is set; what has one is a property.
"""

from hotloop._c.address cimport AddressCache
from hotloop._c.inbox cimport Inbox
from hotloop._c.ready cimport ReadyQueue
from hotloop._c.selector cimport PollerSelector
from hotloop._c.timers cimport TimerQueue

cdef extern from "quiet.h":
    pass


cdef class LoopState:
    """What LoopCore works on."""

    def __cinit__(self, *args, **kwargs):
        self.ready = ReadyQueue()
        self.timers = TimerQueue()
        self.inbox = Inbox()
        self.addresses = AddressCache()

    @property
    def _ready(self):
        return self.ready

    @_ready.setter
    def _ready(self, handles):
        self.ready.clear()
        self.ready.extend(handles)

    @property
    def _scheduled(self):
        # A list made for the caller. A timer that he puts on `_ready`, as nest_asyncio does with the due ones, leaves
        # the timers there; changing the list itself changes nothing.
        return self.timers.in_order()

    @_scheduled.setter
    def _scheduled(self, handles):
        self.timers.clear()
        for handle in handles:
            self.timers.push(handle)

    @property
    def _selector(self):
        return self.selector

    @_selector.setter
    def _selector(self, selector):
        self.selector = selector
        self.poller = selector if isinstance(selector, PollerSelector) else None

    @property
    def _debug(self):
        return self.debug

    @_debug.setter
    def _debug(self, value):
        self.debug = bool(value)
        self.observing = self.observing & ~OBSERVE_DEBUG | (OBSERVE_DEBUG if self.debug else 0)
        self.ready.direct = self.schedules_itself and not self.debug

    @property
    def _closed(self):
        return self.closed

    @_closed.setter
    def _closed(self, value):
        self.closed = self.ready.closed = bool(value)
        if value:
            self.timers.clear()
            # Into the ready queue, which close() empties next.
            self.inbox.empty_into(self.ready)

    @property
    def _stopping(self):
        return self.stopping

    @_stopping.setter
    def _stopping(self, value):
        self.stopping = bool(value)

    @property
    def _thread_id(self):
        return self.thread_id

    @_thread_id.setter
    def _thread_id(self, value):
        self.thread_id = value

    @property
    def _task_factory(self):
        return self.task_factory

    @_task_factory.setter
    def _task_factory(self, value):
        self.task_factory = value
