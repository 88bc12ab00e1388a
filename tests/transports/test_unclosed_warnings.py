"""The warning about a transport that was dropped unclosed names asyncio's module, by which filters choose."""

import asyncio
import gc
import os
import socket
import warnings

import pytest


async def stream(loop):
    one, other = socket.socketpair()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=one)
    transport.pause_reading()
    return transport, other


async def datagram(loop):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=one)
    return transport, other


async def read_pipe(loop):
    reading, writing = os.pipe()
    transport, _ = await loop.connect_read_pipe(asyncio.Protocol, os.fdopen(reading, "rb", 0))
    return transport, os.fdopen(writing, "wb", 0)


async def write_pipe(loop):
    reading, writing = os.pipe()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(writing, "wb", 0))
    return transport, os.fdopen(reading, "rb", 0)


def warnings_about(impl, opened):
    loop = impl.new_event_loop()
    transport, other = loop.run_until_complete(opened(loop))
    with other:
        loop.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", "unclosed <")
            del transport, loop
            gc.collect()
    return caught


@pytest.mark.parametrize("opened", [stream, datagram, read_pipe, write_pipe])
def test_the_module_that_warns(impl, load_implementation, opened):
    (expected,) = warnings_about(load_implementation("asyncio"), opened)
    (caught,) = warnings_about(impl, opened)
    assert caught.category is expected.category is ResourceWarning
    assert caught.filename == expected.filename
    assert str(caught.message).startswith("unclosed transport <")


@pytest.mark.parametrize(("opened", "module"), [(stream, "selector_events"), (read_pipe, "unix_events")])
def test_a_filter_for_the_module(impl, opened, module):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "unclosed <")
        warnings.filterwarnings("ignore", category=ResourceWarning, module=rf"asyncio\.{module}")
        loop = impl.new_event_loop()
        transport, other = loop.run_until_complete(opened(loop))
        with other:
            loop.close()
            del transport, loop
            gc.collect()
    assert not caught


def test_an_unclosed_tls_transport_is_shown_as_open(impl, certificates):
    shown = impl.run_script(
        """
import asyncio, gc, warnings
from support.certificates import issued
from support.tls_connections import tls_connections_on
loop = impl.new_event_loop()
connections = tls_connections_on(loop, issued()).__enter__()
connection = connections.open("server", kind="pair")
peer = connection.peer.socket
loop.close()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    del connection, connections, loop
    gc.collect()
for warning in caught:
    if "SSL" in str(warning.message):
        print(warning.filename == asyncio.sslproto.__file__, "closing" in str(warning.message))
peer.close()
"""
    )
    assert shown.stdout.split() == ["True", "False"]


def test_a_transport_that_lives_until_the_interpreter_exits(impl):
    """The modules are emptied by then. Whether the warning is shown depends on what was emptied before."""
    done = impl.run_script(
        """
import asyncio, socket
one, other = socket.socketpair()
loop = impl.new_event_loop()
transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=one))
transport.pause_reading()
loop.close()
asyncio.kept = transport
other.detach()
""",
        "-Wdefault",
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


@pytest.mark.only("c", reason="asyncio keeps no count")
def test_a_socket_that_the_protocol_factory_has_closed(impl, pair):
    loop = impl.new_event_loop()
    one, _ = pair

    def made():
        one.close()
        return asyncio.Protocol()

    async def main():
        await loop.create_connection(made, sock=one)

    loop.set_exception_handler(lambda loop, context: None)
    loop.run_until_complete(main())
    gc.collect()
    assert loop.metrics().transports["stream"] == 0
    loop.close()
