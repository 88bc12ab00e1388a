"""The protocols of stages: they tell their stage what they hear, so that it notes it and reacts."""

import asyncio


class FlowControl:
    """The callbacks of writing, in any protocol. The stage is `resuming` within resume_writing(), because asyncio's
    transports take some steps amiss there."""

    def pause_writing(self):
        self.stage.happened("pause_writing")

    def resume_writing(self):
        self.stage.resuming = True
        self.stage.happened("resume_writing")
        self.stage.resuming = False


class Connected(FlowControl):
    """The common part of both kinds of protocols of a stage with one connection.

    The stage has received(), which gets the data, and new_buffer(), which get_buffer() returns; `keep_open`, which
    eof_received() returns; and reason(), which makes of connection_lost()'s error what is the same on asyncio.
    """

    def __init__(self, stage):
        self.stage = stage

    def connection_made(self, transport):
        self.stage.transport = transport
        self.stage.happened("connection_made")

    def eof_received(self):
        self.stage.happened("eof_received")
        return self.stage.keep_open

    def connection_lost(self, error):
        self.stage.lost = True
        self.stage.happened("connection_lost", self.stage.reason(error))


class Streaming(Connected, asyncio.Protocol):
    def data_received(self, data):
        self.stage.received(bytes(data))


class Buffered(Connected, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint):
        self.buffer = self.stage.new_buffer()
        return self.buffer

    def buffer_updated(self, nbytes):
        self.stage.received(bytes(self.buffer[:nbytes]))
