"""Other threads call transports directly, which asyncio's documents forbid: see support/thread_misuse.py."""

import pytest
from support.thread_misuse import DRIVER, PRELUDE, run_misuse

pytestmark = pytest.mark.promise("P04")

# A transport to `here`; the program has its other end.
TRANSPORT = """
here, there = socket.socketpair()
there.settimeout(60)
received = bytearray()

class Connected(asyncio.Protocol):
    lost = False

    def data_received(self, data):
        received.extend(data)

    def connection_lost(self, error):
        self.lost = True

transport, protocol = loop.run_until_complete(loop.create_connection(Connected, sock=here))

def drain():
    there.setblocking(False)
    with contextlib.suppress(OSError):
        while there.recv(65536):
            pass

def end():
    transport.abort()
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert protocol.lost
    there.close()
"""

MISUSES_OF_TRANSPORTS = {
    "write": """
def work():
    transport.write(b"from the loop")
    drain()

def misuse(number, call):
    transport.write(b"from a thread")
    transport.write(bytearray(b"from a thread"))
    transport.writelines([b"from a thread"] * 10)
    transport.get_write_buffer_size()
    transport.set_write_buffer_limits(call)
    transport.is_closing()
""",
    "pause_reading": """
def work():
    there.send(b"x")
    drain()

def misuse(number, call):
    transport.pause_reading()
    transport.is_reading()
    transport.resume_reading()
    transport.get_protocol()
    transport.set_protocol(protocol)
    repr(transport)
""",
    "set_protocol and set_write_buffer_limits": """
# The transport takes new objects of the loop's thread, and frees the ones that other threads may be asking for.
def work():
    for size in range(10**6, 10**6 + 20):
        transport.set_protocol(Connected())
        transport.set_write_buffer_limits(size)
    transport.set_protocol(protocol)

def misuse(number, call):
    for _ in range(20):
        transport.get_protocol()
        transport.get_write_buffer_limits()
""",
    "close": """
connections = []

async def connect():
    for _ in range(20):
        one, other = socket.socketpair()
        connection, _ = await loop.create_connection(asyncio.Protocol, sock=one)
        connections.append((connection, other))

def work():
    if len(connections) < 10:
        task = loop.create_task(connect())
        task.add_done_callback(nothing)
    for connection, _ in connections:
        connection.write(b"from the loop")

def misuse(number, call):
    with contextlib.suppress(IndexError):
        connection, other = connections.pop()
        connection.write(b"x" * 100_000)
        connection.get_extra_info("socket")
        connection.get_extra_info("sockname")
        getattr(connection, ("close", "abort")[call % 2])()
        connection.write(b"too late")
        connection.is_closing()
        connection.get_protocol()
        repr(connection)
        other.close()

original_end = end

def end():
    for connection, other in connections:
        connection.abort()
        other.close()
    original_end()
""",
}

DATAGRAMS = """
async def open_endpoint():
    return await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))

transport, protocol = loop.run_until_complete(open_endpoint())
address = transport.get_extra_info("sockname")

def work():
    transport.sendto(b"from the loop", address)

def misuse(number, call):
    transport.sendto(b"from a thread", address)
    transport.get_write_buffer_size()

def end():
    transport.abort()
"""

PIPES = """
read_end, write_end = os.pipe()
transport, protocol = loop.run_until_complete(loop.connect_write_pipe(asyncio.BaseProtocol, open(write_end, "wb")))
reader, _ = loop.run_until_complete(loop.connect_read_pipe(asyncio.Protocol, open(read_end, "rb")))

def work():
    transport.write(b"from the loop")

def misuse(number, call):
    transport.write(b"from a thread" * 100)
    reader.pause_reading()
    reader.resume_reading()
    transport.get_write_buffer_size()

def end():
    transport.abort()
    reader.close()
"""


@pytest.mark.parametrize("name", MISUSES_OF_TRANSPORTS)
def test_transports_used_by_other_threads(impl, name):
    run_misuse(impl, PRELUDE, TRANSPORT, MISUSES_OF_TRANSPORTS[name], DRIVER)


@pytest.mark.parametrize("source", [DATAGRAMS, PIPES], ids=["datagrams", "pipes"])
def test_other_transports_used_by_other_threads(impl, source):
    run_misuse(impl, PRELUDE, source, DRIVER)
