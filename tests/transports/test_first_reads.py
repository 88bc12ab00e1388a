"""A client's data arrives complete and in order, whether sent before, while or after the server makes its transport."""

import asyncio
import contextlib
import socket

import pytest
from support.recording import BufferedRecorder, Recorder, when_data_comes
from support.stepping import run_once, run_until

MANY = 40
"""Connections one after the other."""


class Served:
    """A server whose connections a test makes one at a time."""

    def __init__(self, loop):
        self.loop = loop
        self.protocols = []
        self.clients = []
        self.next_protocol = Recorder
        self.server = loop.run_until_complete(loop.create_server(self.make, "127.0.0.1", 0))
        self.address = self.server.sockets[0].getsockname()

    def make(self):
        self.protocols.append(self.next_protocol())
        return self.protocols[-1]

    def connect(self, said=b"", ended=False):
        """Connect a client that has sent `said` already when the loop sees it."""
        client = socket.create_connection(self.address)
        self.clients.append(client)
        if said:
            client.sendall(said)
        if ended:
            client.shutdown(socket.SHUT_WR)
        return client

    def serve(self, *arguments, protocol=Recorder, **keywords):
        """Return the client and the protocol of a new connection; this method runs the loop only until
        connection_made()."""
        self.next_protocol = protocol
        client = self.connect(*arguments, **keywords)
        count = len(self.protocols)
        run_until(self.loop, lambda: len(self.protocols) > count)
        return client, self.protocols[-1]

    def close(self):
        for client in self.clients:
            client.close()
        self.server.close()
        run_until(self.loop, lambda: all(protocol.lost for protocol in self.protocols))
        self.loop.run_until_complete(self.server.wait_closed())
        for protocol in self.protocols:
            protocol.check_life_cycle()


@pytest.fixture
def served(loop):
    with contextlib.closing(Served(loop)) as served:
        yield served


@pytest.mark.parametrize("kind", [Recorder, BufferedRecorder])
@pytest.mark.parametrize("pattern", [(True,), (False,), (True, False), (False, False, False, False, False, True)])
def test_early_and_late_words(loop, served, kind, pattern):
    """Clients send their first data early or late, in any order of connections; later data arrives as well."""
    for number in range(MANY):
        early = pattern[number % len(pattern)]
        client, protocol = served.serve(b"early" if early else b"", protocol=kind)
        if not early:
            run_once(loop, 4)
            client.sendall(b"early")
        run_until(loop, lambda protocol=protocol: protocol.received == b"early")
        client.sendall(b" late")
        run_until(loop, lambda protocol=protocol: protocol.received == b"early late")


def test_early_words_of_many_at_once(loop, served):
    clients = [served.connect(b"%d" % number if number % 3 else b"") for number in range(MANY)]
    run_until(loop, lambda: sum(bool(protocol.received) for protocol in served.protocols) == MANY - (MANY + 2) // 3)
    for number, client in enumerate(clients):
        client.sendall(b"" if number % 3 else b"%d" % number)
    run_until(loop, lambda: all(protocol.received for protocol in served.protocols))
    assert sorted(int(protocol.received) for protocol in served.protocols) == list(range(MANY))


@pytest.mark.parametrize("kind", [Recorder, BufferedRecorder])
def test_more_than_one_read_brings(loop, served, kind):
    data = bytes(range(256)) * 8192

    def say():
        with socket.create_connection(served.address) as client:
            client.sendall(data)

    served.next_protocol = kind
    loop.run_until_complete(loop.run_in_executor(None, say))
    run_until(loop, lambda: served.protocols and served.protocols[0].lost)
    assert served.protocols[0].received == data
    assert served.protocols[0].calls == ["connection_made", "data", "eof_received", "connection_lost"]


@pytest.mark.parametrize("said", [b"", b"all"])
@pytest.mark.parametrize("keep_open", [None, True])
def test_a_client_that_has_ended_already(loop, served, said, keep_open):
    client, protocol = served.serve(said, ended=True, protocol=lambda: Recorder(eof_received=lambda: keep_open))
    run_until(loop, lambda: "eof_received" in protocol.calls)
    assert protocol.received == said
    if keep_open:
        run_once(loop, 4)
        assert not protocol.lost
        protocol.transport.write(b"answer")
        protocol.transport.close()
    run_until(loop, lambda: protocol.lost)
    assert protocol.calls == ["connection_made", *["data"] * bool(said), "eof_received", "connection_lost"]
    assert client.recv(10) == (b"answer" if keep_open else b"")


@pytest.mark.parametrize("when", ["in connection_made()", "behind it", "two turns later"])
def test_paused_before_the_first_word(loop, served, when):
    """A paused protocol gets no data; after resume_reading() it gets all."""

    def pause():
        (protocol,) = served.protocols
        protocol.transport.pause_reading()
        # Two turns later some data may have arrived already.
        protocol.heard = bytes(protocol.received)

    def made():
        if when == "in connection_made()":
            pause()
        elif when == "behind it":
            loop.call_soon(pause)
        else:
            loop.call_soon(loop.call_soon, pause)

    client, protocol = served.serve(b"early", protocol=lambda: Recorder(connection_made=made))
    run_until(loop, lambda: hasattr(protocol, "heard"))
    client.sendall(b" late")
    run_once(loop, 8)
    assert protocol.received == protocol.heard
    assert when == "two turns later" or protocol.heard == b""
    protocol.transport.resume_reading()
    run_until(loop, lambda: protocol.received == b"early late")


@pytest.mark.parametrize("how", ["close", "abort"])
def test_closed_before_the_first_word(loop, served, how):
    def end():
        getattr(served.protocols[0].transport, how)()

    _, protocol = served.serve(b"early", protocol=lambda: Recorder(connection_made=end))
    run_until(loop, lambda: protocol.lost)
    run_once(loop, 4)
    assert protocol.calls == ["connection_made", "connection_lost"]


@pytest.mark.parametrize("how", ["close", "abort"])
def test_answered_and_closed_at_the_first_word(loop, served, how):
    """The test repeats this, so that descriptor numbers are reused."""
    for _ in range(MANY):
        protocol = Recorder()

        def answer(protocol=protocol):
            protocol.transport.write(protocol.received)
            getattr(protocol.transport, how)()

        when_data_comes(protocol, answer)
        client, _ = served.serve(b"word", protocol=lambda protocol=protocol: protocol)
        run_until(loop, lambda protocol=protocol: protocol.lost)
        assert protocol.calls == ["connection_made", "data", "connection_lost"]
        assert client.recv(10) == b"word"
        client.close()


def test_another_protocol_from_connection_made_on(loop, served):
    other = BufferedRecorder()

    def replace():
        served.protocols[0].transport.set_protocol(other)

    client, protocol = served.serve(b"early", protocol=lambda: Recorder(connection_made=replace))
    run_until(loop, lambda: other.received == b"early")
    client.close()
    run_until(loop, lambda: other.lost)
    assert protocol.calls == ["connection_made"] and other.calls == ["data", "eof_received", "connection_lost"]
    served.protocols.clear()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interruption_at_the_first_word(loop, served, kind):
    """The loop stops; the connection goes on when the loop runs again."""

    def interrupt():
        del protocol.hooks["data_received"]
        raise kind

    protocol = Recorder(data_received=interrupt)
    client = served.connect(b"early")
    served.next_protocol = lambda: protocol
    with pytest.raises(kind):
        while True:
            run_once(loop)
    client.sendall(b" late")
    run_until(loop, lambda: protocol.received == b"early late")


def test_the_first_answer_when_the_client_takes_nothing(loop, served):
    """The kernel does not take all: flow control begins before the poller knows the connection, or after."""
    answer = bytes(64 << 20)

    def write():
        if b"early" in protocol.received and "pause_writing" not in protocol.calls:
            protocol.transport.write(answer)

    protocol = Recorder(data_received=write)
    client, _ = served.serve(b"early", protocol=lambda: protocol)
    run_until(loop, lambda: "pause_writing" in protocol.calls)
    client.sendall(b" late")
    run_until(loop, lambda: protocol.received == b"early late")

    def read():
        missing = len(answer)
        while missing:
            missing -= len(client.recv(1 << 20))

    loop.run_until_complete(loop.run_in_executor(None, read))
    run_until(loop, lambda: "resume_writing" in protocol.calls)


def test_the_first_word_comes_in_the_turn_after_the_beginning(loop, served):
    """The data comes after the callbacks queued behind connection_made(), and before the callbacks that those queue."""
    order = []

    def made():
        order.append("made")
        loop.call_soon(order.append, "behind")

    def received():
        order.append("data")

    served.serve(b"early", protocol=lambda: Recorder(connection_made=made, data_received=received))
    run_until(loop, lambda: "data" in order)
    assert order == ["made", "behind", "data"]


def test_streams_at_once(loop):
    """asyncio's own streams: each connection's handler gets its line, and is answered."""

    async def answer(reader, writer):
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        for number in range(MANY):
            with socket.create_connection(address) as client:
                if number % 2:
                    client.sendall(b"%d\n" % number)
                else:
                    await asyncio.sleep(0)
                    client.sendall(b"%d\n" % number)
                client.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(client, 10) == b"%d\n" % number
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())
