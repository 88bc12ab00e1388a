"""TLS with OpenSSL's own client and server programs as peers."""

import asyncio
import contextlib
import os
import shutil
import signal
import ssl

import pytest
from support.certificates import CLIENT, HOST, OTHER_HOST, TLS_1_2, TLS_1_3, every_version
from support.endpoints import settle, until
from support.recording import Recorder

ALLOW_CLIENT_RENEGOTIATION = 1 << 8  # openssl/ssl.h; the ssl module has no name for it
FLAGS = {TLS_1_2: "-tls1_2", TLS_1_3: "-tls1_3"}


@pytest.fixture(scope="module")
def openssl():
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("there is no program called openssl on the PATH")
    return program


class Echo(Recorder):
    def data_received(self, data):
        super().data_received(data)
        self.transport.write(data)


class Program:
    """A running program: its output (stdout and stderr as one) and its input."""

    def __init__(self, process):
        self.process = process
        self.said = bytearray()

    async def says(self, text):
        """Wait for `text` and drop it; return the output before it."""
        while (position := self.said.find(text)) < 0:
            more = await self.process.stdout.read(65536)
            assert more, f"it ended without saying {text}: {bytes(self.said)}"
            self.said += more
        before = bytes(self.said[:position])
        del self.said[: position + len(text)]
        return before

    async def tell(self, text):
        self.process.stdin.write(text)
        await self.process.stdin.drain()

    async def rest(self):
        self.said += await self.process.stdout.read()
        await self.process.wait()
        return bytes(self.said)


@contextlib.asynccontextmanager
async def running(*command):
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            # Not by kill(): if the process has just ended, kill() reaps the exit code for which asyncio's watcher
            # waits.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        process.stdin.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await process.stdin.wait_closed()
        await process.stdout.read()
        await process.wait()
        await settle()


class Serving:
    """A server on the loop under test, for OpenSSL's client."""

    def __init__(self, openssl, files, server):
        self.openssl, self.files, self.server = openssl, files, server
        self.accepted = []

    @property
    def address(self):
        return self.server.sockets[0].getsockname()

    def client(self, *options, address=None):
        host, port = address or self.address
        trust = ("-CAfile", self.files.authority, "-verify_return_error", "-servername", HOST)
        return running(self.openssl, "s_client", "-connect", f"{host}:{port}", *trust, *options)

    async def connection(self, number=1):
        await until(lambda: len(self.accepted) == number and self.accepted[-1].calls)
        return self.accepted[-1]


@contextlib.asynccontextmanager
async def serving(openssl, files, context, make_protocol=Echo):
    loop = asyncio.get_running_loop()
    made = []
    server = await loop.create_server(lambda: made.append(make_protocol()) or made[-1], "127.0.0.1", 0, ssl=context)
    serving = Serving(openssl, files, server)
    serving.accepted = made
    try:
        yield serving
        await until(lambda: all(protocol.lost for protocol in made))
        for protocol in made:
            protocol.check_life_cycle()
    finally:
        server.close()
        for protocol in made:
            if protocol.transport is not None:
                protocol.transport.abort()
        await settle()


class Half(asyncio.Protocol):
    """One side of a relay. When it ends, it closes the other one."""

    def __init__(self, forward):
        self.data_received = forward

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, error):
        self.other.transport.close()


class Relay:
    """Stands between a client and a server and counts the bytes. It can hold back those of the server."""

    def __init__(self):
        self.of_client = self.of_server = 0
        self.held = None
        self.to_server, self.to_client = Half(self.from_server), Half(self.from_client)
        self.to_server.other, self.to_client.other = self.to_client, self.to_server

    def hold(self):
        self.held = bytearray()

    def release(self):
        held, self.held = self.held, None
        self.to_client.transport.write(held)

    def from_server(self, data):
        self.of_server += len(data)
        if self.held is None:
            self.to_client.transport.write(data)
        else:
            self.held += data

    def from_client(self, data):
        self.of_client += len(data)
        self.to_server.transport.write(data)


@contextlib.asynccontextmanager
async def relay_to(address):
    """A relay for one client."""
    loop = asyncio.get_running_loop()
    relay = Relay()
    listening = await loop.create_server(lambda: relay.to_client, "127.0.0.1", 0)
    await loop.create_connection(lambda: relay.to_server, *address)
    relay.address = listening.sockets[0].getsockname()
    try:
        yield relay
    finally:
        listening.close()
        relay.to_server.transport.abort()
        await settle()


@every_version
def test_a_client_of_openssl(impl, certificates, certificate_files, openssl, version):
    async def main():
        async with (
            serving(openssl, certificate_files, certificates.server_context()) as our,
            our.client(FLAGS[version]) as client,
        ):
            connection = await our.connection()
            assert connection.transport.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
            for number in range(10):
                line = b"line %d\n" % number
                await client.tell(line)
                await client.says(line)
            client.process.stdin.close()
            await client.rest()
            assert client.process.returncode == 0
            await until(lambda: connection.lost)
            assert connection.error is None
            assert connection.calls == ["connection_made", "data", "eof_received", "connection_lost"]

    impl.run(main())


@every_version
def test_much_data(impl, certificates, certificate_files, openssl, version):
    """Data goes there and back, with either end reading at its own pace."""
    size = 3_000_000
    line = b"the same line again and again\n"
    data = line * (size // len(line))

    async def main():
        async with (
            serving(openssl, certificate_files, certificates.server_context()) as our,
            our.client(FLAGS[version], "-quiet") as client,
        ):
            telling = asyncio.ensure_future(client.tell(data))
            connection = await our.connection()
            await client.says(b"same line")  # follows what it prints about the certificate
            received = len(b"the same line")
            while received < len(data):
                more = len(client.said) or len(await client.process.stdout.read(1 << 20))
                assert more
                client.said.clear()
                received += more
            await telling
            assert (received, connection.received) == (len(data), data)
            client.process.kill()

    impl.run(main())


def test_its_key_updates(impl, certificates, certificate_files, openssl):
    """ "k" changes the client's keys, "K" also asks for new keys of our end. Data flows before and after."""

    async def main():
        async with (
            serving(openssl, certificate_files, certificates.server_context(TLS_1_3)) as our,
            our.client("-tls1_3") as client,
        ):
            for number in range(6):
                line = b"line %d\n" % number
                await client.tell(line)
                await client.says(line)
                await client.tell(b"K\n" if number % 2 else b"k\n")
                await client.says(b"KEYUPDATE")
            await client.tell(b"the end\n")
            await client.says(b"the end\n")
            connection = await our.connection()
            assert connection.received == b"".join(b"line %d\n" % number for number in range(6)) + b"the end\n"
            client.process.stdin.close()
            await client.rest()

    impl.run(main())


def test_its_renegotiation_is_refused(impl, certificates, certificate_files, openssl):
    """OpenSSL 3.0 and later refuse renegotiation. The client leaves; the connection ends once."""
    if ssl.OPENSSL_VERSION_INFO < (3,):
        pytest.skip("OpenSSL before 3.0 lets a client renegotiate")

    async def main():
        async with (
            serving(openssl, certificate_files, certificates.server_context(TLS_1_2)) as our,
            our.client("-tls1_2") as client,
        ):
            await client.tell(b"hello\n")
            await client.says(b"hello\n")
            await client.tell(b"R\n")
            await client.says(b"RENEGOTIATING")
            connection = await our.connection()
            await until(lambda: connection.lost)
            assert connection.received == b"hello\n"

    impl.run(main())


def test_its_renegotiation(impl, certificates, certificate_files, openssl):
    """Handshakes run between data; data written in the middle of one comes after it."""
    context = certificates.server_context(TLS_1_2)
    context.options |= ALLOW_CLIENT_RENEGOTIATION
    written = b"meanwhile\n" * 20

    async def main():
        async with (
            serving(openssl, certificate_files, context) as our,
            relay_to(our.address) as relay,
            our.client("-tls1_2", address=relay.address) as client,
        ):
            connection = await our.connection()
            for number in range(4):
                line = b"line %d\n" % number
                await client.tell(line)
                await client.says(line)
                relay.hold()
                await client.tell(b"R\n")
                await until(lambda: relay.held)
                for _ in range(20):
                    connection.transport.write(b"meanwhile\n")
                    await asyncio.sleep(0)
                assert connection.transport.get_write_buffer_size() == len(written), "OpenSSL writes nothing now"
                relay.release()
                await client.says(written)
                assert connection.transport.get_write_buffer_size() == 0
            assert connection.received == b"".join(b"line %d\n" % number for number in range(4))
            client.process.stdin.close()
            await client.rest()

    impl.run(main())


@every_version
def test_its_certificate(impl, certificates, certificate_files, openssl, version):
    async def main():
        context = certificates.server_context(version, asks_for_certificate=True)
        async with (
            serving(openssl, certificate_files, context) as our,
            our.client("-cert", certificate_files.client, "-key", certificate_files.client) as client,
        ):
            connection = await our.connection()
            subject = connection.transport.get_extra_info("peercert")["subjectAltName"]
            assert subject == (("email", CLIENT),)
            await client.tell(b"hello\n")
            await client.says(b"hello\n")
            client.process.stdin.close()
            await client.rest()

    impl.run(main())


def test_its_name_and_protocol(impl, certificates, certificate_files, openssl):
    """SNI and ALPN."""
    asked = []
    context = certificates.server_context()
    context.set_alpn_protocols(["http/1.1"])

    def choose(tls_object, name, _):
        asked.append(name)
        tls_object.context = certificates.server_context(other=True)
        tls_object.context.set_alpn_protocols(["http/1.1"])

    context.sni_callback = choose

    async def main():
        async with serving(openssl, certificate_files, context) as our:
            options = ("-servername", OTHER_HOST, "-verify_hostname", OTHER_HOST, "-alpn", "h2,http/1.1")
            async with our.client(*options) as client:
                await client.tell(b"hello\n")
                await client.says(b"hello\n")
                connection = await our.connection()
                selected = connection.transport.get_extra_info("ssl_object").selected_alpn_protocol()
                assert selected == "http/1.1"
                client.process.stdin.close()
                await client.rest()

    impl.run(main())
    assert asked == [OTHER_HOST]


@every_version
def test_its_session(impl, certificates, certificate_files, openssl, version, tmp_path):
    file = str(tmp_path / "session")

    async def main():
        async with serving(openssl, certificate_files, certificates.server_context(version)) as our:
            for number, option in enumerate(["-sess_out", "-sess_in"]):
                async with our.client(option, file) as client:
                    await client.tell(b"hello\n")
                    await client.says(b"hello\n")
                    connection = await our.connection(number + 1)
                    assert connection.transport.get_extra_info("ssl_object").session_reused == (option == "-sess_in")
                    client.process.stdin.close()
                    await client.rest()
            assert os.path.getsize(file)

    impl.run(main())


def test_a_client_that_is_killed(impl, certificates, certificate_files, openssl):
    async def main():
        async with serving(openssl, certificate_files, certificates.server_context()) as our, our.client() as client:
            await client.tell(b"hello\n")
            await client.says(b"hello\n")
            connection = await our.connection()
            client.process.kill()
            await until(lambda: connection.lost)
            assert connection.error is None or isinstance(connection.error, ConnectionResetError)

    impl.run(main())


# OpenSSL's server


@contextlib.asynccontextmanager
async def server_of_openssl(openssl, files, *options):
    command = (openssl, "s_server", "-accept", "127.0.0.1:0", "-cert", files.server, "-key", files.server, *options)
    async with running(*command) as server:
        await server.says(b"ACCEPT 127.0.0.1:")
        port = int(await server.says(b"\n"))
        yield server, ("127.0.0.1", port)


@every_version
def test_a_server_of_openssl(impl, certificates, certificate_files, openssl, version):
    """An OpenSSL server that sends each line back, reversed."""

    async def main():
        async with server_of_openssl(openssl, certificate_files, "-rev", FLAGS[version]) as (_, address):
            reader, writer = await asyncio.open_connection(
                *address, ssl=certificates.client_context(), server_hostname=HOST
            )
            for number in range(10):
                line = b"line %d" % number
                writer.writelines([line, b"\n"])
                assert await reader.readline() == line[::-1] + b"\n"
            writer.close()
            with contextlib.suppress(ConnectionResetError):  # this server does not answer close_notify
                await writer.wait_closed()

    impl.run(main())


@every_version
def test_what_the_server_asks_for(impl, certificates, certificate_files, openssl, version):
    """The server asks for a certificate and offers a protocol."""
    options = ("-Verify", "1", "-verify_return_error", "-CAfile", certificate_files.authority, "-alpn", "h2,http/1.1")
    context = certificates.client_context(version, has_certificate=True)
    context.set_alpn_protocols(["http/1.1"])

    async def main():
        async with server_of_openssl(openssl, certificate_files, "-rev", *options) as (_, address):
            reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=HOST)
            writer.write(b"hello\n")
            assert await reader.readline() == b"olleh\n"
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            writer.transport.abort()
            with pytest.raises(ssl.SSLError):
                reader, _ = await asyncio.open_connection(
                    *address, ssl=certificates.client_context(version), server_hostname=HOST
                )
                await reader.read()  # with TLS 1.3 the server demands its certificate only now

    impl.run(main())


def test_the_servers_key_updates(impl, certificates, certificate_files, openssl):
    async def main():
        loop = asyncio.get_running_loop()
        async with (
            server_of_openssl(openssl, certificate_files, "-tls1_3") as (server, address),
            relay_to(address) as relay,
        ):
            transport, protocol = await loop.create_connection(
                Recorder, *relay.address, ssl=certificates.client_context(), server_hostname=HOST
            )
            expected = b""
            for number in range(6):
                line = b"line %d\n" % number
                expected += line
                await server.tell(line)
                await until(lambda expected=expected: protocol.received == expected)
                transport.write(b"answer %d\n" % number)
                await server.says(b"answer %d\n" % number)
                before = relay.of_server
                await server.tell(b"K\n" if number % 2 else b"k\n")
                # The program takes all the input that one read returns for a single command.
                await until(lambda before=before: relay.of_server > before)
            await server.tell(b"the end\n")
            await until(lambda: protocol.received == expected + b"the end\n")
            transport.write(b"goodbye\n")
            await server.says(b"goodbye\n")
            await server.tell(b"q\n")
            await until(lambda: protocol.lost)
            assert protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
            assert protocol.error is None

    impl.run(main())


def test_the_servers_renegotiation(impl, certificates, certificate_files, openssl):
    """Handshakes run between data; data written in the middle of one comes after it."""
    written = b"meanwhile\n" * 10

    async def main():
        loop = asyncio.get_running_loop()
        async with (
            server_of_openssl(openssl, certificate_files, "-tls1_2") as (server, address),
            relay_to(address) as relay,
        ):
            transport, protocol = await loop.create_connection(
                Recorder, *relay.address, ssl=certificates.client_context(), server_hostname=HOST
            )
            expected = b""
            for number in range(4):
                line = b"line %d\n" % number
                expected += line
                relay.hold()
                await server.tell(b"r\n")
                await until(lambda: relay.held)  # the server's request
                before = relay.of_client
                relay.release()
                relay.hold()
                await until(lambda before=before: relay.of_client > before)  # our ClientHello
                for _ in range(10):
                    transport.write(b"meanwhile\n")
                    await asyncio.sleep(0)
                assert transport.get_write_buffer_size() == len(written), "OpenSSL writes nothing now"
                relay.release()
                await server.says(written)
                assert transport.get_write_buffer_size() == 0
                await server.tell(line)
                await until(lambda expected=expected: protocol.received == expected)
            transport.abort()
            await until(lambda: protocol.lost)

    impl.run(main())


def test_a_server_that_is_killed(impl, certificates, certificate_files, openssl):
    async def main():
        loop = asyncio.get_running_loop()
        async with server_of_openssl(openssl, certificate_files) as (server, address):
            _, protocol = await loop.create_connection(
                Recorder, *address, ssl=certificates.client_context(), server_hostname=HOST
            )
            await server.tell(b"hello\n")
            await until(lambda: protocol.received == b"hello\n")
            server.process.kill()
            await until(lambda: protocol.lost)
            assert protocol.error is None or isinstance(protocol.error, ConnectionResetError)
            protocol.check_life_cycle()

    impl.run(main())
