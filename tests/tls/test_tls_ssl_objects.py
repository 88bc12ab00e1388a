"""TLS by an SSLObject class of the program's, whose methods may return anything."""

import asyncio
import ssl

import pytest
from support.endpoints import until
from support.recording import Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.tls_connections import ViewRecorder, every_protocol, every_side, numbered


def context_of(tls, side, **methods):
    context = tls.certificates.context(side)
    context.sslobject_class = type("Own", (ssl.SSLObject,), methods)
    return context


def reading(convert):
    """A read() that returns something else than what was received."""

    def read(self, length=1024, buffer=None):
        data = ssl.SSLObject.read(self, length)
        return convert(data) if data else data

    return read


@every_side
@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_reading_bytes_of_another_kind(tls, side, kind):
    connection = tls.open(side, context=context_of(tls, side, read=reading(kind)))
    connection.deliver(numbered(50_000))
    assert connection.protocol.received == numbered(50_000)


@every_side
@pytest.mark.parametrize("nothing", [None, 0, "", b""], ids=repr)
def test_reading_what_is_false_is_the_end(tls, side, nothing):
    connection = tls.open(side, context=context_of(tls, side, read=reading(lambda data: nothing)))
    connection.peer.write(b"data")
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "eof_received", "connection_lost"]
    assert connection.protocol.error is None


@pytest.mark.only("c", reason="asyncio passes on whatever it gets")
@every_side
@every_protocol
@pytest.mark.parametrize(
    ("convert", "error"),
    [(lambda data: data * 20_000, ValueError), (lambda data: data * 1_000_000, ValueError), (bytes.decode, TypeError)],
    ids=["more", "much more", "text"],
)
def test_reading_more_than_was_asked_for_or_no_bytes(tls, side, make_protocol, convert, error):
    connection = tls.open(side, make_protocol(), context=context_of(tls, side, read=reading(convert)))
    connection.peer.write(b"data")
    connection.run_until_lost()
    (report,) = tls.take_reports()
    assert type(report["exception"]) is error and connection.protocol.error is report["exception"]
    assert not connection.protocol.received


@every_side
@every_protocol
def test_reading_runs_the_loop(tls, side, make_protocol, pair):
    """Another connection gets data meanwhile, which must not come into the records that wait."""
    ours, theirs = pair
    nested = []

    def read(self, *arguments):
        if not nested:
            nested.append(theirs.send(bytes(30_000)))
            for _ in range(6):
                tls.loop.call_soon(int)
                tls.loop._run_once()
        return ssl.SSLObject.read(self, *arguments)

    other, protocol = tls.loop.run_until_complete(tls.loop.create_connection(Recorder, sock=ours))
    nested.append("not in the handshake")
    connection = tls.open(side, make_protocol(), context=context_of(tls, side, read=read))
    nested.clear()
    connection.deliver(numbered(50_000))
    assert protocol.received == bytes(30_000)
    other.close()
    run_until(tls.loop, lambda: protocol.lost)


@every_side
def test_writing_more_than_there_was(tls, side):
    def write(self, data):
        return ssl.SSLObject.write(self, data) + 1_000_000

    connection = tls.open(side, context=context_of(tls, side, write=write))
    for part in (numbered(50_000), b"and more"):
        connection.transport.write(part)
    assert connection.receive(50_008) == numbered(50_000) + b"and more"


def open_interrupted(tls, side, protocol, number, method="read"):
    """A connection whose `method` raises KeyboardInterrupt, as a signal's handler may, the time with that `number`."""
    calls = []

    def interrupted(self, *arguments):
        calls.append(arguments)
        if len(calls) == number:
            raise KeyboardInterrupt
        return getattr(ssl.SSLObject, method)(self, *arguments)

    connection = tls.open(side, protocol, context=context_of(tls, side, **{method: interrupted}))
    calls.clear()
    return connection


@pytest.mark.only("c", reason="asyncio loses what it has read in the same turn")
@every_side
@every_protocol
@pytest.mark.parametrize("number", [1, 2, 5])
def test_an_interrupt_between_two_reads(tls, side, make_protocol, number):
    """What was read before it is delivered, and the loop goes on behind it when it runs again."""
    connection = open_interrupted(tls, side, make_protocol(), number)
    data = numbered(24_000)
    for start in range(0, len(data), 3000):
        connection.peer.write(data[start : start + 3000])
    interrupts = 0
    while connection.protocol.received != data:
        try:
            run_once(tls.loop)
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts == 1


@pytest.mark.only("c", reason="asyncio does not call it")
@every_side
@pytest.mark.parametrize("number", [1, 2, 5])
def test_an_interrupt_after_a_read_that_filled_the_buffer(tls, side, number):
    connection = open_interrupted(tls, side, ViewRecorder(1000), number, "pending")
    data = numbered(24_000)
    for start in range(0, len(data), 3000):
        connection.peer.write(data[start : start + 3000])
    interrupts = 0
    while len(connection.protocol.received) < len(data) and not connection.protocol.lost:
        try:
            run_once(tls.loop)
        except KeyboardInterrupt:
            interrupts += 1
    assert connection.protocol.received == data and interrupts == 1


@pytest.mark.only("c", reason="asyncio loses what it has read in the same turn")
@every_side
@every_protocol
@pytest.mark.parametrize("what", ["pause_reading", "close", "abort", "fail"])
def test_an_interrupt_between_two_reads_of_a_protocol_that_wants_no_more(tls, side, make_protocol, what):
    """It is raised in the same turn, whatever the protocol does with what was read before."""

    def fail():
        raise ValueError("of the protocol's")

    protocol = make_protocol()
    connection = open_interrupted(tls, side, protocol, 2)
    when_data_comes(protocol, fail if what == "fail" else getattr(connection.transport, what))
    connection.send(b"first")
    connection.send(b"second")
    with pytest.raises(KeyboardInterrupt):
        run_once(tls.loop, 3)
    if what == "fail":
        run_until(tls.loop, lambda: protocol.lost)
        assert [type(report["exception"]) for report in tls.take_reports()] == [ValueError]


@pytest.mark.only("c", reason="asyncio sends the data once more")
@every_side
@pytest.mark.parametrize("number", [1, 2, 5])
def test_an_interrupt_when_openssl_has_taken_data(tls, side, number):
    """As the ssl module's write() raises it. When the loop runs again, it sends the rest, and nothing twice."""
    writes = []

    def write(self, data):
        count = ssl.SSLObject.write(self, data)
        writes.append(count)
        if len(writes) == number:
            raise KeyboardInterrupt
        return count

    connection = tls.open(side, context=context_of(tls, side, write=write))
    with pytest.raises(KeyboardInterrupt):
        connection.transport.write(numbered(100_000))
    assert connection.receive(100_000) == numbered(100_000)
    connection.transport.write(b"more")
    assert connection.receive(4) == b"more"


@pytest.mark.only("c", reason="asyncio may send the data once more, or tell of no interrupt")
@every_side
@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupt_while_large_data_is_encrypted_without_a_copy(tls, side, number, when, error):
    """write() raises it, and what is written later comes behind all of the data."""
    write, arm = interrupting("write", number, when, error)
    connection = tls.open(side, context=context_of(tls, side, write=write))
    data = bytearray(numbered(100_000))
    arm()
    with pytest.raises(error):
        connection.transport.write(data)
    data[:] = bytes(len(data))
    connection.transport.write(b"more")
    assert connection.receive(100_004) == numbered(100_000) + b"more"


async def answer_to(tls, data, protocol, arm, size=-1, **methods):
    """What the protocol of a server, with these methods of its SSLObject, answers to the data: as many bytes, or all
    before it ends the connection. The program does not hold the server's socket, so that what is written waits for the
    turn's end."""
    server = await tls.loop.create_server(lambda: protocol, "127.0.0.1", 0, ssl=context_of(tls, "server", **methods))
    async with server:
        host, port = server.sockets[0].getsockname()
        context = tls.certificates.context("client")
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="localhost")
        await until(lambda: protocol.transport)
        arm()
        writer.write(data)
        answer = await (reader.read() if size < 0 else reader.readexactly(size))
        writer.close()
        await until(lambda: protocol.lost)
        return answer


def interrupting(method, number, when, error=KeyboardInterrupt):
    """A method that raises `error` once, the `number`th time after the function was called that comes with it."""
    left = []

    def interrupted(self, *arguments):
        hit = left and left.pop() and not left
        if hit and when == "before":
            raise error
        try:
            return getattr(ssl.SSLObject, method)(self, *arguments)
        finally:
            if hit and when == "after":
                raise error

    return interrupted, lambda: left.extend([True] * number)


@pytest.mark.only("c", reason="asyncio loses what it has read in the same turn")
def test_an_interrupt_before_a_protocol_writes_and_fails(tls):
    """The connection ends of the protocol's exception, whose data is sent before, and the interrupt is raised."""

    def answer_and_fail():
        protocol.transport.write(b"answer")
        raise ValueError("of the protocol's")

    protocol = Recorder(data_received=answer_and_fail)
    read, arm = interrupting("read", 2, "before")
    records = numbered(20_000)  # two of them
    task = tls.loop.create_task(asyncio.wait_for(answer_to(tls, records, protocol, arm, read=read), 10))
    with pytest.raises(KeyboardInterrupt):
        tls.loop.run_until_complete(task)
    assert tls.loop.run_until_complete(task) == b"answer"
    assert [type(report["exception"]) for report in tls.take_reports()] == [ValueError]


@pytest.mark.only("c", reason="asyncio encrypts within write(), whose exception hides the protocol's")
@every_protocol
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_while_is_sent_what_a_protocol_has_written_that_then_fails(tls, make_protocol, when):
    """The connection ends of the protocol's exception, and the interrupt is raised."""

    def answer_and_fail():
        for _ in range(2):
            protocol.transport.write(numbered(15_000))
        raise ValueError("of the protocol's")

    protocol = make_protocol()
    when_data_comes(protocol, answer_and_fail)
    write, arm = interrupting("write", 2, when)
    task = tls.loop.create_task(asyncio.wait_for(answer_to(tls, b"data", protocol, arm, write=write), 10))
    with pytest.raises(KeyboardInterrupt):
        tls.loop.run_until_complete(task)
    answer = tls.loop.run_until_complete(task)
    assert (numbered(15_000) * 2).startswith(answer)
    assert isinstance(protocol.error, ValueError)
    assert [type(report["exception"]) for report in tls.take_reports()] == [ValueError]


@pytest.mark.only("c", reason="asyncio encrypts within write()")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupt_at_the_end_of_a_turn_that_has_written(tls, when, error):
    """The data is sent nevertheless, when the loop runs on."""

    def answer():
        for _ in range(4):
            protocol.transport.write(numbered(15_000))

    protocol = Recorder(data_received=answer)
    write, arm = interrupting("write", 2, when, error)
    task = tls.loop.create_task(asyncio.wait_for(answer_to(tls, b"data", protocol, arm, 60_000, write=write), 10))
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            tls.loop.run_until_complete(task)
    assert tls.loop.run_until_complete(task) == numbered(15_000) * 4
    reported = [type(report["exception"]) for report in tls.take_reports()]
    assert reported == ([] if error is KeyboardInterrupt else [error])


@pytest.mark.only("c", reason="under asyncio the peer waits until the shutdown's timeout, and does not get the data")
@pytest.mark.parametrize("method", ["write", "unwrap"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_in_close(tls, method, when):
    """When the loop runs again it goes on with what close() began."""

    def answer_and_close():
        protocol.transport.write(b"answer")
        protocol.transport.close()

    protocol = Recorder(data_received=answer_and_close)
    interrupted, arm = interrupting(method, 1, when)
    task = tls.loop.create_task(asyncio.wait_for(answer_to(tls, b"data", protocol, arm, **{method: interrupted}), 10))
    with pytest.raises(KeyboardInterrupt):
        tls.loop.run_until_complete(task)
    assert tls.loop.run_until_complete(task) == b"answer"
    assert protocol.error is None


def test_an_interrupt_in_the_last_step_of_a_handshake(tls):
    """As a signal's handler may raise it. When the loop runs again, what OpenSSL has taken does not come twice."""
    steps = []

    def do_handshake(self):
        # 1: nothing has arrived, 2: the client's first message, 3: its last
        steps.append(len(steps) + 1)
        ssl.SSLObject.do_handshake(self)
        if steps[-1] == 3:
            raise KeyboardInterrupt

    async def serve(reader, writer):
        writer.write(await reader.readline())
        writer.close()

    async def main():
        server = await asyncio.start_server(
            serve, "127.0.0.1", 0, ssl=context_of(tls, "server", do_handshake=do_handshake)
        )
        async with server:
            host, port = server.sockets[0].getsockname()
            reader, writer = await asyncio.open_connection(
                host, port, ssl=tls.certificates.context("client"), server_hostname="localhost"
            )
            # Otherwise asyncio may have data in the engine, and decrypts none before more arrives.
            await until(lambda: len(steps) >= 3)
            writer.write(b"line\n")
            answer = await reader.readline()
            writer.close()
            return answer

    task = tls.loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        tls.loop.run_until_complete(task)
    assert tls.loop.run_until_complete(task) == b"line\n"


@pytest.mark.only("c", reason="under asyncio a peer that waits for data waits until the handshake's timeout")
@every_side
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_interrupt_in_a_step_of_a_handshake_after_which_the_peer_sends_nothing(tls, side, when, number):
    """The loop goes on with the handshake by itself when it runs again."""
    steps = []

    def do_handshake(self):
        steps.append(len(steps) + 1)
        if steps[-1] == number and when == "before":
            raise KeyboardInterrupt
        try:
            ssl.SSLObject.do_handshake(self)
        finally:
            if steps[-1] == number and when == "after":
                raise KeyboardInterrupt

    making, peer, protocol = tls.begin(side, context=context_of(tls, side, do_handshake=do_handshake))
    interrupts = 0
    while not (making.done() and peer.handshake_complete):
        peer.handshake()
        try:
            run_once(tls.loop)
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts == 1 or (number == 3 and side == "client")
    connection = tls.adopt(making.result()[0], protocol, peer)
    connection.deliver(b"data")
