/* Which call fails, what stack it had, and what shim.py calls. See shim.h. */
#include "shim.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unwind.h>

struct fault fault;
atomic_int armed;
atomic_long polls;
__thread int inside;
static int report_fd = -1;
static struct { const char *name; atomic_long count; } census[64]; /* of each system call, while nothing fails */

/* GCC may split _PyEval_EvalFrameDefault(), and the part that runs less often has no exported name. PyEval_EvalCode(),
 * which is at the bottom of the main thread's stack, calls one part or the other. judging.py looks for the name. */
static void *evaluating_part;

static void *function_of(void *frame) { return _Unwind_FindEnclosingFunction((char *)frame - 1); }

static int is_in(void *frame, const char *name)
{
    Dl_info found;
    return dladdr((char *)frame - 1, &found) && found.dli_sname && strcmp(found.dli_sname, name) == 0;
}

static void find_evaluating_part(void)
{
    void *frames[200];
    int count = backtrace(frames, 200);
    for (int i = 1; i < count; i++)
        if (is_in(frames[i], "PyEval_EvalCode") && !is_in(frames[i - 1], "_PyEval_EvalFrameDefault"))
            evaluating_part = function_of(frames[i - 1]);
}

static void report_stack(void)
{
    void *frames[40];
    int count = backtrace(frames, 40);
    for (int i = 0; i < count; i++)
        if (evaluating_part && function_of(frames[i]) == evaluating_part)
            dprintf(report_fd, "_PyEval_EvalFrameDefault, a part of it [%p]\n", frames[i]);
        else
            backtrace_symbols_fd(frames + i, 1, report_fd);
    inside--;
}

int falls(void)
{
    long number = atomic_fetch_add(&fault.seen, 1) + 1;
    if (number < fault.first || number - fault.first >= fault.count)
        return 0;
    if (atomic_fetch_add(&fault.failed, 1) == 0 && report_fd >= 0)
        report_stack();
    return 1;
}

int fails(const char *name)
{
    if (!armed || inside)
        return 0;
    for (int i = 0; fault.kind == CENSUS && i < 64; i++)
        if (!census[i].name || strcmp(census[i].name, name) == 0) {
            census[i].name = name;
            census[i].count++;
            break;
        }
    if (fault.kind != SYSTEM_CALL || strcmp(name, fault.name) != 0)
        return 0;
    return falls() ? fault.error : 0;
}

/* The Python handlers of faulthandler come before this one, and raise the signal again. */
static void on_crash(int number)
{
    report_stack();
    signal(number, SIG_DFL);
    raise(number);
}

void shim_report_to(int fd)
{
    static char stack[65536];
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK | SA_NODEFER};
    find_evaluating_part(); /* its backtrace() also loads the libraries that later ones need */
    report_fd = fd;
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    for (unsigned i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigaction(crashes[i], &action, NULL);
}

void shim_set(int kind, const char *name, long first, long count, int error)
{
    armed = 0;
    fault.kind = kind;
    strncpy(fault.name, name, sizeof fault.name - 1);
    fault.first = first;
    fault.count = count;
    fault.error = error;
    fault.seen = fault.failed = 0;
}
void shim_arm(void) { armed = 1; }
void shim_disarm(void) { armed = 0; }
long shim_seen(void) { return fault.seen; }
long shim_failed(void) { return fault.failed; }
long shim_calls(const char *name)
{
    for (int i = 0; i < 64 && census[i].name; i++)
        if (strcmp(census[i].name, name) == 0)
            return census[i].count;
    return 0;
}
long shim_polls(void) { return polls; }
