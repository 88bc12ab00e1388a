from hotloop._c.poller.poller cimport Poller


cdef class PollerSelector(Poller):
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h; absent until one is set
    cdef object __weakref__
    cdef object map                 # what get_map() returns; None once closed
    cdef unsigned int type_version  # the version tag of the class when `class_select_is_original` was last found
    cdef bint class_select_is_original  # the class has no select() but PollerSelector's

    cdef bint select_is_original(self) except -1
    cdef int descriptor(self, object fileobj) except? -1
    cdef int descriptor_to_add(self, object fileobj) except -1
    cdef list descriptors_in_map(self)
    cdef object entry_in_map(self, int fd)
    cdef object key(self, int fd)
    cdef object as_key(self, int fd, object entry)
