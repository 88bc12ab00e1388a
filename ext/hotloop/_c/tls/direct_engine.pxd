from hotloop._c.tls.engine cimport TlsEngine


cdef TlsEngine new_engine(object context, bint server_side, object server_hostname)
