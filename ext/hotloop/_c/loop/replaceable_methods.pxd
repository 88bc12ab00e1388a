from hotloop._c.loop.state cimport LoopState


cdef class ReplaceableMethods(LoopState):
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h; absent until one is set or asked for
    cdef object time_replacement    # a replacement of time(); None: time() is time.monotonic()
    cdef bint run_once_is_original  # _run_once() is not overridden; other threads read it
    cdef bint process_events_is_original
    cdef bint run_forever_halves_are_original   # neither _run_forever_setup() nor _run_forever_cleanup() is overridden
    cdef bint call_at_is_original
    cdef set replaced_methods       # names of methods replaced on this loop object, by setting an attribute
    cdef Py_ssize_t replacements    # how often that set was changed
    cdef double resolution          # _clock_resolution, in seconds; 0 if it is no number

    cdef int count_replacement(self) except -1
    cdef int find_overrides(self) except -1
    cdef int note_overrides(self, set replaced, unsigned int version) except -1
    cdef bint creation_is_replaced(self) except -1
    cdef double current_time(self, bint *patched) except? -1
    cdef double due_until(self, double now, bint patched) noexcept


cdef bint clock_is_patched() except -1
cdef int declare_originals(type core) except -1
