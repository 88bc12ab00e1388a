from cpython.object cimport PyObject

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.network.socket_operation cimport SocketOperation


cdef SocketOperation receive(LoopCore loop, object sock, object size)
cdef SocketOperation receive_into(LoopCore loop, object sock, object buffer)
cdef SocketOperation receive_from(LoopCore loop, object sock, object size)
cdef SocketOperation receive_from_into(LoopCore loop, object sock, object buffer, object size)
cdef SocketOperation send_all(LoopCore loop, object sock, object data)
cdef SocketOperation send_to(LoopCore loop, object sock, object data, object address)
cdef SocketOperation accept(LoopCore loop, object sock)

cdef bint can_call_kernel(SocketOperation self) except -1
cdef PyObject *call_method(SocketOperation self, str name, tuple arguments) except? NULL
