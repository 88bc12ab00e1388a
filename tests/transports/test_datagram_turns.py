"""Datagram endpoints: a protocol's action in a callback takes effect at once, also for datagrams that have arrived
already.

An endpoint may take several datagrams from the kernel at a time, but the protocol must not notice.
"""

import asyncio
import socket
import sys

import pytest
from support.endpoints import close, counted_turns, datagram_pair, drain, over, reports_of, settle, until
from support.implementations import load
from support.recording import DatagramRecorder
from support.stepping import run_once

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets")

PENDING = [b"%d" % number for number in range(8)]  # no more: Linux queues 10 datagrams on a Unix socket


class Acting(DatagramRecorder):
    """Acts once, on the third datagram."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def datagram_received(self, data, address):
        super().datagram_received(data, address)
        if data == PENDING[2]:
            self.act(self)


@pytest.fixture
def acting(loop):
    """Makes an endpoint with all of PENDING in its socket: (transport, protocol, other end)."""
    peers = []

    def make(act):
        one, other = datagram_pair()
        peers.append(other)
        made = loop.run_until_complete(over(loop, one, lambda: Acting(act)))
        for data in PENDING:
            other.send(data)
        return *made, other

    yield make
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("how", ["close", "abort"])
def test_nothing_is_delivered_after_close(loop, acting, how):
    transport, protocol, _ = acting(lambda protocol: getattr(protocol.transport, how)())
    loop.run_until_complete(until(lambda: protocol.lost))
    loop.run_until_complete(settle())
    assert protocol.received == PENDING[:3]
    assert protocol.events == ["connection_made", ("connection_lost", None)]
    assert transport.is_closing()


def test_nothing_is_delivered_while_paused_and_nothing_is_lost(loop, acting):
    transport, protocol, other = acting(lambda protocol: protocol.transport.pause_reading())
    loop.run_until_complete(until(lambda: len(protocol.received) == 3))
    loop.run_until_complete(settle())
    assert protocol.received == PENDING[:3] and not transport.is_reading()
    transport.pause_reading()
    other.send(b"later")
    loop.run_until_complete(settle())
    assert protocol.received == PENDING[:3]
    transport.resume_reading()
    transport.resume_reading()
    assert transport.is_reading()
    loop.run_until_complete(until(lambda: len(protocol.received) == len(PENDING) + 1))
    assert protocol.received == [*PENDING, b"later"]
    loop.run_until_complete(close(transport))


def test_paused_and_closed_before_what_is_left_was_delivered(loop, acting):
    transport, protocol, _ = acting(lambda protocol: protocol.transport.pause_reading())
    loop.run_until_complete(until(lambda: len(protocol.received) == 3))
    loop.run_until_complete(close(transport))
    transport.resume_reading()
    loop.run_until_complete(settle())
    assert protocol.received == PENDING[:3]
    assert protocol.events == ["connection_made", ("connection_lost", None)]


def test_the_rest_goes_to_a_new_protocol(loop, acting):
    new = DatagramRecorder()
    transport, protocol, _ = acting(lambda protocol: protocol.transport.set_protocol(new))
    loop.run_until_complete(until(lambda: len(new.received) == len(PENDING) - 3))
    assert (protocol.received, new.received) == (PENDING[:3], PENDING[3:])
    assert transport.get_protocol() is new
    loop.run_until_complete(close(transport))
    assert (protocol.events, new.events) == (["connection_made"], [("connection_lost", None)])


def test_stopping_the_loop_keeps_the_rest(loop, acting):
    transport, protocol, _ = acting(lambda protocol: loop.stop())
    loop.run_forever()
    assert protocol.received == PENDING[:3]
    loop.run_until_complete(until(lambda: len(protocol.received) == len(PENDING)))
    assert protocol.received == PENDING
    loop.run_until_complete(close(transport))


class Queueing(DatagramRecorder):
    """Has each datagram noted once more by a callback, or after a delay."""

    def __init__(self, delay):
        super().__init__()
        self.delay = delay

    def datagram_received(self, data, address):
        super().datagram_received(data, address)
        loop = asyncio.get_running_loop()
        note = (self.received.append, (b"after", data))
        loop.call_soon(*note) if self.delay is None else loop.call_later(self.delay, *note)


def received_while_queueing(implementation, delay, prepare):
    """What an endpoint notes that has all of PENDING in its socket, after `prepare(loop, transport, other end)`."""
    loop = implementation.new_event_loop()
    one, other = datagram_pair()
    try:
        with other:
            transport, protocol = loop.run_until_complete(over(loop, one, lambda: Queueing(delay)))
            prepare(loop, transport, other)
            for data in PENDING:
                other.send(data)
            run_once(loop, 2 * len(PENDING))
            loop.run_until_complete(close(transport))
    finally:
        loop.close()
    assert len(protocol.received) == 2 * len(PENDING)
    return protocol.received


@pytest.mark.parametrize("delay", [None, 0, -1])
def test_what_a_datagram_has_queued_runs_before_the_next(impl, delay):
    """A task that the first datagram has woken would come too late for the second: its future would be done already."""

    def nothing(loop, transport, other):
        pass

    assert received_while_queueing(impl, delay, nothing) == received_while_queueing(load("asyncio"), delay, nothing)


def test_what_a_datagram_has_queued_runs_before_the_next_while_others_wait_to_be_sent(impl):
    """One poll reports both that there are datagrams and that there is room to send. What is queued because of the room
    is no reason to receive earlier."""

    def block_and_make_room(loop, transport, other):
        while not transport.get_write_buffer_size():
            transport.sendto(bytes(1000))
        run_once(loop)
        drain(other)

    received = received_while_queueing(impl, None, block_and_make_room)
    assert received == received_while_queueing(load("asyncio"), None, block_and_make_room)


def test_a_replaced_datagram_received_is_used_at_once(loop, acting):
    later = []

    def act(protocol):
        protocol.datagram_received = lambda data, address: later.append(data)

    transport, protocol, _ = acting(act)
    loop.run_until_complete(until(lambda: len(later) == len(PENDING) - 3))
    assert (protocol.received, later) == (PENDING[:3], PENDING[3:])
    loop.run_until_complete(close(transport))


def test_answers_keep_their_order_among_other_sends(loop, acting):
    def act(protocol):
        for number in range(5):
            protocol.transport.sendto(b"answer %d" % number)

    transport, _, other = acting(act)
    loop.run_until_complete(until(lambda: transport.get_protocol().received == PENDING))
    loop.run_until_complete(settle())
    assert drain(other) == [b"answer %d" % number for number in range(5)]
    loop.run_until_complete(close(transport))


def test_what_is_sent_before_close_in_a_callback_is_sent(loop, acting):
    def act(protocol):
        protocol.transport.sendto(b"goodbye")
        protocol.transport.close()

    _, protocol, other = acting(act)
    loop.run_until_complete(until(lambda: protocol.lost))
    assert drain(other) == [b"goodbye"]


def test_closing_in_connection_made(loop):
    class Closing(DatagramRecorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.sendto(b"hello and goodbye")
            transport.close()

    one, other = datagram_pair()
    with other:
        other.send(b"too late")
        _, protocol = loop.run_until_complete(over(loop, one, Closing))
        loop.run_until_complete(until(lambda: protocol.lost))
        loop.run_until_complete(settle())
        assert drain(other) == [b"hello and goodbye"]
        assert protocol.received == [] and protocol.events == ["connection_made", ("connection_lost", None)]


def test_closing_in_pause_writing(loop):
    class Closing(DatagramRecorder):
        def pause_writing(self):
            super().pause_writing()
            self.transport.abort()

    one, other = datagram_pair()
    transport, protocol = loop.run_until_complete(over(loop, one, Closing))
    with other:
        while "pause_writing" not in protocol.events:
            transport.sendto(bytes(1000))
        loop.run_until_complete(until(lambda: protocol.lost))
        assert protocol.events == ["connection_made", "pause_writing", ("connection_lost", None)]


def test_sending_in_resume_writing(loop):
    class Sending(DatagramRecorder):
        def resume_writing(self):
            super().resume_writing()
            self.transport.sendto(b"resumed")

    async def main():
        one, other = datagram_pair()
        transport, protocol = await over(loop, one, Sending)
        with other:
            sent = []
            while "pause_writing" not in protocol.events:
                sent.append(b"%d" % len(sent) + bytes(1000))
                transport.sendto(sent[-1])
            received = []
            while len(received) < len(sent) + 1:
                received += drain(other)
                await asyncio.sleep(0)
            assert sorted(received) == sorted([*sent, b"resumed"])
            assert [data for data in received if data != b"resumed"] == sent
            await close(transport)

    loop.run_until_complete(main())


def test_exceptions_in_flow_control_are_reported(loop):
    class Failing(DatagramRecorder):
        def pause_writing(self):
            super().pause_writing()
            raise ZeroDivisionError("pause_writing")

        def resume_writing(self):
            super().resume_writing()
            raise ZeroDivisionError("resume_writing")

    async def main():
        one, other = datagram_pair()
        transport, protocol = await over(loop, one, Failing)
        with other, reports_of(loop) as reports:
            while "pause_writing" not in protocol.events:
                transport.sendto(bytes(1000))
            while "resume_writing" not in protocol.events:
                drain(other)
                await asyncio.sleep(0)
            assert [str(report["exception"]) for report in reports] == ["pause_writing", "resume_writing"]
            assert [report["message"] for report in reports] == [
                "protocol.pause_writing() failed",
                "protocol.resume_writing() failed",
            ]
            assert all(report["transport"] is transport and report["protocol"] is protocol for report in reports)
            assert not transport.is_closing()
            transport.abort()
            await until(lambda: protocol.lost)

    loop.run_until_complete(main())


def test_two_endpoints_that_talk_do_not_starve_the_rest(loop):
    """The two endpoints answer each other forever; timers, callbacks and other descriptors are served meanwhile."""

    class Answering(DatagramRecorder):
        def datagram_received(self, data, address):
            self.received.append(1)
            self.transport.sendto(data)

    async def main():
        one, other = datagram_pair()
        first, protocol = await over(loop, one, Answering)
        second, _ = await over(loop, other, Answering)
        for _ in range(5):
            first.sendto(b"ball")
        quiet, peer = datagram_pair()
        with quiet, peer:
            await until(lambda: len(protocol.received) > 100)
            waiting = asyncio.ensure_future(loop.sock_recv(quiet, 10))
            await asyncio.sleep(0.001)
            peer.send(b"me too")
            assert await waiting == b"me too"
        second.abort()
        first.abort()
        await until(lambda: protocol.lost and second.get_protocol() is None)

    loop.run_until_complete(main())


def test_closing_one_endpoint_in_the_callback_of_another(loop):
    """Both are ready in the same poll. The one that runs first closes the other, which must get no more callbacks."""

    class Rival(DatagramRecorder):
        def datagram_received(self, data, address):
            super().datagram_received(data, address)
            self.rival.transport.abort()

    async def main():
        pairs = [datagram_pair() for _ in range(2)]
        protocols = [(await over(loop, pair[0], Rival))[1] for pair in pairs]
        protocols[0].rival, protocols[1].rival = protocols[1], protocols[0]
        for _, peer in pairs:
            peer.send(b"x")
        await until(lambda: any(protocol.lost for protocol in protocols))
        await settle()
        assert sorted(protocol.received for protocol in protocols) == [[], [b"x"]]
        for protocol in protocols:
            protocol.transport.abort()
        await until(lambda: all(protocol.lost for protocol in protocols))
        for _, peer in pairs:
            peer.close()

    loop.run_until_complete(main())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a full queue is an error, without a wait")
@pytest.mark.parametrize("waiting", [1, 4])
def test_each_error_of_what_had_to_wait_has_a_turn_of_its_own(impl, tmp_path, waiting):
    """asyncio returns to its loop after each datagram's error, and resumes a paused protocol only after the last
    one."""

    class Noting(DatagramRecorder):
        def error_received(self, error):
            self.calls.append((type(error).__name__, len(self.turns)))

        def resume_writing(self):
            self.calls.append(("resume_writing", len(self.turns)))

    def events_on(implementation):
        loop = implementation.new_event_loop()
        turns = counted_turns(loop)
        ours, peer = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        try:
            with ours, peer:
                peer.bind(str(tmp_path / implementation.name))  # not connected: the kernel queues few datagrams
                ours.connect(str(tmp_path / implementation.name))
                ours.setblocking(False)
                transport, protocol = loop.run_until_complete(over(loop, ours, Noting))
                protocol.turns = []
                # asyncio of 3.13.0 adds each datagram's header to the buffer size and never subtracts it.
                transport.set_write_buffer_limits(high=200, low=200)
                while "pause_writing" not in protocol.events:
                    transport.sendto(b"x" * 1000)
                for _ in range(waiting - 1):
                    transport.sendto(b"x" * 1000)
                peer.close()
                protocol.turns = turns
                del turns[:]
                loop.run_until_complete(until(lambda: protocol.events[-1][0] == "resume_writing"))
                loop.run_until_complete(close(transport))
        finally:
            loop.close()
            (tmp_path / implementation.name).unlink()
        return protocol.events

    assert events_on(impl) == events_on(load("asyncio"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a full queue is an error, without a wait")
def test_after_an_error_what_has_to_wait_again_waits_for_the_next_turn(impl, tmp_path):
    """asyncio still waits for room then. Of that wait an event of this turn may be queued already, which does not count
    for what begins to wait in this turn."""

    class Noting(DatagramRecorder):
        def error_received(self, error):
            self.calls.append((type(error).__name__, len(self.turns)))

    def events_on(implementation):
        loop = implementation.new_event_loop()
        address = str(tmp_path / implementation.name)
        ours, peer = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))

        async def main():
            transport, protocol = await over(loop, ours, Noting)
            protocol.turns = counted_turns(loop)
            for last in ((b"to nobody", f"{address}-not"), (bytes(1 << 24), address)):
                for _ in range(15):  # more than the kernel queues
                    transport.sendto(b"x", address)
                transport.sendto(*last)
                assert transport.get_write_buffer_size()
                drain(peer)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await until(lambda: len(protocol.events) >= 3)
            await close(transport)
            return protocol.events

        try:
            with ours, peer:
                peer.bind(address)
                ours.setblocking(False)
                peer.setblocking(False)
                return loop.run_until_complete(main())
        finally:
            loop.close()
            (tmp_path / implementation.name).unlink()

    assert events_on(impl) == events_on(load("asyncio"))


def test_a_last_datagram_in_connection_lost(loop, tmp_path):
    """It is sent if close() had to wait for the receiver."""

    async def main():
        path = str(tmp_path / "receiver")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(path)
            receiver.setblocking(False)
            transport, protocol = await loop.create_datagram_endpoint(
                DatagramRecorder, family=socket.AF_UNIX, remote_addr=path
            )
            protocol.hooks["connection_lost"] = lambda: transport.sendto(b"last")
            while transport.get_write_buffer_size() == 0:
                transport.sendto(b"datagram")
            transport.close()
            received = drain(receiver)
            await until(lambda: protocol.lost)
            received += drain(receiver)
            assert received[-2:] == [b"datagram", b"last"]

    loop.run_until_complete(main())
