"""The relay between the two sides of a connection: it reads bytes from one socket and writes them to the other, later.

Each side has a real socket, one end of a pair. The relay has the other ends, and between them a queue for each
direction, in which data waits until it is due by the loop's clock. So a delivery is a timer like any other. When a
buffer's worth of data is on its way, the relay stops reading. Then the sender's socket fills, and its transport tells
its protocol to pause.
"""

import random
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hotloop.testing.link import Name

if TYPE_CHECKING:
    from hotloop.testing.connection import Connection

_T = TypeVar("_T")


def for_each(function: Callable[[_T], object], items: Iterable[_T]) -> None:
    """Call `function` with each item, even if a function of the test raises for one of them; then raise that."""
    with ExitStack() as calls:
        for item in reversed(tuple(items)):
            calls.callback(function, item)


class Item(NamedTuple):
    """An item on its way."""

    due: float  # by the loop's clock
    what: bytes | Callable[[], object]  # data, or a function to call, such as for the end of the stream
    apart: bool  # the receiver must read it separately from the next item


class Pipe:
    """One direction of a connection."""

    def __init__(
        self,
        connection: "Connection",
        to: str,  # "client" or "server"
        sender: Name,
        receiver: Name,
        source: socket.socket,  # the relay's, as is `target`
        target: socket.socket,
    ) -> None:
        self._connection = connection
        self._network = connection._network
        self._loop: Any = connection._network._loop
        self._to = to
        self._sender, self._receiver = sender, receiver
        self._source, self._target = source, target
        self._rng = random.Random(f"{self._network.seed!r}, connection {connection.number} to the {to}")
        self._queue: deque[Item] = deque()
        self._size = 0  # bytes in the queue
        self._free_at = 0.0  # the time at which the link has sent everything before
        self._handle: Any = None  # the handle of the next _deliver()
        self._reads = self._writes = False  # whether the loop watches the source, or the target
        self._has_read_all = self._stopped = self._held = False
        self.ended = False  # the receiver has been told of the end of the stream

    # -- in ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._held = self._connection._is_held()
        self._read_if_there_is_room()

    def _read_if_there_is_room(self) -> None:
        wanted = self._size < self._network._buffer and not self._has_read_all and not self._stopped
        if wanted and not self._reads:
            self._network._call(self._loop.add_reader, self._source, self._read)
        elif self._reads and not wanted:
            self._loop.remove_reader(self._source)
        self._reads = wanted

    def _read(self) -> None:
        try:
            data = self._source.recv(self._network._buffer - self._size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # The program has closed its socket with data unread, which is a reset over TCP, too.
            self.send_reset()
        else:
            self._send(data)

    def _send(self, data: bytes) -> None:
        if not data:
            self._has_read_all = True
            self.put(self._end)
        links = self._network._links
        apart = links.keeps_pieces_apart(self._sender, self._receiver)
        with self._broken_by_errors():
            for piece in links.pieces(data, self._sender, self._receiver, self._rng):
                self.put(piece, apart=apart)
        self._read_if_there_is_room()
        if not data:
            self._connection._close_if_abandoned()

    @contextmanager
    def _broken_by_errors(self) -> Iterator[None]:
        """If a function of the test raises or returns no valid number, reset the connection: data is lost, and its
        receiver must not wait for it."""
        try:
            yield
        except BaseException:
            self._connection._close(reset=True)
            raise

    def send_reset(self) -> None:
        """Tell the receiver, after the data on its way, that the connection is broken."""
        self._has_read_all = True
        self._read_if_there_is_room()
        self.put(lambda: self._connection._close(reset=True))

    def put(self, what: bytes | Callable[[], object], *, apart: bool = False) -> None:
        """Send data, or a function to call on arrival. It takes as long as the settings of the link say."""
        size = len(what) if isinstance(what, bytes) else 0
        bandwidth = self._network._links.bandwidth(self._sender, self._receiver)
        latency = self._draw_latency()
        self._free_at = max(self._loop.time(), self._free_at) + (size / bandwidth if bandwidth else 0.0)
        # An item that is due earlier than its predecessor waits for it.
        self._queue.append(Item(self._free_at + latency, what, apart))
        self._size += size
        if self._handle is None and not self._writes:
            self._schedule()

    def _draw_latency(self) -> float:
        with self._broken_by_errors():
            links = self._network._links
            return self._network._call(links.latency, self._sender, self._receiver, self._rng)

    # -- out -----------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._queue and not self._held and not self._stopped:
            self._handle = self._network._call(self._loop.call_at, self._queue[0].due, self._deliver)

    def _deliver(self) -> None:
        """Deliver the items that are due."""
        self._handle = None
        while self._queue and self._queue[0].due <= self._loop.time():
            item = self._queue[0]
            if isinstance(item.what, bytes):
                if not self._hand_over(item.what):
                    return
            else:
                self._queue.popleft()
                item.what()
            if self._stopped:
                return
            if item.apart and self._queue:
                # The next iteration finds the receiver's socket readable, and the receiver reads before the one after.
                self._handle = self._network._call(self._loop.call_soon, self._deliver_next_time)
                break
        else:
            self._schedule()
        self._read_if_there_is_room()

    def _deliver_next_time(self) -> None:
        self._handle = self._network._call(self._loop.call_soon, self._deliver)

    def _hand_over(self, data: bytes) -> bool:
        """Write to the receiver's socket. True if it has taken everything; otherwise the rest follows later."""
        try:
            sent = self._target.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            # The receiver has closed its socket. TCP also answers data with a reset then.
            self.stop()
            self._connection._other(self).send_reset()
            return False
        self._size -= sent
        rest = data[sent:]
        if rest:
            self._queue[0] = self._queue[0]._replace(what=rest)
        else:
            self._queue.popleft()
        if sent:
            self._network._note(self._connection, self._to, data[:sent])
        if rest and not self._stopped:
            self._writes = True
            self._network._call(self._loop.add_writer, self._target, self._deliver_the_rest)
        return not rest

    def _deliver_the_rest(self) -> None:
        self._ignore_room()
        self._deliver()

    def _ignore_room(self) -> None:
        if self._writes:
            self._writes = False
            self._loop.remove_writer(self._target)

    def _end(self) -> None:
        with suppress(OSError):  # the receiver has closed its socket
            self._target.shutdown(socket.SHUT_WR)
        self.ended = True
        self._network._note(self._connection, self._to, b"")
        self._connection._close_if_ended()

    # -- holding and stopping ------------------------------------------------------------------------------------------

    def hold(self, held: bool) -> None:
        """Hold everything that is on its way, or send it again, which takes a latency anew."""
        if held == self._held:
            return
        self._held = held
        self._cancel()
        if not held and self._queue:
            earliest = self._loop.time() + self._draw_latency()
            self._queue = deque(item._replace(due=max(item.due, earliest)) for item in self._queue)
            self._schedule()

    def flush(self) -> None:
        """Deliver at once data that is on its way or can be read, as far as the receiver's socket takes it."""
        data = b"".join(item.what for item in self._queue if isinstance(item.what, bytes))
        with suppress(OSError):
            while more := self._source.recv(self._network._buffer):
                data += more
        if data and not self._held and not self._stopped:
            with suppress(OSError):
                self._network._note(self._connection, self._to, data[: self._target.send(data)])

    def stop(self) -> None:
        """Stop for good, and drop everything that is on its way."""
        self._stopped = True
        self._cancel()
        self._queue.clear()
        self._size = 0
        self._read_if_there_is_room()

    def _cancel(self) -> None:
        self._ignore_room()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    @property
    def on_the_way(self) -> int:
        """The number of bytes that the receiver's socket has not taken yet."""
        return self._size
