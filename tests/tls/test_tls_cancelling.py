"""TLS: a task that waits for a handshake is cancelled, after each piece of the peer's handshake bytes.

After each of these cancellations the connection is closed, nothing stays registered, scheduled or open, and no report
comes later.
"""

import contextlib
import gc
import ssl

import pytest
from support.certificates import HOST, every_version
from support.leftovers import check_quiet, open_descriptors
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import connected_sockets
from support.tls_connections import SIDES, every_side, other, run_until_or_error

PIECE = 160  # bytes; a client's handshake is about four such pieces, a server's more
TURNS = range(4)  # iterations of the loop between the last piece and the cancellation


class SlowPeer:
    """The other end, which sends PIECE bytes at a time over any connection that can send and receive."""

    def __init__(self, side, context, send, receive):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, side == "server", HOST if side == "client" else None)
        self.send, self.receive = send, receive
        self.held = b""

    def attempt(self, operation, *arguments):
        self.incoming.write(self.receive())
        try:
            return operation(*arguments)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            return None
        finally:
            self.held += self.outgoing.read()

    def send_piece(self):
        """Go on with the handshake; return whether there was something to send."""
        self.attempt(self.tls.do_handshake)
        piece, self.held = self.held[:PIECE], self.held[PIECE:]
        if piece:
            self.send(piece)
        return bool(piece)

    def answer(self):
        """Finish the handshake if the other end lets it, and answer its close_notify."""
        with contextlib.suppress(ssl.SSLError, OSError):
            while self.send_piece():
                pass
            if self.tls.version() is not None and self.attempt(self.tls.read) in (b"", None):
                self.attempt(self.tls.unwrap)
            self.send(self.held)
            self.held = b""


class Attempt:
    """A handshake of the loop in a task, and its peer."""

    def __init__(self, tls, side, contexts):
        self.tls, self.loop, self.side, self.contexts = tls, tls.loop, side, contexts
        self.context = contexts[side]
        self.options = {"server_hostname": HOST} if side == "client" else {}
        self.protocol = Recorder()
        making = self.begin()
        self.peer = SlowPeer(other(side), contexts[other(side)], self.send, self.receive)
        self.task = self.loop.create_task(making)

    def connect(self):
        self.ours, self.theirs = connected_sockets("pair")

    def send(self, data):
        if data:
            assert self.theirs.send(data) == len(data)

    def receive(self):
        try:
            return self.theirs.recv(1 << 16)
        except BlockingIOError:
            return b""

    def is_gone(self):
        self.peer.answer()
        return self.ours.fileno() == -1

    def leave(self):
        self.theirs.close()


class Connecting(Attempt):
    lives = ([], ["connection_made", "connection_lost"], ["connection_made", "eof_received", "connection_lost"])

    def begin(self):
        self.connect()
        if self.side == "client":
            return self.loop.create_connection(lambda: self.protocol, sock=self.ours, ssl=self.context, **self.options)
        return self.loop.connect_accepted_socket(lambda: self.protocol, self.ours, ssl=self.context)


class Upgrading(Attempt):
    # As on asyncio, start_tls() leads to connection_lost() only after a second connection_made().
    lives = (["connection_made"], *Connecting.lives[1:])

    def begin(self):
        self.connect()
        connecting = self.loop.create_connection(lambda: self.protocol, sock=self.ours)
        self.transport, _ = self.loop.run_until_complete(connecting)
        return self.start_tls()

    def start_tls(self):
        server_side = self.side == "server"
        return self.loop.start_tls(self.transport, self.protocol, self.context, server_side=server_side, **self.options)


class UpgradingTls(Upgrading):
    """TLS inside TLS."""

    def begin(self):
        peer_context = self.contexts[other(self.side)]
        self.outer = self.tls.open(self.side, self.protocol, context=self.context, peer_context=peer_context)
        self.transport = self.outer.transport
        return self.start_tls()

    def send(self, data):
        self.outer.peer.write(data)

    def receive(self):
        self.outer.peer.read()
        received = bytes(self.outer.peer.received)
        self.outer.peer.received.clear()
        return received

    def is_gone(self):
        self.peer.answer()
        if self.outer.peer.saw_close_notify:
            self.outer.peer.notify_close()
        return self.outer.is_gone

    def leave(self):
        self.outer.peer.socket.close()
        self.tls.opened.remove(self.outer)


def cancel_after(attempt, pieces, turns):
    """Return whether the handshake was complete before the cancellation."""
    loop, task = attempt.loop, attempt.task
    run_once(loop, 3)
    for number in range(pieces):
        assert attempt.peer.send_piece() or task.done(), f"nothing came in return for piece {number}"
        run_once(loop, turns if number == pieces - 1 else 3)
    done = task.done()
    if done:
        task.result()[0].abort() if isinstance(attempt, Connecting) else task.result().abort()
    else:
        task.cancel()
        run_until(loop, task.done)
        assert task.cancelled()
    run_until_or_error(loop, attempt.is_gone)
    run_once(loop, 3)
    assert attempt.protocol.calls in attempt.lives
    attempt.leave()
    return done


@pytest.mark.parametrize("make_attempt", [Connecting, Upgrading, UpgradingTls])
@every_side
@every_version
@pytest.mark.parametrize("turns", TURNS)
def test_cancelled_after_each_piece(tls, make_attempt, side, version, turns):
    contexts = {name: tls.certificates.context(name, version) for name in SIDES}
    before = open_descriptors()
    pieces, done = 0, False
    while not done:
        done = cancel_after(make_attempt(tls, side, contexts), pieces, turns)
        gc.collect()
        assert tls.take_reports() == []
        assert open_descriptors() == before
        check_quiet(tls.loop)
        pieces += 1
    assert pieces > 3, "the handshake is in one piece"
