"""The system calls that fail, with their errors, and the extension's other calls.

The errors are those of the man pages that a program with correct arguments can meet; EBADF means that another part of
the program has closed the descriptor. `short` stands for fewer bytes than asked for. Calls that only the standard
library makes for a loop are here as well, because a loop has to cope with their failures, too.
"""

import errno
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .shim import SHORT, Fault

ERRORS = {
    "recv": "EINTR EAGAIN ECONNRESET ETIMEDOUT ENOMEM ENOBUFS EIO ENOTCONN EBADF short",
    "recvfrom": "EINTR EAGAIN ECONNREFUSED ENOMEM ENOBUFS EBADF short",
    "recvmsg": "EINTR EAGAIN ECONNRESET ENOMEM EBADF",
    "send": "EINTR EAGAIN EPIPE ECONNRESET ENOBUFS ENOMEM EACCES EPERM EBADF short",
    "sendmsg": "EINTR EAGAIN EPIPE ECONNRESET ENOBUFS ENOMEM EPERM EBADF short",
    "sendto": "EINTR EAGAIN ECONNREFUSED EPIPE ENOBUFS ENOMEM EACCES EPERM EMSGSIZE ENETUNREACH EBADF short",
    "read": "EINTR EAGAIN EIO EISDIR EBADF short",
    "write": "EINTR EAGAIN EIO EPIPE ENOSPC EDQUOT EFBIG EPERM EBADF short",
    "readv": "EINTR EAGAIN EIO EBADF",
    "writev": "EINTR EAGAIN EIO EPIPE ENOSPC EBADF short",
    "sendfile": "EINTR EAGAIN EIO ENOMEM EINVAL ENOSYS EPIPE short",
    "accept4": "EINTR EAGAIN ECONNABORTED EMFILE ENFILE ENOBUFS ENOMEM EPERM EPROTO ENETDOWN EBADF",
    "accept": "EMFILE",
    "connect": "EINTR EAGAIN ECONNREFUSED ETIMEDOUT ENETUNREACH EADDRNOTAVAIL EACCES EPERM ENOBUFS",
    "close": "EINTR EIO ENOSPC",
    "socket": "EMFILE ENFILE ENOBUFS ENOMEM EACCES EAFNOSUPPORT",
    "socketpair": "EMFILE ENFILE",
    "bind": "EADDRINUSE EACCES ENOMEM",
    "listen": "EADDRINUSE",
    "shutdown": "ENOTCONN ENOBUFS EBADF",
    "getsockopt": "ENOBUFS ENOMEM EBADF",
    "setsockopt": "ENOBUFS EINVAL ENOPROTOOPT EBADF",
    "getsockname": "ENOBUFS EBADF",
    "getpeername": "ENOBUFS ENOTCONN EBADF",
    "fcntl": "EBADF",
    "pipe2": "EMFILE ENFILE",
    "eventfd": "EMFILE ENFILE ENODEV ENOMEM",
    "epoll_create1": "EMFILE ENFILE ENOMEM",
    "epoll_ctl_add": "ENOMEM ENOSPC EBADF",
    "epoll_ctl_mod": "ENOMEM EBADF ENOENT",
    "epoll_ctl_del": "EBADF ENOENT",
    "epoll_wait": "EINTR EBADF",
    "poll": "EINTR EINVAL ENOMEM",
    "waitpid": "EINTR ECHILD",
    "waitid": "EINTR ECHILD",
    "pidfd_open": "EMFILE ENFILE ENODEV ENOMEM ENOSYS EPERM ESRCH",
}

# In a row: an immediate retry fails again.
COUNTS = (1, 3)
EVERY_ONE = 100_000

# The extension calls these functions under other names; the errors of those cover them.
COVERED_AS = {
    "epoll_ctl": "epoll_ctl_add",
    "fcntl64": "fcntl",
    "sendfile64": "sendfile",
    "syscall": "pidfd_open",
    "__recv_chk": "recv",
    "__recvfrom_chk": "recvfrom",
    "__read_chk": "read",
}

# memory.py makes these fail.
ALLOCATORS = {"malloc", "calloc", "realloc"}

HARMLESS = {
    # These need only the CPU.
    *("memchr", "memcmp", "memcpy", "memmove", "memset", "strchr", "strcmp", "strlen", "strncmp", "strnlen", "strrchr"),
    *("bcmp", "memmem", "strcpy", "__memcpy_chk", "__memmove_chk", "__memset_chk", "__strcpy_chk"),
    *("inet_ntop", "inet_pton"),
    *("__stack_chk_fail", "__assert_fail", "abort", "ceil", "nextafter", "htonl", "htons", "ntohl", "ntohs"),
    # It fails only for clocks that do not exist; the requested one exists.
    "clock_gettime",
    *("free", "__errno_location"),
    # If it fails, the poller keeps the kernel's set that it has (poller/epoll.h).
    "dup3",
    # If it does not say how much is waiting, that comes with the next read (system/receive.h).
    "ioctl",
    # Without them TLS is done by the ssl module: see tests/tls/test_tls_openssl.py.
    *("dlopen", "dlsym"),
    # At import, from a table that glibc enlarges: if that fails the module is not imported.
    *("__register_atfork", "pthread_atfork"),
    # The start and end code of a shared library.
    *("_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize", "__gmon_start__", "__tls_get_addr"),
}


def undefined_symbols(library: Path) -> set[str]:
    """The functions that `library` imports, without those of Python. Raises FileNotFoundError without nm."""
    command = ["nm", "--dynamic", "--undefined-only", str(library)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].partition("@")[0] for line in listed.splitlines()}
    return {name for name in names if not re.match(r"_?Py|__py", name)}


def uncovered(library: Path) -> set[str]:
    """The functions that `library` calls that neither fail here nor are known to be harmless."""
    return undefined_symbols(library) - set(ERRORS) - set(COVERED_AS) - ALLOCATORS - HARMLESS


def faults(call: str, calls: int) -> Iterator[Fault]:
    """All faults for a scenario with so many `calls` of it, the first occurrences of every error first."""
    errors = [SHORT if name == "short" else getattr(errno, name) for name in ERRORS[call].split()]
    for error in errors if calls else ():
        if error == SHORT:
            yield Fault(call, 1, EVERY_ONE, error)
    for first in range(1, calls + 1):
        for error in errors:
            for count in COUNTS:
                yield Fault(call, first, count, error)
