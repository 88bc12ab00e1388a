"""Objects that the package alone makes: a program can reach their classes, and gets an exception from them."""

import asyncio
import importlib
import socket

import pytest

CLASSES = {
    "poller.descriptor_callbacks": ["CallbackWatcher"],
    "network.child_process": ["ProcessWatcher"],
    "network.socket_operation": ["SocketOperation", "SocketWatcher"],
    "tls.protocol": ["TlsProtocol"],
    "tls.transport": ["SSLTransport"],
    "highlevel.as_completed": ["CompletionCallback"],
    "highlevel.task_group": ["GroupCallback"],
    "highlevel.shield": ["ShieldCallback"],
    "highlevel.gathering": ["ChildCallback"],
    "highlevel.wait": ["WaitCallback"],
}
NAMES = [(module, name) for module, names in CLASSES.items() for name in names]
only_c = pytest.mark.only("c", reason="the classes are those of the extension")


@only_c
@pytest.mark.parametrize(("module", "name"), NAMES)
def test_an_object_cannot_be_made(impl, module, name):
    found = getattr(importlib.import_module(f"hotloop._c.{module}"), name)
    for make in (found, lambda: found.__new__(found), lambda: object.__new__(found)):
        with pytest.raises(TypeError):
            make()


@only_c
def test_what_a_loop_hands_out(impl, loop):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        operation = loop.sock_recv(ours, 1)
        operation.close()
        with pytest.raises(TypeError):
            type(operation)()

    async def main():
        with pytest.raises(TypeError):
            type(asyncio.current_task())()

    loop.run_until_complete(main())


@only_c
def test_the_map_of_no_selector(impl, loop):
    mapping = type(loop._selector.get_map())(None)
    for use in (len, list, lambda mapping: mapping[1], lambda mapping: mapping.get(1)):
        with pytest.raises((TypeError, AttributeError)):
            use(mapping)
