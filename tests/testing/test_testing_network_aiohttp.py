"""aiohttp's client and server over a pipe_network(), unchanged."""

import asyncio
import contextlib
import functools

import pytest
from support.certificates import HOST
from support.memory_network import now
from support.virtual_time import run_virtual

from hotloop.testing import pipe_network

aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed: `pip install hotloop[examples]`")
web = pytest.importorskip("aiohttp.web", reason="aiohttp is not installed: `pip install hotloop[examples]`")

BODY = bytes(range(256)) * 400


@pytest.fixture
def run(impl):
    return functools.partial(run_virtual, impl)


async def echo(request):
    return web.Response(body=await request.read(), headers={"Remote": request.remote})


async def never(request):
    await asyncio.Event().wait()


async def reverse(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_bytes(message.data[::-1])
    return socket


@contextlib.asynccontextmanager
async def site(host=HOST, port=8080, **options):
    app = web.Application(client_max_size=2**24)
    app.add_routes([web.post("/echo", echo), web.get("/never", never), web.get("/chat", reverse)])
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, host, port, **options).start()
    try:
        yield runner
    finally:
        await runner.cleanup()


def session(ssl=True, seconds=300):
    # This resolver asks the loop, whatever else is installed.
    connector = aiohttp.TCPConnector(ssl=ssl, resolver=aiohttp.ThreadedResolver())
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=seconds))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_requests(run, scheme, request):
    certificates = request.getfixturevalue("certificates") if scheme == "https" else None
    server = certificates.server_context() if certificates else None
    client = certificates.client_context() if certificates else True

    async def main():
        async with pipe_network(latency=(0.01, 0.1), bandwidth=1e6, fragment=(1, 2000)) as network:
            async with site(ssl_context=server) as runner, session(client) as http:
                assert runner.addresses == [("127.0.0.1", 8080), ("::1", 8080, 0, 0)]
                url = f"{scheme}://{HOST}:8080"

                async def post(number):
                    async with http.post(f"{url}/echo", data=BODY[number:]) as response:
                        assert await response.read() == BODY[number:]
                        return response.headers["Remote"]

                with network.at("client.test"):
                    assert set(await asyncio.gather(*map(post, range(4)))) == {"10.0.0.1"}
                # One round trip for the connection and one for the request, each with 0.1 s of bandwidth.
                assert 0.2 < now() < 2
                async with http.ws_connect(f"{url}/chat") as socket:
                    await socket.send_bytes(BODY[:1000])
                    assert (await socket.receive()).data == BODY[:1000][::-1]
                    # The client keeps its connections open.
                    assert len(network.connections) == 4
            await asyncio.sleep(1)
            assert network.connections == ()

    run(main())


def test_a_request_that_is_not_answered_in_time(run):
    async def main():
        async with pipe_network(latency=0.01), site(), session() as http:
            with pytest.raises(TimeoutError):
                await http.get(f"http://{HOST}:8080/never")
            # aiohttp rounds long timeouts up to a full second.
            assert 300 <= now() <= 301

    run(main())


def test_a_client_without_its_server(run):
    async def main():
        async with pipe_network(latency=0.01) as network:
            network.host("idle.test")
            async with site("server.test"), session() as http:
                url = "http://server.test:8080/echo"
                for host, error in {
                    "nobody.test": aiohttp.ClientConnectorDNSError,
                    "idle.test": aiohttp.ClientConnectorError,
                }.items():
                    with pytest.raises(error):
                        await http.get(f"http://{host}:8080/")
                async with http.post(url, data=b"hello") as response:
                    assert await response.read() == b"hello"
                posting = asyncio.ensure_future(http.post(url, data=BODY))
                await asyncio.sleep(0.005)
                network.connections[0].reset()
                with pytest.raises(aiohttp.ClientOSError):
                    await posting
                network.partition("server.test")
                with pytest.raises(TimeoutError):
                    await http.post(url, data=BODY, timeout=aiohttp.ClientTimeout(total=5))

    run(main())


def test_aiohttps_own_server_for_tests(run):
    """It binds its socket before a loop makes the server."""
    test_utils = pytest.importorskip("aiohttp.test_utils")

    async def main():
        async with pipe_network(latency=0.25):
            app = web.Application()
            app.add_routes([web.post("/echo", echo)])
            async with test_utils.TestClient(test_utils.TestServer(app)) as client:
                begin = now()
                async with client.post("/echo", data=b"hello") as response:
                    assert await response.read() == b"hello"
                assert now() == begin + 1.0  # to connect, and to ask

    run(main())


def test_an_address_that_is_dead(run):
    """aiohttp races the addresses of a host by itself, with sockets of its own."""

    async def main():
        async with pipe_network() as network:
            network.host("server.test", "2001:db8::1", "192.0.2.1")
            async with site("server.test"), session() as http:
                network.partition("2001:db8::1")
                async with http.post("http://server.test:8080/echo", data=b"hello") as response:
                    assert response.headers["Remote"] == "127.0.0.1"
                assert now() == 0.25

    run(main())
