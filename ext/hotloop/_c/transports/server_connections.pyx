"""A server's connections, as asyncio.Server keeps them: until 3.12 a number, since 3.13 weak references.

Server._attach() and _detach() reach the references through a WeakSet written in Python, which costs as much as all else
that is done to open and close a transport. Where they are exactly these, neither overridden nor replaced, what they do
is done here.

Source: asyncio/base_events.py, Server; _weakrefset.py.
"""

from cpython.set cimport PySet_Add, PySet_Discard, PySet_GET_SIZE
from cpython.weakref cimport PyWeakref_NewRef

from hotloop._c.runtime.bound_methods cimport is_method

import sys
import weakref
from asyncio import base_events

# Before, a server counted them only.
cdef bint server_knows_transports = sys.version_info >= (3, 13)
cdef object WeakSet = weakref.WeakSet
# As they were when this module was imported: asyncio's own.
cdef object attach_function = base_events.Server._attach
cdef object detach_function = base_events.Server._detach
# Until 3.13 references that die during an iteration wait for its end.
cdef bint removals_wait = hasattr(WeakSet(), "_pending_removals")


cdef int attach_to_server(object server, object transport) except -1:
    """Count a transport among the server's connections. AssertionError once the server is closed."""
    cdef object method = server._attach, clients
    if not server_knows_transports:
        method()
        return 0
    clients = clients_of(server, method, attach_function)
    if clients is None or server._sockets is None:
        method(transport)
    else:
        PySet_Add(clients.data, PyWeakref_NewRef(transport, clients._remove))
    return 0


cdef int detach_from_server(object server, object transport) except -1:
    """Count it no more; the last one of a closed server wakes whoever waits for that."""
    cdef object method = server._detach, clients, references
    if not server_knows_transports:
        method()
        return 0
    clients = clients_of(server, method, detach_function)
    if clients is None:
        method(transport)
        return 0
    references = clients.data
    PySet_Discard(references, PyWeakref_NewRef(transport, None))
    if PySet_GET_SIZE(references) == 0 and server._sockets is None:
        server._wakeup()
    return 0


cdef object clients_of(object server, object method, object function):
    """The WeakSet that `method` changes if it is made of asyncio's `function`. None: the method has to be called."""
    cdef object clients
    if not is_method(method, server, function):
        return None
    clients = server._clients
    if type(clients) is not WeakSet or removals_wait and clients._pending_removals:
        return None
    return clients
