"""A server's connections, as asyncio.Server keeps them: until 3.12 a number, since 3.13 weak references.

Server._attach() and _detach() keep the references in a WeakSet, whose Python code costs as much as all other work of
opening and closing a transport. Unless they were overridden or replaced, this module does their work.

Source: asyncio/base_events.py, Server; _weakrefset.py.
"""

from cpython.set cimport PySet_Add, PySet_Discard, PySet_GET_SIZE
from cpython.weakref cimport PyWeakref_NewRef

from hotloop._c.runtime.bound_methods cimport is_method

import sys
import weakref
from asyncio import base_events

# Until 3.12 a server only counted its transports.
cdef bint server_knows_transports = sys.version_info >= (3, 13)
cdef object WeakSet = weakref.WeakSet
# asyncio's own functions, as they were when this module was imported.
cdef object attach_function = base_events.Server._attach
cdef object detach_function = base_events.Server._detach
# Until 3.13 a WeakSet removes the references that die during an iteration only after it.
cdef bint removals_wait = hasattr(WeakSet(), "_pending_removals")


cdef int attach_to_server(object server, object transport) except -1:
    """Add a transport to the server's connections. AssertionError once the server is closed."""
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
    """Remove a transport from the server's connections. The last one of a closed server ends wait_closed()."""
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
    """The WeakSet that `method` changes, if it is asyncio's `function`. None: the caller has to call the method."""
    cdef object clients
    if not is_method(method, server, function):
        return None
    clients = server._clients
    if type(clients) is not WeakSet or removals_wait and clients._pending_removals:
        return None
    return clients
