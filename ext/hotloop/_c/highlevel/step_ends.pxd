from hotloop._c.highlevel.coroutine cimport Coroutine


cdef object await_object(Coroutine coroutine, object awaitable)
cdef bint may_merge() noexcept
cdef object await_merged(Coroutine coroutine, int position, object owner, object waiter)
cdef object yield_bare(Coroutine coroutine)
cdef object delegate(Coroutine coroutine, object asyncio_coroutine)
cdef object delegated(Coroutine coroutine, object outcome, object error)
