from hotloop._c.tls.protocol cimport TlsProtocol


cdef class SSLTransport:
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h; absent until one is set
    cdef object __weakref__
    cdef TlsProtocol tls


cdef SSLTransport new_tls_transport(TlsProtocol tls)
