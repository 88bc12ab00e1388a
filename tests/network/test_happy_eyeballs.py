"""create_connection() with `happy_eyeballs_delay` where addresses are silent, slow or refuse, to the millisecond (P12).

The tests run in a network in memory with virtual time, where an address can be silent on every system. The delays are
those of RFC 8305, which the keyword follows; a client that gets no answer behaves as on Linux.
"""

import asyncio
import contextlib
import sys

import pytest
from support.endpoints import turns
from support.recording import Recorder

pytestmark = [pytest.mark.promise("P12"), pytest.mark.hotloop]

ADDRESSES = [f"10.1.0.{number}" for number in range(1, 5)]
PORT = 80
LATENCY = 2**-7  # seconds; sums of such numbers are exact
ROUND_TRIP = 2 * LATENCY
DELAY = 0.25
GIVEN_UP = 127.0  # seconds, after which TCP raises TimeoutError


@pytest.fixture
async def network(hotloop_network):
    """The network, with a host that has ADDRESSES and listens on all of them."""
    hotloop_network.link(latency=LATENCY)
    hotloop_network.host("a.test", *ADDRESSES)
    with hotloop_network.at("a.test"):
        server = await asyncio.get_running_loop().create_server(Recorder, "a.test", PORT)
    yield hotloop_network
    server.close()


@contextlib.asynccontextmanager
async def connected(network, **options):
    """The address that a client has reached, and after how many seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    transport, protocol = await loop.create_connection(Recorder, "a.test", PORT, **options)
    waited = loop.time() - began
    yield transport.get_extra_info("peername")[0], waited
    transport.close()
    while not protocol.lost:
        await asyncio.sleep(LATENCY)


@pytest.mark.parametrize("silent", [0, 1, 2, 3])
async def test_each_silent_address_costs_a_delay(network, silent):
    for address in ADDRESSES[:silent]:
        network.partition(address)
    async with connected(network, happy_eyeballs_delay=DELAY) as reached:
        assert reached == (ADDRESSES[silent], silent * DELAY + ROUND_TRIP)
        # The other attempts have been cancelled.
        await turns(5)
        assert len(network.connections) == 1


async def test_without_the_delay_a_silent_address_costs_two_minutes(network):
    network.partition(ADDRESSES[0])
    async with connected(network) as reached:
        assert reached == (ADDRESSES[1], GIVEN_UP + ROUND_TRIP)


async def test_an_address_that_refuses_costs_no_delay(network):
    network.host("b.test", "10.2.0.1", "10.2.0.2", "10.2.0.3")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Recorder, "10.2.0.3", PORT)
    began = loop.time()
    transport, protocol = await loop.create_connection(Recorder, "b.test", PORT, happy_eyeballs_delay=DELAY)
    assert transport.get_extra_info("peername")[0] == "10.2.0.3"
    assert loop.time() - began == 3 * ROUND_TRIP
    transport.close()
    server.close()
    while not protocol.lost:
        await asyncio.sleep(LATENCY)


@pytest.mark.parametrize(("slow", "winner", "after"), [(0.5, 0, 1.0), (1.0, 1, DELAY + 1.5)])
async def test_an_address_that_is_slow_may_win_still(network, slow, winner, after):
    """The second attempt does not end the first: the first address that answers wins."""
    network.link(ADDRESSES[0], latency=slow)
    network.link(ADDRESSES[1], latency=0.75)
    for address in ADDRESSES[2:]:
        network.partition(address)
    async with connected(network, happy_eyeballs_delay=DELAY) as reached:
        assert reached == (ADDRESSES[winner], after)


async def test_the_families_take_turns(hotloop_network):
    """RFC 8305, section 4: after the first IPv6 address comes an IPv4 one, so all of IPv6 may be silent."""
    network, loop = hotloop_network, asyncio.get_running_loop()
    addresses = ["fd00::1", "fd00::2", "fd00::3", "10.3.0.1"]
    network.host("c.test", *addresses)
    with network.at("c.test"):
        server = await loop.create_server(Recorder, "c.test", PORT)
    for address in addresses[:3]:
        network.partition(address)
    transport, protocol = await loop.create_connection(Recorder, "c.test", PORT, happy_eyeballs_delay=DELAY)
    assert (transport.get_extra_info("peername")[0], loop.time()) == ("10.3.0.1", DELAY)
    transport.close()
    server.close()
    while not protocol.lost:
        await asyncio.sleep(LATENCY)


@pytest.mark.parametrize("all_errors", [False, True])
async def test_where_no_address_answers(network, hotloop_clock, all_errors):
    if all_errors and sys.version_info < (3, 12):
        pytest.skip("all_errors came with CPython 3.12")
    network.partition("a.test")
    began = hotloop_clock.time()
    with pytest.raises((OSError, ExceptionGroup)) as caught:
        options = {"all_errors": True} if all_errors else {}
        await asyncio.get_running_loop().create_connection(
            Recorder, "a.test", PORT, happy_eyeballs_delay=DELAY, **options
        )
    assert hotloop_clock.time() - began == 3 * DELAY + GIVEN_UP
    if all_errors:
        assert [type(error) for error in caught.value.exceptions] == [TimeoutError] * 4
    else:
        assert isinstance(caught.value, TimeoutError), "the first error, where all say the same"


@pytest.mark.parametrize("after", [0.0, DELAY / 2, DELAY, 2 * DELAY, 3 * DELAY + 1])
async def test_cancelled_at_any_time(network, after):
    """However many attempts are under way, none is left."""
    network.partition("a.test")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(after):
            await asyncio.get_running_loop().create_connection(Recorder, "a.test", PORT, happy_eyeballs_delay=DELAY)
    network.heal()
    await asyncio.sleep(1000)
    assert not network.connections
    assert asyncio.all_tasks() == {asyncio.current_task()}
