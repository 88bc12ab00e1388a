"""Stream transports: their extra information, and their classes and attributes (P21, P30)."""

import asyncio
import importlib
import select
import socket
import struct
import sys
import unittest.mock
import weakref

import pytest
from support.recording import BufferedRecorder, Recorder
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, connected_sockets, connections_on, reset, wait_for

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


class Serving:
    """A server on the loop that keeps its accepted protocols."""

    def __init__(self, loop, **options):
        self.loop = loop
        self.accepted = []
        self.server = loop.run_until_complete(loop.create_server(self.make, "127.0.0.1", 0, **options))
        self.address = self.server.sockets[0].getsockname()

    def make(self):
        self.accepted.append(Recorder())
        return self.accepted[-1]

    def accept(self, count=1):
        """Run until so many connections have been made; return their transports."""
        run_until(self.loop, lambda: sum(bool(one.calls) for one in self.accepted) == count)
        return [one.transport for one in self.accepted]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.server.close()
        for protocol in self.accepted:
            if not protocol.lost:
                protocol.transport.abort()
        run_until(self.loop, lambda: all(protocol.lost for protocol in self.accepted))
        self.loop.run_until_complete(self.server.wait_closed())
        run_once(self.loop, 2)


@pytest.mark.promise("P21")
@every_kind
def test_classes(loop, connections, kind):
    transport = connections.open(kind).transport
    for class_ in (asyncio.Transport, asyncio.ReadTransport, asyncio.WriteTransport, asyncio.BaseTransport):
        assert isinstance(transport, class_)
    assert not isinstance(transport, asyncio.DatagramTransport | asyncio.SubprocessTransport)
    assert weakref.ref(transport)() is transport
    assert {transport: 1}[transport] == 1
    assert transport == transport and transport != object()


@every_kind
def test_extra_info(loop, connections, kind):
    ours, peer = connected_sockets(kind)
    names = ours.getsockname(), ours.getpeername()
    connection = connections.over(ours, peer)
    transport = connection.transport
    wrapped = transport.get_extra_info("socket")
    assert isinstance(wrapped, asyncio.trsock.TransportSocket)
    assert transport.get_extra_info("socket") is wrapped
    assert wrapped.fileno() >= 0 and (wrapped.family, wrapped.type) == (peer.family, peer.type)
    assert (transport.get_extra_info("sockname"), transport.get_extra_info("peername")) == names
    if kind == "tcp":
        assert wrapped.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@every_kind
def test_extra_info_that_there_is_not(loop, connections, kind):
    transport = connections.open(kind).transport
    default = object()
    for name in ("sslcontext", "peercert", "pipe", "subprocess", "no such thing", "", None, 5):
        assert transport.get_extra_info(name) is None
        assert transport.get_extra_info(name, default) is default
        assert transport.get_extra_info(name, default=default) is default
    assert transport.get_extra_info("socket", default) is not default


@every_kind
def test_extra_info_stays_after_the_end(loop, connections, kind):
    connection = connections.open(kind)
    names = "socket", "sockname", "peername"
    before = [connection.transport.get_extra_info(name) for name in names]
    connection.transport.close()
    connection.run_until_lost()
    assert [connection.transport.get_extra_info(name) for name in names] == before
    assert before[0].fileno() == -1
    assert connection.transport.get_extra_info("no such thing", 5) == 5


class Name(str):
    """As a member of a StrEnum is: a string of a class of its own."""


class Equal:
    """No string, but equal to one."""

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return self.name == other


@pytest.mark.parametrize("name", ["peername", "sockname", "socket", "no such thing"])
@pytest.mark.parametrize("kind", [Name, Equal])
def test_a_name_that_is_equal_to_one(loop, name, kind):
    """A dictionary's rules decide whether it is that name. It is asked first, before an exact one."""
    with Serving(loop) as serving:
        client, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, *serving.address))
        for transport in (client, *serving.accept()):
            found = transport.get_extra_info(kind(name), "default")
            assert (found == "default") == (name == "no such thing")
            assert transport.get_extra_info(name, "default") is found
            with pytest.raises(TypeError, match="unhashable"):
                transport.get_extra_info([])
            assert all(type(known) is str for known in transport._extra)
        client.close()


@pytest.mark.promise("P30")
def test_the_socket_is_a_transport_socket(loop, connections):
    connection = connections.open("tcp")
    wrapped = connection.transport.get_extra_info("socket")
    assert isinstance(wrapped, asyncio.trsock.TransportSocket)
    assert wrapped.getsockname() == connection.transport.get_extra_info("sockname")
    assert wrapped.getpeername() == connection.transport.get_extra_info("peername")
    wrapped.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    assert wrapped.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert wrapped.gettimeout() == 0
    wrapped.setblocking(False)
    wrapped.settimeout(0)
    with pytest.raises(ValueError):
        wrapped.setblocking(True)
    with pytest.raises(ValueError):
        wrapped.settimeout(1)
    with wrapped.dup() as real:
        assert isinstance(real, socket.socket)
        assert real.send(b"by hand") == 7
    assert connection.receive(7) == b"by hand"
    with pytest.raises(TypeError):
        wrapped.__getstate__()


@pytest.mark.parametrize("protocol", [0, socket.IPPROTO_TCP])
def test_nodelay_as_asyncio_sets_it(loop, connections, protocol):
    """Only for a socket that was created with an explicit protocol number."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        ours.connect(listener.getsockname())
        peer, _ = listener.accept()
    connection = connections.over(ours, peer)
    assert bool(connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) == (protocol != 0)


def test_both_sides_of_a_server(loop):
    with Serving(loop) as serving:
        client, protocol = loop.run_until_complete(loop.create_connection(Recorder, *serving.address))
        (accepted,) = serving.accept()
        for name, other in (("sockname", "peername"), ("peername", "sockname")):
            assert client.get_extra_info(name) == accepted.get_extra_info(other)
        assert accepted.get_extra_info("sockname") == serving.address
        for transport in (client, accepted):
            assert isinstance(transport, asyncio.Transport)
            wrapped = transport.get_extra_info("socket")
            assert isinstance(wrapped, asyncio.trsock.TransportSocket)
            assert wrapped.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert wrapped.gettimeout() == 0
        client.close()
        run_until(loop, lambda: protocol.lost)


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_addresses_of_ipv6(loop, connections):
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        try:
            listener.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback address")
        listener.listen()
        ours = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        ours.connect(listener.getsockname())
        peer, _ = listener.accept()
        transport = connections.over(ours, peer).transport
        assert transport.get_extra_info("peername") == listener.getsockname()
        assert len(transport.get_extra_info("sockname")) == 4


@pytest.mark.skipif("unix" not in KINDS, reason="this platform has no Unix sockets")
@pytest.mark.parametrize("named", [False, True])
def test_addresses_of_unix_sockets(loop, tmp_path, named):
    path, own_path = str(tmp_path / "server"), str(tmp_path / "client")
    accepted = Recorder()
    server = loop.run_until_complete(loop.create_unix_server(lambda: accepted, path))
    client = socket.socket(socket.AF_UNIX)
    if named:
        client.bind(own_path)
    client.connect(path)
    run_until(loop, lambda: accepted.calls)
    assert accepted.transport.get_extra_info("sockname") == path
    assert accepted.transport.get_extra_info("peername") == (own_path if named else "")
    client.close()
    run_until(loop, lambda: accepted.lost)
    server.close()
    loop.run_until_complete(server.wait_closed())
    run_once(loop)


@pytest.mark.promise("P30")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere accept() fails if the peer has already left")
@pytest.mark.parametrize("how", ["close", "reset"])
def test_peername_is_known_though_the_peer_has_left(loop, how):
    with Serving(loop) as serving:
        with socket.create_connection(serving.address) as gone:
            address = gone.getsockname()
            if how == "reset":
                reset(gone)
        (accepted,) = serving.accept()
        assert accepted.get_extra_info("peername") == address
        assert accepted.get_extra_info("sockname") == serving.address


@pytest.mark.promise("P30")
def test_peername_is_kept_when_the_peer_leaves(loop):
    with Serving(loop) as serving:
        with socket.create_connection(serving.address) as peer:
            address = peer.getsockname()
            (accepted,) = serving.accept()
            reset(peer)
        run_until(loop, lambda: serving.accepted[0].lost)
        assert accepted.get_extra_info("peername") == address


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peer name of a reset socket may still be known")
def test_a_given_socket_whose_peer_has_left(loop, connections):
    """asyncio asks the socket for its peer's name, which the kernel no longer knows."""
    ours, peer = connected_sockets("tcp")
    name = ours.getsockname()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    wait_for(ours, 0)
    connection = connections.over(ours, peer)
    assert connection.transport.get_extra_info("sockname") == name
    assert connection.transport.get_extra_info("peername") is None
    connection.run_until_lost()
    assert isinstance(connection.protocol.error, ConnectionResetError)


def test_protocols_set_and_got(loop, connections):
    connection = connections.open()
    for protocol in (BufferedRecorder(), Recorder(), connection.protocol):
        assert connection.transport.set_protocol(protocol) is None
        assert connection.transport.get_protocol() is protocol


def test_the_states_before_connection_made(loop, connections):
    """A protocol factory runs before there is a transport, connection_made() before anything is read."""
    states = []

    def look():
        transport = protocol.transport
        states.append((transport.is_reading(), transport.is_closing(), transport.get_write_buffer_size()))
        assert transport.get_protocol() is protocol

    protocol = Recorder(connection_made=look)
    connections.open("tcp", protocol)
    assert states == [(True, False, 0)]


@every_kind
def test_the_number_of_a_closed_transports_descriptor(loop, connections, kind):
    connection = connections.open(kind)
    fd = connection.transport.get_extra_info("socket").fileno()
    connection.transport.close()
    run_until(loop, lambda: connection.protocol.lost)
    assert f"closed fd={fd}" in repr(connection.transport)


@pytest.mark.promise("P04")
@pytest.mark.only("c", reason="asyncio's classes need their constructors")
@pytest.mark.parametrize("name", ["stream.StreamTransport", "datagram.DatagramTransport"])
def test_a_transport_that_was_never_opened(impl, name):
    module, name = name.split(".")
    cls = getattr(importlib.import_module(f"hotloop._c.transports.{module}"), name)
    for transport in (cls(), cls.__new__(cls)):
        assert transport.is_closing() and transport.get_protocol() is None
        assert transport.get_extra_info("peername") is None and transport.get_extra_info("sockname") is None
        assert transport.get_extra_info("socket").fileno() == -1
        assert repr(transport) == f"<{name} closed fd=-1>"
        for method in (transport.pause_reading, transport.resume_reading, transport.close, transport.abort):
            method()


@pytest.mark.parametrize("method", ["add_reader", "add_writer", "remove_reader", "remove_writer"])
def test_a_descriptor_that_a_transport_uses_is_refused(loop, connections, method):
    connection = connections.open()
    arguments = [print] if method.startswith("add") else []
    for given in (connection.socket.fileno(), connection.socket):
        with pytest.raises(RuntimeError, match=r"^File descriptor .* is used by transport "):
            getattr(loop, method)(given, *arguments)
    connection.send(b"goes on")
    run_until(loop, lambda: connection.protocol.received == b"goes on")


def test_a_descriptor_is_free_again_when_its_transport_is_closing(loop, connections):
    connection = connections.open()
    fd = connection.socket.fileno()
    connection.transport.close()
    assert loop.remove_reader(fd) is False
    connection.run_until_lost()
    assert loop.remove_reader(fd) is False


def test_sockets_that_are_refused(load_implementation, impl):
    """A socket of another type, a closed one, no socket at all: asyncio's exception is raised."""

    def outcomes(implementation):
        found = []
        loop = implementation.new_event_loop()
        closed, datagram = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        closed.close()
        for given in (closed, datagram, "text", 5):
            for connect in (loop.create_connection, loop.connect_accepted_socket):
                with pytest.raises((OSError, ValueError, AttributeError)) as caught:
                    loop.run_until_complete(connect(Recorder, sock=given))
                found.append((caught.type, getattr(caught.value, "errno", None)))
        datagram.close()
        loop.close()
        return found

    assert outcomes(impl) == outcomes(load_implementation("asyncio"))


@pytest.mark.parametrize("method", ["create_connection", "connect_accepted_socket"])
def test_a_blocking_socket_is_made_non_blocking(loop, method):
    ours, peer = connected_sockets("tcp")
    ours.setblocking(True)
    transport, protocol = loop.run_until_complete(getattr(loop, method)(Recorder, sock=ours))
    assert transport.get_extra_info("socket").gettimeout() == 0
    run_once(loop, 2)
    peer.send(b"data")
    run_until(loop, lambda: protocol.received == b"data")
    transport.close()
    run_until(loop, lambda: protocol.lost)
    peer.close()


def test_an_unconnected_socket(loop, connections):
    """The caller must connect it; otherwise asyncio reads an error or end of file at once."""
    ours = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    ours.setblocking(False)
    connection = connections.over(ours, socket.socket())
    assert connection.transport.get_extra_info("peername") is None
    connection.run_until_lost()
    assert isinstance(connection.protocol.error, OSError)


def test_a_protocol_factory_that_fails(loop):
    ours, peer = connected_sockets("tcp")

    def factory():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.run_until_complete(loop.create_connection(factory, sock=ours))
    ours.close()
    peer.close()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # asyncio leaves it to the collector
def test_a_protocol_factory_that_fails_while_accepting(loop):
    """The connection is closed, with a report only in debug mode; the server goes on."""
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    working = Recorder()
    factories = [lambda: 1 / 0, lambda: working]
    server = loop.run_until_complete(loop.create_server(lambda: factories.pop(0)(), "127.0.0.1", 0))
    address = server.sockets[0].getsockname()
    with socket.create_connection(address) as refused, socket.create_connection(address) as served:
        run_until(loop, lambda: working.calls)
        refused.setblocking(False)
        served.send(b"data")
        run_until(loop, lambda: working.received == b"data")
        run_until(loop, lambda: select.select([refused], [], [], 0)[0])
    run_until(loop, lambda: working.lost)
    server.close()
    loop.run_until_complete(server.wait_closed())
    assert reports == []


@pytest.mark.parametrize("asked", ["before", "after"])
@pytest.mark.parametrize("holder", ["protocol", "test", "another protocol"])
def test_the_addresses_of_a_closed_connection(loop, asked, holder):
    """Code that still has the transport may ask for the information, even for the first time."""
    with Serving(loop) as serving, socket.create_connection(serving.address) as client:
        (transport,) = serving.accept()
        names = serving.address, client.getsockname()
        if asked == "before":
            assert (transport.get_extra_info("sockname"), transport.get_extra_info("peername")) == names
        lost = serving.accepted[0]
        if holder == "another protocol":
            lost = Recorder()
            lost.transport = transport
            transport.set_protocol(lost)
            serving.accepted.clear()
        elif holder == "test":
            # Nothing else refers to the protocol, and the protocol refers to nothing.
            serving.accepted.clear()
            done = []
            lost.hooks["connection_lost"] = lambda: done.append(True)
            lost.transport = lost = None
        transport.abort()
        if holder != "test":
            del transport
        run_until(loop, lambda: done if holder == "test" else lost.lost)
        run_once(loop, 2)
        if holder != "test":
            transport = lost.transport
        assert (transport.get_extra_info("sockname"), transport.get_extra_info("peername")) == names
        assert transport.get_extra_info("socket").fileno() == -1


@pytest.mark.parametrize("cls", [asyncio.BaseTransport, asyncio.Transport])
def test_a_program_patches_asyncios_classes(loop, connections, cls):
    """Tests of libraries patch these classes."""
    transport = connections.open().transport
    with unittest.mock.patch.object(cls, "get_extra_info", return_value="patched") as patched:
        assert transport.get_extra_info("sockname") == "patched"
        patched.assert_called_once_with("sockname")
    with unittest.mock.patch.object(cls, "get_extra_info", autospec=True) as patched:
        transport.get_extra_info("sockname", 5)
        patched.assert_called_once_with(transport, "sockname", 5)
    assert transport.get_extra_info("nothing", 5) == 5
