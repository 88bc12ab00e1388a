"""instance_dict.h, for a module that has defined INSTANCE_DICT_OWNER."""

from cpython.object cimport PyTypeObject

cdef extern from "runtime/instance_dict.h":
    void instance_dict_install(PyTypeObject *)
    void instance_dict_clear(object owner) noexcept
    bint instance_dict_is_absent(object owner) noexcept
    object instance_dict_get(object owner)
    int instance_dict_set(object owner, object attributes) except -1
