"""The methods of asyncio.StreamReaderProtocol that transports call: the compiled one does what asyncio's own does."""

import gc
import re

import pytest
from support.comparing import outcome, outcome_of, same_on_both, turns
from support.writer_states import end, streams


def test_flow_control_out_of_turn(loop):
    async def use(module):
        log = []
        _, protocol, writer = streams(module, log)
        log += [outcome(protocol.resume_writing), outcome(protocol.pause_writing)]
        log += [outcome(protocol.pause_writing), outcome(protocol.resume_writing)]
        end(protocol, writer)
        return log

    same_on_both(loop, use)


def test_flow_control_is_logged_in_debug_mode(loop, asyncio_log):
    async def use(module):
        _, protocol, writer = streams(module, [])
        protocol.pause_writing()
        protocol.resume_writing()
        end(protocol, writer)
        return [re.sub("0x[0-9a-f]+", "0x", message) for message in asyncio_log.take()]

    loop.set_debug(True)
    loop.run_until_complete(turns(1))
    asyncio_log.take()
    same_on_both(loop, use)


def test_reader_that_is_gone(loop):
    async def use(module):
        log = []
        reader, protocol, writer = streams(module, log)
        del reader
        writer._reader = None
        gc.collect()
        log += [protocol._stream_reader, outcome(protocol.data_received, b"x"), await outcome_of(writer.drain())]
        end(protocol, writer)
        return log

    same_on_both(loop, use)


@pytest.mark.parametrize("data", [b"", b"x", bytearray(b"x"), memoryview(b"x"), "x", None])
def test_received_data(loop, data):
    async def use(module):
        log = []
        reader, protocol, writer = streams(module, log)
        log += [outcome(protocol.data_received, data), bytes(reader._buffer)]
        reader.feed_eof()
        log += [outcome(protocol.data_received, data), bytes(reader._buffer)]
        end(protocol, writer)
        return log

    same_on_both(loop, use)
