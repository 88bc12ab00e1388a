/* No exception gets a traceback entry for compiled code, those that are made in it neither: asyncio's futures and tasks are C.
 *
 * quiet.h says what Cython would do, and what is done about it elsewhere. In its place, for the modules of futures and tasks.
 *
 * An `except X as error:` there must not be left by `return`: the code that Cython makes of it takes for granted that the exception
 * has a traceback. Falling out of the clause, and `raise`, do not.
 */
#ifndef HOTLOOP_SILENT_H
#define HOTLOOP_SILENT_H

#include <Python.h>
#include <frameobject.h>

#if defined(CYTHON_WITHOUT_ASSERTIONS) && !defined(CYTHON_TRACE)

#define PyFrame_New(thread, code, globals, locals) NULL

#endif

#endif
