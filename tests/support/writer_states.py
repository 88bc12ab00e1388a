"""For tests of asyncio.StreamWriter and StreamReaderProtocol: their attributes, and a transport that records calls."""

import asyncio

PROTOCOL_NAMES = ("_loop", "_paused", "_drain_waiters", "_connection_lost", "_stream_reader_wr", "_closed")
WRITER_NAMES = ("_transport", "_protocol", "_reader", "_loop", "_complete_fut")


class RecordingTransport:
    """A transport that records the calls."""

    def __init__(self, log):
        self.log = log
        self.closing = False

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments, **keywords):
            self.log.append((name, arguments, keywords))
            return f"result of {name}"

        return call

    def is_closing(self):
        self.log.append("is_closing")
        return self.closing

    def close(self):
        self.closing = True
        self.log.append("close")
        return "closed"

    def get_extra_info(self, name, default=None):
        self.log.append((name, default))
        return default

    def __repr__(self):
        return "<RecordingTransport>"


def streams(module, log, *, with_reader=True):
    """A reader, a protocol and a writer on a transport that records the calls."""
    running = asyncio.get_running_loop()
    reader = module.StreamReader(limit=100, loop=running) if with_reader else None
    protocol = module.StreamReaderProtocol(reader, loop=running)
    transport = RecordingTransport(log)
    protocol.connection_made(transport)
    return reader, protocol, module.StreamWriter(transport, protocol, reader, running)


def end(protocol, writer):
    """Leave nothing for __del__() to warn of."""
    writer._transport = RecordingTransport([])
    writer._transport.closing = True
    protocol._closed.cancel()
