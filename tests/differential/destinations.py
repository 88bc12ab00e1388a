"""Where programs that make connections connect to, and the kernel's view of their sockets."""

import contextlib
import fcntl
import os
import socket
import struct
import sys
import tempfile
import termios

from support.certificates import HOST, issued

SYN_SENT, FIN_WAIT2, CLOSED = 2, 5, 7  # states of a TCP socket
SECONDS_FOR_THE_PEER = 20


class OtherSocket(socket.socket):
    pass


class Places:
    """Where the calls of one program lead to."""

    def __init__(self, stack):
        self.stack = stack
        self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hotloop"))
        self.addresses = {}
        self.listeners = {}
        self.connections = {}  # those that were accepted, by their clients' addresses
        self.shared = self.pair()
        for number, family, host in ((4, socket.AF_INET, "127.0.0.1"), (6, socket.AF_INET6, "::1")):
            listener = self.listener(f"open {number}", socket.create_server((host, 0), family=family))
            self.addresses[f"open {number}"] = family, listener.getsockname()
            bound = self.own(socket.socket(family))
            bound.bind((host, 0))
            self.addresses[f"refusing {number}"] = family, bound.getsockname()
        self.addresses["silent"] = socket.AF_INET6, self.black_hole()
        self.addresses["broadcast"] = socket.AF_INET, ("127.255.255.255", 4545)
        self.addresses["wrong port"] = socket.AF_INET, ("127.0.0.1", 70000)
        self.addresses["no address"] = socket.AF_INET, ("::1", 4546)
        self.addresses["no family"] = 999, ("127.0.0.1", 4547)
        self.paths = {name: f"{self.folder}/{name}" for name in ("open", "refusing", "full", "missing", "file")}
        self.paths |= {"long": self.folder + "/" + "x" * 200, "empty": "", "abstract": f"\0{self.folder}"}
        with open(self.paths["file"], "w"):
            pass
        for name, backlog in (("open", 10), ("abstract", 10), ("full", 0), ("refusing", None)):
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(self.paths[name])
            if backlog is not None:
                sock.listen(backlog)
            self.listener(name, sock)
        self.own(socket.socket(socket.AF_UNIX)).connect(self.paths["full"])

    def own(self, sock):
        self.stack.callback(sock.close)
        return sock

    def listener(self, name, sock):
        sock.settimeout(SECONDS_FOR_THE_PEER)
        self.listeners[name] = self.own(sock)
        return sock

    def black_hole(self):
        """A listening socket whose queue of one place is taken. It is known by an address that no other has."""
        listener = self.own(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        self.own(socket.create_connection(listener.getsockname()))
        return f"::ffff:{listener.getsockname()[0]}", listener.getsockname()[1], 0, 0

    def accepted(self, name, address):
        """The peer of a socket with this address."""
        while address not in self.connections:
            peer, found = self.listeners[name].accept()
            self.connections[found] = self.own(peer)
        return self.connections[address]

    def pair(self):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        return self.own(ours), self.own(theirs)

    def socket(self, kind):
        """A socket, and its peer if it has one."""
        if kind == "none":
            return None, None
        if kind == "tcp":
            sock = self.own(socket.create_connection(self.addresses["open 4"][1]))
            sock.setblocking(False)
            return sock, self.accepted("open 4", sock.getsockname())
        if kind == "shared" and sys.version_info >= (3, 12):  # asyncio refuses two transports of one socket since then
            return self.shared
        if kind in ("pair", "blocking", "shared", "tls", "subclass"):
            sock, peer = self.pair()
            sock.setblocking(kind == "blocking")
            if kind == "tls":
                context = issued().client_context()
                sock = context.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=HOST)
            elif kind == "subclass":
                sock = OtherSocket(fileno=sock.detach())
            return self.own(sock), peer
        sock = self.own(socket.socket(type=socket.SOCK_DGRAM if kind == "datagram" else socket.SOCK_STREAM))
        sock.setblocking(False)
        if kind == "listening":
            sock.listen()
        elif kind == "closed":
            sock.close()
        return sock, None

    def name_addresses(self, text):
        """Names in place of whole addresses: two that differ in their hosts may have the same port."""
        for name, (_, address) in self.addresses.items():
            text = text.replace(str(address), f"<{name}>")
        return text


def tcp_state(sock):
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def undecided(descriptor):
    """Whether this descriptor is of a socket that waits for the answer to its SYN."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as sock:
        if sock.type == socket.SOCK_STREAM and sock.family != socket.AF_UNIX and tcp_state(sock) == SYN_SENT:
            return not sock.getsockname()[0].startswith("::ffff:")
    return False


def settle(first_descriptor):
    while any(undecided(int(name)) for name in os.listdir("/proc/self/fd") if int(name) >= first_descriptor):
        pass


def deliver(sock):
    """Wait until the other end's kernel has all that was sent."""
    if sock.family != socket.AF_UNIX:
        while struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0] and tcp_state(sock) != CLOSED:
            pass


def end_sending(sock):
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while sock.family != socket.AF_UNIX and tcp_state(sock) < FIN_WAIT2:
            pass


def received(sock):
    """What has come until the end of the connection, and how that ended."""
    found = b""
    sock.settimeout(SECONDS_FOR_THE_PEER)
    try:
        while data := sock.recv(1000):
            found += data
    except OSError as error:
        return without_tls(found), type(error).__name__
    return without_tls(found), "end"


def without_tls(data):
    """Data up to a ClientHello, which is random."""
    return data.partition(b"\x16\x03\x01")[0]
