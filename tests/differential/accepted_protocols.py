"""The protocols of accepted connections in test_programs_of_accepting.py. They note what they are told, and do in
connection_made() what the program says."""

import asyncio


def outline(data):
    """What can be compared of data: clients send zeros, unless it is the beginning of a TLS handshake, which is
    random."""
    return len(data), any(data)


class Bare(asyncio.BaseProtocol):
    def __init__(self, stage, made, server):
        self.stage = stage
        self.made = made
        self.server = server
        self.number = None

    def connection_made(self, transport):
        stage = self.stage
        self.number = stage.connection(transport)
        stage.transports[self.number] = transport
        encrypted = transport.get_extra_info("sslcontext") is not None
        if encrypted and self.made in ("exit", "interrupt"):
            # asyncio keeps the last part of TLS's handshake until the peer sends something. hotloop sends it, and may
            # find that the peer has left before it sees the peer's end.
            stage.tells_ends = False
        stage.note(self.number, "connection_made", *stage.extra_of(transport))
        if self.made == "raise":
            raise ZeroDivisionError
        elif self.made == "exit":
            raise SystemExit
        elif self.made == "interrupt":
            raise KeyboardInterrupt
        elif self.made in ("close", "abort"):
            getattr(transport, self.made)()
        elif self.made == "write":
            transport.write(b"made")
        elif self.made == "pause":
            if not encrypted:
                transport.pause_reading()
            else:  # before that, asyncio's TLS keeps the last part of its handshake until the next write
                stage.loop.call_soon(transport.pause_reading)
        elif self.made == "close server":
            stage.call((self.server, "close"))
        elif self.made == "close all":
            for server in range(len(stage.servers)):
                stage.call((server, "close"))
        elif self.made == "stop":
            stage.loop.stop()
        elif self.made == "starve":
            stage.starve(1)

    def connection_lost(self, error):
        self.stage.lost.add(self.number)
        self.stage.note(self.number, "connection_lost", repr(error) if self.stage.tells_ends else "")

    def note_eof(self):
        if self.stage.tells_ends:
            self.stage.note(self.number, "eof_received")


class Plain(Bare, asyncio.Protocol):
    def data_received(self, data):
        self.stage.note(self.number, "data", outline(data))

    def eof_received(self):
        self.note_eof()


class Buffered(Bare, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint):
        self.buffer = bytearray(10_000)
        return self.buffer

    def buffer_updated(self, nbytes):
        self.stage.note(self.number, "data", outline(self.buffer[:nbytes]))

    def eof_received(self):
        self.note_eof()
