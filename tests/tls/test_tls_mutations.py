"""TLS with a peer that sends anything: real records with bits, pieces and whole records changed, in pieces of any size.

No byte is delivered that was not sent, and the connection ends in order. Sanitizer builds run these tests, too.
"""

import contextlib
import ssl

import hypothesis
import hypothesis.strategies as st
from support.certificates import every_version
from support.stepping import run_once
from support.stream_connections import is_asyncio_transport
from support.tls_connections import every_protocol, every_side, run_until_or_error

# Each example makes a handshake, so there are fewer than elsewhere.
EXAMPLES = hypothesis.settings().max_examples // 12

places = st.floats(0, 1, exclude_max=True)  # as a fraction of the length
sizes = st.sampled_from([1, 2, 3, 5, 6, 100, 5000])
mutations = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), places, st.integers(0, 7)),
        st.tuples(st.just("leave out"), places, sizes),
        st.tuples(st.just("repeat"), places, sizes),
        st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=20)),
        st.tuples(st.just("end"), places, st.none()),
    ),
    max_size=3,
)
messages = st.lists(st.sampled_from([1, 10, 1000, 16384, 16385, 40_000]), min_size=1, max_size=4)
pieces = st.lists(st.sampled_from([1, 4, 5, 6, 700, 20_000, 1 << 20]), min_size=1, max_size=5)


def mutated(data, changes):
    data = bytearray(data)
    for kind, place, what in changes:
        at = int(place * len(data))
        if kind == "flip" and data:
            data[at] ^= 1 << what
        elif kind == "leave out":
            del data[at : at + what]
        elif kind == "repeat":
            data[at:at] = data[at : at + what]
        elif kind == "insert":
            data[at:at] = what
        elif kind == "end":
            del data[at:]
    return bytes(data)


def send_in_pieces(loop, sock, data, steps):
    """Send until our end closes, with a run of the loop between two pieces."""
    begin = number = 0
    while begin < len(data):
        with contextlib.suppress(BlockingIOError):
            begin += sock.send(data[begin : begin + steps[number % len(steps)]])
            number += 1
        run_once(loop)


@every_side
@every_version
@every_protocol
@hypothesis.settings(max_examples=EXAMPLES)
@hypothesis.given(lengths=messages, changes=mutations, steps=pieces)
def test_records_that_were_changed(tls, side, version, make_protocol, lengths, changes, steps):
    connection = tls.open(side, make_protocol(), version=version)
    sent = b"".join(bytes([65 + number]) * length for number, length in enumerate(lengths))
    position, records = 0, b""
    for length in lengths:
        records += connection.peer.encrypted(sent[position : position + length])
        position += length
    changed = mutated(records, changes)
    with contextlib.suppress(ConnectionError):
        send_in_pieces(connection.loop, connection.peer.socket, changed, steps)
        connection.peer.socket.shutdown(1)
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    received = bytes(connection.protocol.received)
    assert sent.startswith(received)
    # asyncio's TLS drops what it has decrypted when an error follows in the same read.
    if changed == records or (changed.startswith(records) and not is_asyncio_transport(connection.transport)):
        assert received == sent
    error = connection.protocol.error
    assert error is None or isinstance(error, (ssl.SSLError, ConnectionError))


@every_side
@every_version
@hypothesis.settings(max_examples=EXAMPLES)
@hypothesis.given(changes=mutations, flight=st.integers(0, 3), steps=pieces)
def test_handshakes_that_were_changed(tls, side, version, changes, flight, steps):
    """One flight of the peer is changed. The handshake succeeds or fails, or ends with the stream."""
    making, peer, protocol = tls.begin(side, version=version, ssl_handshake_timeout=3600)
    loop, flights = tls.loop, 0

    def step():
        nonlocal flights
        take_in(peer)
        with contextlib.suppress(OSError):  # ssl.SSLError is one; OpenSSL may also raise a stale errno
            peer.tls.do_handshake()
        if data := peer.outgoing.read():
            if flights == flight:
                data = mutated(data, changes)
            flights += 1
            with contextlib.suppress(ConnectionError):
                send_in_pieces(loop, peer.socket, data, steps)
        run_once(loop)

    for _ in range(12):
        step()
    peer.socket.close()
    run_until_or_error(loop, making.done)
    run_once(loop, 3)
    error = making.exception()
    assert error is None or isinstance(error, (ssl.SSLError, OSError))
    if error is None:
        tls.adopt(making.result()[0], protocol, peer)
    elif not changes:
        raise error
    assert not protocol.received


def take_in(peer):
    with contextlib.suppress(BlockingIOError, ConnectionError):
        while data := peer.socket.recv(1 << 16):
            peer.incoming.write(data)
        peer.incoming.write_eof()
