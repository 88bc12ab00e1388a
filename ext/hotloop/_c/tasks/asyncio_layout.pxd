cdef extern from "tasks/tasks_in_view.h":
    ctypedef struct view_offsets:
        size_t link


cdef int find_asyncios_list(view_offsets *ours) except -2
