from hotloop._c.address cimport AddressCache
from hotloop._c.core cimport LoopCore


cdef class NetworkCore(LoopCore):
    cdef AddressCache addresses     # of the peers of all datagram transports; None until there is one
