/* Exceptions pass through compiled code without leaving a frame, as they pass through asyncio's own C.
 *
 * Cython adds a traceback entry wherever an exception leaves one of its functions. Users would find lines of .pyx files
 * they do not have in their tracebacks, one more each time a future's exception is raised, and pay for it. Cython calls
 * PyFrame_New() for nothing else. Debug and coverage builds keep the entries.
 */
#ifndef HOTLOOP_QUIET_H
#define HOTLOOP_QUIET_H

#include <Python.h>
#include <frameobject.h>

#if defined(CYTHON_WITHOUT_ASSERTIONS) && !defined(CYTHON_TRACE)
#define PyFrame_New(thread, code, globals, locals) ((void)(thread), (void)(code), (void)(globals), (PyFrameObject *)NULL)
#endif

#endif
