"""TLS by OpenSSL's own functions: what an application does with its SSLObject and its SSLContext works as before, and
where the functions cannot be called, the ssl module does everything."""

import asyncio
import ctypes
import functools
import gc
import json
import select
import ssl
import sysconfig

import pytest
from support.certificates import issued
from support.recording import BufferedRecorder, Recorder
from support.stepping import run_once, run_until
from support.stream_connections import wait_for
from support.tls_connections import every_side

DATA = bytes(range(256)) * 300  # more than four records
WANTS_MORE = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

only_c = pytest.mark.only("c", reason="asyncio's own TLS calls the ssl module")


@pytest.mark.parametrize("side", ["client", "server"])
def test_the_ssl_object_after_the_connection(tls, side):
    """An application may keep it, and call it, when the transport is gone."""
    connection = tls.open(side)
    connection.deliver(DATA)
    kept = connection.transport.get_extra_info("ssl_object")
    expected = kept.version(), kept.cipher(), kept.selected_alpn_protocol()
    connection.transport.abort()
    connection.run_until_lost()
    tls.opened.clear()
    connection.peer.socket.close()
    del connection
    run_once(tls.loop, 3)
    gc.collect()
    assert (kept.version(), kept.cipher(), kept.selected_alpn_protocol()) == expected
    with pytest.raises(ssl.SSLWantReadError):
        kept.read(10)
    assert kept.write(DATA[:1000]) == 1000
    assert kept.write(DATA[:1000]) == 1000
    with pytest.raises(WANTS_MORE):
        kept.unwrap()
    assert kept.pending() == 0


@every_side
def test_a_protocol_that_reads_its_ssl_object(tls, side):
    """A protocol that calls read() of the SSLObject does not get the data that the transport is reading."""
    protocol = Recorder()
    found = []

    def look():
        tls_object = protocol.transport.get_extra_info("ssl_object")
        try:
            found.append(tls_object.read(10))
        except WANTS_MORE:
            found.append(b"")

    connection = tls.open(side, protocol)
    protocol.hooks["data_received"] = look
    connection.deliver(DATA)
    assert b"".join(found) == b"" and protocol.received == DATA


@every_side
def test_the_key_log(tls, side, tmp_path):
    context = tls.certificates.context(side)
    context.keylog_filename = str(tmp_path / "keys")
    connection = tls.open(side, context=context)
    connection.deliver(DATA)
    connection.transport.write(DATA)
    assert connection.receive(len(DATA)) == DATA
    context.keylog_filename = None  # closes the file
    labels = [line.split()[0] for line in (tmp_path / "keys").read_text().splitlines() if line[:1] != "#"]
    assert "CLIENT_TRAFFIC_SECRET_0" in labels and "SERVER_TRAFFIC_SECRET_0" in labels


@every_side
def test_a_callback_for_each_message(tls, side):
    """The ssl module's own hook for debugging runs Python code inside OpenSSL's functions."""
    context = tls.certificates.context(side)
    messages = []
    context._msg_callback = lambda *facts: messages.append(facts[1])
    connection = tls.open(side, context=context)
    messages.clear()
    connection.deliver(DATA)
    connection.transport.write(DATA)
    assert connection.receive(len(DATA)) == DATA
    assert {"read", "write"} <= set(messages)


@every_side
def test_an_error_in_a_callback_for_each_message(tls, side):
    """It ends the connection as an error of the protocol does."""
    context = tls.certificates.context(side)
    connections = []
    context._msg_callback = lambda *_: 1 / 0 if connections else None
    connections.append(tls.open(side, context=context))
    connection = connections[0]
    connection.peer.write(b"data")
    connection.run_until_lost()
    (report,) = tls.take_reports()
    assert isinstance(report["exception"], ZeroDivisionError)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@pytest.mark.parametrize("make_buffer", [bytearray, bytes])
def test_a_callback_for_each_message_replaces_the_readers_buffer(tls, make_buffer):
    """While a record is decrypted into it. What becomes of the data does not matter."""
    context = tls.certificates.server_context()
    connections = []
    context._msg_callback = lambda *_: connections and setattr(reader, "_buffer", make_buffer())
    reader = asyncio.StreamReader(loop=tls.loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=tls.loop)
    connections.append(tls.open("server", protocol, context=context))
    connections[0].peer.write(DATA[:5000])
    run_once(tls.loop, 3)
    buffers = reader._buffer, len(reader._buffer)
    connections[0].transport.abort()
    run_once(tls.loop, 3)
    tls.opened.clear()
    connections[0].peer.socket.close()
    tls.take_reports()
    assert type(buffers[0]) is make_buffer and buffers[1] in (0, 5000)


class PeekingContext(ssl.SSLContext):
    """Keeps the BIO into which its connections write."""

    def wrap_bio(self, incoming, outgoing, *arguments, **keywords):
        self.outgoing = outgoing
        return super().wrap_bio(incoming, outgoing, *arguments, **keywords)


def test_an_overridden_wrap_bio_keeps_its_bios(tls):
    """A context that overrides wrap_bio() may use the BIOs itself. Here, it puts bytes in front of the records."""
    context = PeekingContext(ssl.PROTOCOL_TLS_SERVER)
    tls.certificates.server.configure_cert(context)
    connection = tls.open("server", context=context)
    alert = b"\x15\x03\x03\x00\x02\x01\x00"  # not encrypted, so the peer must refuse it
    context.outgoing.write(alert)
    connection.transport.write(b"data")
    with pytest.raises(ssl.SSLError):
        connection.receive(4)
    connection.transport.abort()
    connection.run_until_lost(peer_reads=False)


def test_a_finalizer_in_a_cycle_through_the_ssl_object(tls):
    """The SSLObject refers to an object whose finalizer calls the transport, while the collector finalizes both."""
    connection = tls.open("server")
    closed = []

    class Closing:
        def __init__(self, transport):
            self.transport = transport

        def __del__(self):
            self.transport.write(b"from a finalizer")
            self.transport.close()
            closed.append(self.transport.is_closing())

    connection.transport.get_extra_info("ssl_object").held = Closing(connection.transport)
    connection.transport.abort()
    connection.run_until_lost()
    connection.peer.socket.close()
    tls.opened.clear()
    del connection
    run_once(tls.loop, 3)
    gc.collect()
    gc.collect()
    assert closed == [True]


# Where OpenSSL's functions are called


SHOW = """
    import _ssl, json, os, ssl
    from support.certificates import issued
    from support.recording import Recorder
    from support.tls_connections import tls_connections_on
    os.environ.pop("HOTLOOP_TLS", None)
    PREPARE
    loop = impl.new_event_loop()
    with tls_connections_on(loop, issued()) as tls:
        connection = tls.open("server")
        connection.deliver(bytes(100_000))
        connection.transport.write(bytes(100_000))
        assert connection.receive(100_000) == bytes(100_000)
    loop.close()
    from hotloop._c.tls.direct_engine import why_openssl_is_not_called
    print(json.dumps(why_openssl_is_not_called()))
"""


def reason(impl, prepare):
    issued()  # the script cannot skip the test
    return json.loads(impl.run_script("if True:" + SHOW.replace("PREPARE", prepare)).stdout)


@only_c
def test_they_are_called_where_they_are_found(impl):
    found = reason(impl, "")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert "GIL" in found
    elif not getattr(pytest.importorskip("_ssl"), "__file__", None):
        assert found == "OpenSSL is a part of this Python"
    else:
        assert found is None


@only_c
@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="never called without the GIL")
@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        ("os.environ['HOTLOOP_TLS'] = 'ssl'", "HOTLOOP_TLS=ssl"),
        ("del _ssl.__file__", "OpenSSL is a part of this Python"),
        ("_ssl.__file__ = '/nowhere'", "the loaded _ssl was not found"),
        ("from hotloop._c.tls import engine; _ssl.__file__ = engine.__file__", "OpenSSL_version was not found"),
        ("ssl.OPENSSL_VERSION = 'OpenSSL 9.9.9'", "the ssl module's version of OpenSSL was not found"),
        ("ssl.OPENSSL_VERSION = 'LibreSSL 4.0.0'", "the ssl module has LibreSSL 4.0.0"),
    ],
)
def test_the_ssl_module_does_everything_elsewhere(impl, prepare, expected):
    assert reason(impl, prepare) == expected


TWO_THREADS_ASK = """
    import gc, json, os, threading
    from hotloop._c.tls.direct_engine import why_openssl_is_not_called
    from support.certificates import issued
    from support.tls_connections import tls_connections_on
    os.environ["HOTLOOP_TLS"] = SETTING
    looking, answered = threading.Event(), threading.Event()
    get = os.environ.get

    def waiting_get(name, default=None):
        if threading.current_thread() is first:
            looking.set()
            answered.wait()
        return get(name, default)

    os.environ.get = waiting_get
    answers = []
    first = threading.Thread(target=lambda: answers.append(why_openssl_is_not_called()))
    first.start()
    looking.wait()
    answers.append(why_openssl_is_not_called())
    answered.set()
    first.join()
    loop = impl.new_event_loop()
    with tls_connections_on(loop, issued()) as tls:
        connection = tls.open("server")
        engines = {type(found).__name__ for found in gc.get_objects() if "Engine" in type(found).__name__}
    loop.close()
    print(json.dumps([answers, sorted(engines)]))
"""


@only_c
@pytest.mark.parametrize("setting", ["", "ssl"])
def test_a_thread_that_asks_while_another_looks_gets_the_answer(impl, setting):
    issued()  # the script cannot skip the test
    script = "if True:" + TWO_THREADS_ASK.replace("SETTING", repr(setting))
    answers, engines = json.loads(impl.run_script(script).stdout)
    expected = reason(impl, f"os.environ['HOTLOOP_TLS'] = {setting!r}")
    assert answers == [expected, expected]
    assert engines == ["DirectEngine" if expected is None else "MemoryEngine"]


def context_for(tls, side, engine):
    context = tls.certificates.context(side)
    if engine == "ssl module":
        context.wrap_bio = functools.partial(type(context).wrap_bio, context)  # OpenSSL is not called directly then
    return context


every_engine = pytest.mark.parametrize("engine", ["OpenSSL", "ssl module"])


def interrupt():
    """A function that has the handler of SIGINT raise KeyboardInterrupt when signals are looked for next. To be called
    from compiled code: before Python code runs they are."""
    return ctypes.pythonapi["PyErr_SetInterrupt"]


@pytest.mark.only("c", reason="asyncio is interrupted before it calls OpenSSL")
@every_side
@every_engine
@pytest.mark.parametrize("data", [b"data", b""])
def test_an_interrupt_while_data_and_close_notify_are_read(tls, side, engine, data):
    """The ssl module looks for signals after it has called OpenSSL. When the loop runs again, nothing is missing."""
    protocol = BufferedRecorder()
    connection = tls.open(side, protocol, context=context_for(tls, side, engine))
    protocol.get_buffer = interrupt()
    protocol.get_buffer.restype = functools.partial({"": protocol.buffer}.setdefault, "")
    connection.peer.write(data)
    connection.peer.notify_close()
    wait_for(connection.socket, select.POLLIN)
    with pytest.raises(KeyboardInterrupt):
        run_once(tls.loop, 3)
    del protocol.get_buffer
    run_until(tls.loop, lambda: "eof_received" in protocol.calls)
    assert protocol.received == data


@pytest.mark.only("c", "asyncio", reason="the pure loop has Python code between the callbacks")
@every_side
@every_engine
def test_an_interrupt_while_data_is_written(tls, side, engine):
    """It is sent once, when the loop runs again."""
    connection = tls.open(side, context=context_for(tls, side, engine))
    run_once(tls.loop, 3)
    tls.loop.call_soon(interrupt())
    tls.loop.call_soon(connection.transport.write, b"data")
    with pytest.raises(KeyboardInterrupt):
        run_once(tls.loop)
        connection.peer.pump()
    connection.run_until(lambda: connection.peer.received)
    run_once(tls.loop, 3)
    connection.transport.write(b"more")
    assert connection.receive(8) == b"datamore"
