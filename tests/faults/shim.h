/* Makes one thing at a time fail: a system call (shim_system_calls.c), an allocation of Python's, or one of the
 * extension's from libc (shim_memory.c).
 *
 * It is preloaded (LD_PRELOAD), so that its functions come before libc's; shim.py sets the faults of memory.py and
 * system_calls.py through ctypes. Nothing fails before shim_arm(), nor in another program that is started. */
#ifndef HOTLOOP_FAULTS_SHIM_H
#define HOTLOOP_FAULTS_SHIM_H

#define _GNU_SOURCE
#include <stdatomic.h>

enum { NOTHING, PYTHON_MEMORY, LIBC_MEMORY, SYSTEM_CALL, CENSUS };

#pragma GCC visibility push(hidden)

extern struct fault {
    int kind;
    char name[32];
    long first, count; /* `count` calls fail, from the `first` on */
    int error;
    atomic_long seen, failed;
} fault;
extern atomic_int armed;
extern atomic_long polls;
extern __thread int inside; /* the shim itself allocates, or backtrace() does */

/* Whether this call is among those that fail; the first of them has its stack reported. */
int falls(void);

/* 0, or the answer that the system call `name` has to give: an errno or SHORT. */
int fails(const char *name);

#pragma GCC visibility pop
#endif
