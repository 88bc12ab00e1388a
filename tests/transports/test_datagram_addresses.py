"""Addresses of datagrams: every form that a socket takes, and the scope of IPv6 addresses."""

import socket

import pytest
from support.endpoints import close, over, until
from support.recording import DatagramRecorder

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets")


def link_local_addresses():
    """Link-local IPv6 addresses of this host with their scope: a datagram to an own address stays in the host."""
    try:
        with open("/proc/net/if_inet6") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    return [
        (":".join(digits[at : at + 4] for at in range(0, 32, 4)), int(index, 16))
        for digits, index, _, scope, *_ in lines
        if scope == "20"
    ]


def test_ipv6_addresses_keep_their_scope(loop):
    found = link_local_addresses()
    if not found:
        pytest.skip("no interface has a link-local IPv6 address")

    async def main():
        host, scope = found[0]
        with (
            socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one,
            socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other,
        ):
            one.bind((host, 0, 0, scope))
            other.bind((host, 0, 0, scope))
            one.connect(other.getsockname())
            expected = one.getsockname()
            peername = one.getpeername()
            assert peername[3] == scope
            connected, _ = await over(loop, one.dup())
            listening, protocol = await over(loop, other.dup())
            assert connected.get_extra_info("peername") == peername
            assert connected.get_extra_info("sockname") == expected
            connected.sendto(b"scoped")
            await until(lambda: protocol.received)
            assert protocol.addresses == [expected]
            listening.sendto(b"back", protocol.addresses[0])
            await until(lambda: connected.get_protocol().received)
            assert connected.get_protocol().addresses == [peername]
            await close(connected, listening)

    loop.run_until_complete(main())


@pytest.mark.parametrize("form", ["two parts", "three parts", "four parts"])
def test_ipv6_addresses_may_be_short(loop, form):
    async def main():
        server, protocol = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("::1", 0))
        client, _ = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("::1", 0))
        address = server.get_extra_info("sockname")[: 2 + ["two parts", "three parts", "four parts"].index(form)]
        client.sendto(b"x", address)
        await until(lambda: protocol.received)
        await close(client, server)

    loop.run_until_complete(main())


class Number(int):
    """A port that is an int by inheritance."""


class Index:
    """A port that is an int by protocol (__index__)."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


ADDRESS_FORMS = {
    "bytes": lambda host, port: (host.encode(), port),
    "bytearray": lambda host, port: (bytearray(host.encode()), port),
    "a name": lambda host, port: ("localhost", port),
    "an int subclass": lambda host, port: (host, Number(port)),
    "an index": lambda host, port: (host, Index(port)),
    "a tuple subclass": lambda host, port: type("Address", (tuple,), {})((host, port)),
}


@pytest.mark.parametrize("form", ADDRESS_FORMS)
def test_every_form_of_address_that_a_socket_takes(loop, form):
    async def main():
        server, protocol = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
        client, _ = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
        for count in range(1, 4):
            client.sendto(b"x", ADDRESS_FORMS[form](*server.get_extra_info("sockname")))
            await until(lambda count=count: len(protocol.received) == count)
        await close(client, server)

    loop.run_until_complete(main())
