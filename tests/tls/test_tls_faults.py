"""TLS with faulty peers: they stall, send garbage, or cut records and connections short; and handshakes that are
cancelled at every step."""

import asyncio
import gc
import os
import random
import socket
import ssl
import sys
import weakref

import pytest
from support.certificates import HOST, TLS_1_3, every_version
from support.endpoints import settle, until
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import connected_sockets, skip_on_asyncio
from support.tls_connections import PIECE, Peer, every_protocol, every_side, other, run_until_or_error
from support.virtual_time import run_virtual

GARBAGE = [
    (b"\n" * 30, "lines"),
    (b"\x17\x03\x03\x00\x20" + b"d" * 32, "a record that was not encrypted"),
    (b"\x17\x03\x03\xff\xff" + b"d" * 100, "a record that is too long"),
    (b"\x15\x03\x03\x00\x02\x02\x28", "an alert that was not encrypted"),
    (b"\x80\x80" + bytes(200), "zeros"),
]
garbage_of_every_kind = pytest.mark.parametrize(
    "garbage", [data for data, _ in GARBAGE], ids=[name for _, name in GARBAGE]
)


@every_side
@every_version
@garbage_of_every_kind
def test_garbage_after_the_handshake(tls, side, version, garbage):
    """The data before it is delivered. connection_lost() gets OpenSSL's error, and nothing is reported."""
    connection = tls.open(side, version=version)
    connection.deliver(b"before")
    connection.peer.send_raw(garbage)
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert connection.protocol.received == b"before"
    assert isinstance(connection.protocol.error, ssl.SSLError)
    assert connection.protocol.calls == ["connection_made", "data", "connection_lost"]
    assert connection.socket.fileno() == -1


@every_side
@every_protocol
def test_garbage_alone(tls, side, make_protocol):
    connection = tls.open(side, make_protocol())
    connection.peer.send_raw(b"garbage" * 10)
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert isinstance(connection.protocol.error, ssl.SSLError)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@every_version
def test_garbage_while_reading_is_paused(tls, version):
    """The protocol gets no callback before reading is resumed."""
    connection = tls.open("server", version=version)
    connection.transport.pause_reading()
    connection.peer.send_raw(b"garbage" * 10)
    run_once(tls.loop, 10)
    assert connection.protocol.calls == ["connection_made"]
    connection.transport.resume_reading()
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]
    assert isinstance(connection.protocol.error, ssl.SSLError)


@every_side
@every_version
@every_protocol
def test_what_comes_right_before_garbage_is_delivered(tls, side, version, make_protocol):
    connection = tls.open(side, make_protocol(), version=version)
    skip_on_asyncio(connection.transport, "it drops what it has decrypted when an error follows in the same read")
    connection.peer.send_raw(connection.peer.encrypted(b"before") + b"garbage" * 10)
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert connection.protocol.received == b"before"
    assert isinstance(connection.protocol.error, ssl.SSLError)
    assert connection.protocol.calls == ["connection_made", "data", "connection_lost"]


@every_side
@every_version
@pytest.mark.parametrize("seed", range(5))
def test_a_record_with_a_byte_changed(tls, side, version, seed):
    generator = random.Random(seed)
    connection = tls.open(side, version=version)
    connection.deliver(b"first")
    second = bytearray(connection.peer.encrypted(b"second" * 20))
    second[generator.randrange(5, len(second))] ^= 1 << generator.randrange(8)
    connection.peer.send_raw(second)
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert connection.protocol.received == b"first"
    assert isinstance(connection.protocol.error, ssl.SSLError)
    reasons = {"DECRYPTION_FAILED_OR_BAD_RECORD_MAC"}
    if ssl.OPENSSL_VERSION_INFO >= (3, 2):
        # A newer reason; CPython 3.13 has no name for it.
        reasons |= {"RECORD_LAYER_FAILURE"} if sys.version_info >= (3, 14) else {"RECORD_LAYER_FAILURE", None}
    assert connection.protocol.error.reason in reasons


def test_a_record_that_comes_twice(tls):
    connection = tls.open("server")
    record = connection.peer.encrypted(b"once")
    connection.peer.send_raw(record)
    run_until(tls.loop, lambda: connection.protocol.received)
    connection.peer.send_raw(record)
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert connection.protocol.received == b"once"
    assert isinstance(connection.protocol.error, ssl.SSLError)


@every_side
@every_version
@pytest.mark.parametrize("part", [1, 5, 50])
def test_the_end_in_the_middle_of_a_record(tls, side, version, part):
    """An end without close_notify; asyncio does not distinguish it from any other."""
    connection = tls.open(side, version=version)
    whole, cut = connection.peer.encrypted(b"whole"), connection.peer.encrypted(b"cut short" * 20)
    connection.peer.send_raw(whole + cut[:part])
    connection.end()
    connection.run_until_lost()
    assert connection.protocol.received == b"whole"
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    assert connection.protocol.error is None


@every_side
@every_version
def test_a_reset_in_the_middle_of_a_record(tls, side, version):
    connection = tls.open(side, version=version, kind="tcp")
    connection.deliver(b"before")
    connection.peer.send_raw(connection.peer.encrypted(b"cut short" * 20)[:50])
    run_once(tls.loop, 5)
    connection.reset()
    connection.run_until_lost()
    assert connection.protocol.received == b"before"
    assert isinstance(connection.protocol.error, ConnectionResetError)
    assert connection.protocol.calls == ["connection_made", "data", "connection_lost"]


@every_side
def test_a_reset_while_much_waits_to_be_sent(tls, side):
    connection = tls.open(side, kind="tcp")
    connection.fill()
    connection.reset()
    connection.run_until_lost()
    assert isinstance(connection.protocol.error, (BrokenPipeError, ConnectionResetError))
    assert connection.protocol.calls[-1] == "connection_lost"
    assert "eof_received" not in connection.protocol.calls


@every_side
@every_version
def test_a_fatal_alert(tls, side, version):
    """The peer's OpenSSL sends an alert when it gets garbage."""
    connection = tls.open(side, version=version)
    connection.peer.incoming.write(b"garbage" * 10)
    with pytest.raises(ssl.SSLError):
        connection.peer.tls.read(100)
    connection.peer.push()
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert isinstance(connection.protocol.error, ssl.SSLError) and "ALERT" in connection.protocol.error.reason
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@every_side
@every_version
def test_a_peer_that_sends_after_its_own_close_notify(tls, side, version):
    """Bytes after close_notify are not data."""
    connection = tls.open(side, version=version)
    after = connection.peer.encrypted(b"after")
    connection.peer.notify_close()
    connection.peer.send_raw(after)
    connection.run_until_lost(peer_reads=False)
    assert not connection.protocol.received
    assert connection.protocol.calls.count("connection_lost") == 1


@every_side
@every_version
def test_a_peer_that_stalls_in_the_handshake_and_then_goes_on(tls, side, version):
    making, peer, protocol = tls.begin(side, version=version, kind="tcp")
    while not peer.handshake_complete:
        run_once(tls.loop, 10)  # more than this end needs
        peer.handshake()
    run_until(tls.loop, making.done)
    tls.adopt(making.result()[0], protocol, peer).deliver(b"data")


@every_side
@every_version
def test_a_handshake_byte_by_byte(tls, side, version):
    making, peer, protocol = tls.begin(side, version=version, kind="tcp")
    held = bytearray()

    def step():
        if not peer.handshake_complete:
            try:
                peer.tls.do_handshake()
                peer.handshake_complete = True
            except ssl.SSLWantReadError:
                pass
        held.extend(peer.outgoing.read())
        if held:
            peer.socket.send(held[:1])
            del held[:1]
        peer.pump()
        return peer.handshake_complete and making.done() and not held

    while not step():
        run_once(tls.loop)
    tls.adopt(making.result()[0], protocol, peer).deliver(b"data")


@every_side
def test_stalled_handshakes_delay_no_other_connection(tls, side):
    """While some handshakes stall, other connections are made and used."""
    stalled = [tls.begin(side) for _ in range(20)]
    for _, peer, _ in stalled[::2]:
        peer.handshake()
    for _ in range(3):
        tls.open(side).deliver(b"data")
    for making, peer, _ in stalled:
        making.cancel()
        peer.socket.close()
    run_until(tls.loop, lambda: all(making.done() for making, _, _ in stalled))
    run_once(tls.loop, 5)


# Handshakes that are cancelled


def turns_of_a_handshake(implementation, certificates, side, version):
    """The most iterations of the loop that one handshake takes."""
    loop = implementation.new_event_loop()
    try:
        ours, theirs = connected_sockets("pair")
        with theirs:
            making = loop.create_task(connecting(loop, ours, certificates, side, version, Recorder()))
            peer = Peer(theirs, certificates.context(other(side), version), other(side))
            turns = 0
            while not making.done():
                run_once(loop)
                peer.handshake()
                turns += 1
            making.result()[0].abort()
            run_once(loop, 3)
    finally:
        loop.close()
    return turns


async def connecting(loop, sock, certificates, side, version, protocol):
    context = certificates.context(side, version)
    if side == "client":
        return await loop.create_connection(lambda: protocol, sock=sock, ssl=context, server_hostname=HOST)
    return await loop.connect_accepted_socket(lambda: protocol, sock, ssl=context)


def leaves(peer):
    """Return whether the peer has seen the end. After a complete handshake the connection closes with close_notify."""
    peer.handshake()
    if peer.handshake_complete:
        peer.read()
        if peer.saw_close_notify:
            peer.notify_close()
    return peer.saw_end


@every_side
@every_version
def test_cancelled_at_every_step(impl, certificates, side, version):
    """The socket is always closed; a protocol gets connection_lost() if it got connection_made()."""
    turns = turns_of_a_handshake(impl, certificates, side, version)
    assert turns > 2
    for number in range(turns + 2):
        loop = impl.new_event_loop()
        reports = []
        loop.set_exception_handler(lambda loop, context, reports=reports: reports.append(context))
        ours, theirs = connected_sockets("pair")
        protocol = Recorder()
        making = loop.create_task(connecting(loop, ours, certificates, side, version, protocol))
        peer = Peer(theirs, certificates.context(other(side), version), other(side))
        for _ in range(number):
            run_once(loop)
            peer.handshake()
        making.cancel()
        run_until(loop, making.done)
        if making.cancelled():
            if number == 0:
                ours.close()  # the call never began
            run_until_or_error(loop, lambda peer=peer: leaves(peer))
            run_once(loop, 3)
            assert not protocol.calls or protocol.lost
            if protocol.calls:
                protocol.check_life_cycle()
        else:
            making.result()[0].abort()
            run_until(loop, lambda protocol=protocol: protocol.lost)
        assert reports == []
        assert [handle for handle in loop._scheduled if not handle.cancelled()] == []
        theirs.close()
        loop.close()


def test_cancelled_with_real_addresses(impl, certificates):
    """create_connection() by host and port, cancelled also while it makes the TCP connection."""

    async def main():
        loop = asyncio.get_running_loop()
        accepted = []

        def factory():
            accepted.append(Recorder())
            return accepted[-1]

        server = await loop.create_server(factory, "127.0.0.1", 0, ssl=certificates.server_context())
        address = server.sockets[0].getsockname()
        context = certificates.client_context()
        number, finished = 0, False
        while not finished:
            protocol = Recorder()
            making = loop.create_task(
                loop.create_connection(lambda protocol=protocol: protocol, *address, ssl=context, server_hostname=HOST)
            )
            for _ in range(number):
                await asyncio.sleep(0)
            making.cancel()
            try:
                transport, _ = await making
            except asyncio.CancelledError:
                pass
            else:
                finished = True
                transport.abort()
            await settle()
            number = number + 1 if number < 30 else number * 2
        await until(lambda: all(one.lost for one in accepted if one.calls))
        server.close()
        await settle()

    impl.run(main())


def test_closing_the_server_while_clients_shake_hands(impl, certificates):
    async def main():
        loop = asyncio.get_running_loop()
        made = []
        context = certificates.server_context()
        server = await loop.create_server(lambda: made.append(Recorder()) or made[-1], "127.0.0.1", 0, ssl=context)
        clients = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(5)]
        await until(lambda: len(made) == 5)
        server.close()
        for client in clients:
            client.setblocking(False)
            assert await loop.sock_recv(client, 100) == b""
            client.close()
        assert [protocol.calls for protocol in made] == [[]] * 5
        await settle()

    run_virtual(impl, main())  # the timeout is the default one, a minute


def test_tickets_between_data(tls):
    """A TLS 1.3 server may send any number of messages of its own before data; they are not data."""
    context = tls.certificates.server_context(TLS_1_3)
    context.num_tickets = 20
    connection = tls.open("client", peer_context=context)
    for number in range(10):
        connection.deliver(b"%d" % number * 1000)
    assert connection.protocol.calls == ["connection_made", "data"]


@every_side
def test_churn(impl, certificates, side):
    """Connections are opened and end in every way, and their descriptors are constantly reused."""
    generator = random.Random(side)

    async def one(loop, contexts):
        kind = generator.choice(["tcp", "pair"])
        ours, theirs = connected_sockets(kind)
        client, server = Recorder(), Recorder()
        (mine, _), (its, _) = await asyncio.gather(
            loop.create_connection(lambda: client, sock=ours, ssl=contexts[0], server_hostname=HOST),
            loop.connect_accepted_socket(lambda: server, theirs, ssl=contexts[1]),
        )
        data = os.urandom(generator.choice([1, 1000, PIECE]))
        mine.write(data)
        first, second = (mine, its) if side == "client" else (its, mine)
        if generator.random() < 0.7:
            await until(lambda: len(server.received) == len(data))
            assert server.received == data
        if generator.random() < 0.3:
            first.pause_reading()
        getattr(first, generator.choice(["close", "abort"]))()
        if generator.random() < 0.5:
            getattr(second, generator.choice(["close", "abort"]))()
        await until(lambda: client.lost and server.lost)
        for protocol in (client, server):
            protocol.check_life_cycle()
        return [weakref.ref(mine), weakref.ref(its)]

    async def main():
        loop = asyncio.get_running_loop()
        contexts = certificates.client_context(), certificates.server_context()
        references = []
        for _ in range(10):
            found = await asyncio.gather(*(one(loop, contexts) for _ in range(10)))
            references += [reference for pair in found for reference in pair]
        del found
        await settle()
        gc.collect()
        assert [reference() for reference in references if reference() is not None] == []

    impl.run(main())
