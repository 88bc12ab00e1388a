"""Programs change asyncio's streams in every way that Python lets them. Each change must be seen, whatever short cut
the bytes take into an unchanged reader."""

import asyncio

import pytest
from wired import wired


class LoudReader(asyncio.StreamReader):
    def feed_data(self, data):
        super().feed_data(data.upper())

    ended = False

    def feed_eof(self):  # the end of the connection is told as an end as well
        if not self.ended:
            super().feed_data(b"!")
        self.ended = True
        super().feed_eof()


class LoudProtocol(asyncio.StreamReaderProtocol):
    def data_received(self, data):
        super().data_received(data.upper())

    def eof_received(self):
        super().data_received(b"!")
        return super().eof_received()


async def told(wire):
    wire.send(b"quiet")
    wire.peer.shutdown(1)
    return await wire.reader.read()


def test_a_subclass_of_the_reader(impl):
    async def main():
        async with wired(make_reader=LoudReader) as wire:
            assert await told(wire) == b"QUIET!"

    impl.run(main())


def test_a_subclass_of_the_protocol(impl):
    async def main():
        async with wired(make_protocol=LoudProtocol) as wire:
            assert await told(wire) == b"QUIET!"

    impl.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("target", ["reader", "protocol"])
def test_methods_patched_on_an_instance(impl, target, when):
    async def main():
        async with wired() as wire:
            if when == "after":
                wire.send(b"calm ")
                await wire.until(lambda: wire.reader._buffer)
            subject = wire.reader if target == "reader" else wire.writer.transport.get_protocol()
            name = "feed_data" if target == "reader" else "data_received"
            original = getattr(subject, name)
            setattr(subject, name, lambda data: original(data.upper()))
            assert await told(wire) == (b"QUIET" if when == "before" else b"calm QUIET")

    impl.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("class_", "name"), [(asyncio.StreamReader, "feed_data"), (asyncio.StreamReaderProtocol, "data_received")]
)
def test_methods_patched_on_the_class(impl, monkeypatch, class_, name, when):
    original = getattr(class_, name)

    async def main():
        async with wired() as wire:
            if when == "after":
                wire.send(b"calm ")
                await wire.until(lambda: wire.reader._buffer)
            monkeypatch.setattr(class_, name, lambda self, data: original(self, data.upper()))
            try:
                assert await told(wire) == (b"QUIET" if when == "before" else b"calm QUIET")
            finally:
                monkeypatch.undo()
            async with wired() as other:
                assert await told(other) == b"quiet"

    impl.run(main())


def test_a_patched_feed_eof(impl, monkeypatch):
    original = asyncio.StreamReader.feed_eof
    seen = []

    async def main():
        async with wired() as wire:
            monkeypatch.setattr(asyncio.StreamReader, "feed_eof", lambda self: seen.append(1) or original(self))
            assert await told(wire) == b"quiet"

    impl.run(main())
    assert seen


def test_a_patched_pause_reading(impl):
    """A reader pauses its transport by calling it, so a stand-in for the transport is called."""

    class Standing:
        paused = 0

        def __init__(self, transport):
            self.transport = transport

        def pause_reading(self):
            self.paused += 1
            self.transport.pause_reading()

        def __getattr__(self, name):
            return getattr(self.transport, name)

    async def main():
        async with wired() as wire:
            stand_in = wire.reader._transport = Standing(wire.writer.transport)
            wire.send(b"x" * 1000)
            await wire.until(lambda: not wire.writer.transport.is_reading())
            assert stand_in.paused == 1
            assert await wire.reader.readexactly(1000) == b"x" * 1000

    impl.run(main())
