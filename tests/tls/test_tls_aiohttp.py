"""aiohttp over https, both ends on the loop under test."""

import asyncio
import contextlib
import io
import ssl

import pytest
from support.certificates import every_version
from support.endpoints import settle

aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed")
web = pytest.importorskip("aiohttp.web", reason="aiohttp is not installed")

BODY = bytes(range(256)) * 8000  # aiohttp warns about so much data unless it comes as a file object


async def hello(request):
    return web.json_response({"scheme": request.scheme, "cipher": bool(request.get_extra_info("cipher"))})


async def echo(request):
    return web.Response(body=io.BytesIO(await request.read()))


async def stream(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for begin in range(0, len(BODY), 50_000):
        await response.write(BODY[begin : begin + 50_000])
    await response.write_eof()
    return response


async def chat(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_bytes(message.data[::-1])
    return socket


@contextlib.asynccontextmanager
async def site(certificates):
    application = web.Application(client_max_size=len(BODY) + 1)
    application.add_routes(
        [web.get("/", hello), web.post("/echo", echo), web.get("/stream", stream), web.get("/chat", chat)]
    )
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        place = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificates.server_context())
        await place.start()
        port = runner.addresses[0][1]
        yield f"https://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
        await settle()


@contextlib.asynccontextmanager
async def session_with(context, **options):
    connector = aiohttp.TCPConnector(ssl=context, **options)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session
    await settle()


@every_version
def test_requests(impl, certificates, version):
    async def main():
        async with site(certificates) as url, session_with(certificates.client_context(version)) as session:
            for _ in range(5):  # over one connection
                async with session.get(url) as response:
                    assert await response.json() == {"scheme": "https", "cipher": True}
            async with session.post(f"{url}/echo", data=io.BytesIO(BODY)) as response:
                assert await response.read() == BODY
            async with session.get(f"{url}/stream") as response:
                assert await response.read() == BODY

    impl.run(main())


def test_many_at_once(impl, certificates):
    async def main():
        async with site(certificates) as url, session_with(certificates.client_context(), limit=10) as session:

            async def fetch(number):
                async with session.post(f"{url}/echo", data=io.BytesIO(BODY[:number])) as response:
                    return await response.read() == BODY[:number]

            assert all(await asyncio.gather(*(fetch(number * 1000) for number in range(60))))

    impl.run(main())


def test_a_connection_for_each_request(impl, certificates):
    async def main():
        options = {"force_close": True}
        async with site(certificates) as url, session_with(certificates.client_context(), **options) as session:
            for _ in range(10):
                async with session.get(f"{url}/stream") as response:
                    assert await response.read() == BODY

    impl.run(main())


def test_a_websocket(impl, certificates):
    async def main():
        async with (
            site(certificates) as url,
            session_with(certificates.client_context()) as session,
            session.ws_connect(f"{url}/chat", max_msg_size=0) as socket,
        ):
            for size in (1, 1000, 300_000):
                await socket.send_bytes(BODY[:size])
                assert (await socket.receive()).data == BODY[:size][::-1]

    impl.run(main())


def test_a_client_that_leaves_in_the_middle(impl, certificates):
    async def main():
        async with site(certificates) as url, session_with(certificates.client_context()) as session:
            for _ in range(5):
                async with session.get(f"{url}/stream") as response:
                    assert await response.content.read(10) == BODY[:10]
                    response.close()
            async with session.get(url) as response:
                assert response.status == 200

    impl.run(main())


def test_a_certificate_that_is_refused(impl, certificates):
    async def main():
        context = certificates.client_context(trusts=False)
        async with site(certificates) as url, session_with(context) as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError) as caught:
                await session.get(url)
            assert isinstance(caught.value.certificate_error, ssl.SSLCertVerificationError)

    impl.run(main())


def test_a_proxy_that_is_tls_itself(impl, certificates):
    """TLS inside TLS: the client tunnels through a proxy whose own port speaks https."""

    async def tunnel(reader, writer):
        line = await reader.readline()
        host, _, port = line.split()[1].partition(b":")
        while await reader.readline() != b"\r\n":
            pass
        out_reader, out_writer = await asyncio.open_connection(host.decode(), int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def pump(source, sink):
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, out_writer), pump(out_reader, writer))
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def main():
        tunnels = set()

        def start(reader, writer):
            task = asyncio.ensure_future(tunnel(reader, writer))
            tunnels.add(task)

        proxy = await asyncio.start_server(start, "127.0.0.1", 0, ssl=certificates.server_context())
        host, port = proxy.sockets[0].getsockname()
        async with site(certificates) as url, session_with(certificates.client_context()) as session:
            for _ in range(2):
                async with session.get(f"{url}/stream", proxy=f"https://{host}:{port}") as response:
                    assert await response.read() == BODY
        proxy.close()
        await asyncio.gather(*tunnels)
        await settle()

    impl.run(main())
