"""The way between the two sides of a connection: it takes bytes from one socket and puts them into the other, later.

Each side has a real socket, one end of a pair. The relay has the other ends, and between them a queue for each
direction: what has been read waits there for the time at which it is due, by the loop's clock. So a delivery is a
timer like any other. Of what is on its way there is never more than a buffer's worth: then the relay stops reading, the
sender's socket fills, and his transport tells its protocol to pause.
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
    """Call it with each, also if a function of the test's fails for one of them; what that raises comes at the end."""
    with ExitStack() as calls:
        for item in reversed(tuple(items)):
            calls.callback(function, item)


class Item(NamedTuple):
    """Something on its way."""

    due: float  # by the loop's clock
    what: bytes | Callable[[], object]  # the latter: what is to happen, like the end of the stream
    apart: bool  # what comes behind it is not to be received together with it


class Pipe:
    """One direction of a connection."""

    def __init__(
        self,
        connection: "Connection",
        to: str,  # "client" or "server"
        sender: Name,
        receiver: Name,
        source: socket.socket,  # the relay's, as the next
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
        self._free_at = 0.0  # when the line has sent what it was given before
        self._handle: Any = None  # of the next _deliver()
        self._reads = self._writes = False  # whether the loop watches for this
        self._has_read_all = self._stopped = self._held = False
        self.ended = False  # the receiver knows that nothing will come any more

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
            # Closed with something unread, which over TCP is a reset, too.
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
        """For functions of the test's that may give no latency: nobody is to wait for what is lost by that."""
        try:
            yield
        except BaseException:
            self._connection._close(reset=True)
            raise

    def send_reset(self) -> None:
        """Tell the receiver, behind what is on its way, that the connection is broken."""
        self._has_read_all = True
        self._read_if_there_is_room()
        self.put(lambda: self._connection._close(reset=True))

    def put(self, what: bytes | Callable[[], object], *, apart: bool = False) -> None:
        """Send something, which takes the time that the link's settings say."""
        size = len(what) if isinstance(what, bytes) else 0
        bandwidth = self._network._links.bandwidth(self._sender, self._receiver)
        latency = self._draw_latency()
        self._free_at = max(self._loop.time(), self._free_at) + (size / bandwidth if bandwidth else 0.0)
        # What is due before what was sent before it waits for that.
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
        """Hand over what is due."""
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
                # The receiver's socket is reported in the next iteration, and read before the one after that.
                self._handle = self._network._call(self._loop.call_soon, self._deliver_next_time)
                break
        else:
            self._schedule()
        self._read_if_there_is_room()

    def _deliver_next_time(self) -> None:
        self._handle = self._network._call(self._loop.call_soon, self._deliver)

    def _hand_over(self, data: bytes) -> bool:
        """True if the receiver's socket has taken all of it; if not, that has been seen to."""
        try:
            sent = self._target.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            # Closed by now. Over TCP what comes is answered with a reset, too.
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
        with suppress(OSError):  # the receiver is gone
            self._target.shutdown(socket.SHUT_WR)
        self.ended = True
        self._network._note(self._connection, self._to, b"")
        self._connection._has_ended()

    # -- holding and stopping ------------------------------------------------------------------------------------------

    def hold(self, held: bool) -> None:
        """Keep everything that is on its way, or send it again, which takes it as long as the first time."""
        if held == self._held:
            return
        self._held = held
        self._cancel()
        if not held and self._queue:
            earliest = self._loop.time() + self._draw_latency()
            self._queue = deque(item._replace(due=max(item.due, earliest)) for item in self._queue)
            self._schedule()

    def flush(self) -> None:
        """Hand over at once what is on its way, and what can be read, as far as the receiver's socket takes it."""
        data = b"".join(item.what for item in self._queue if isinstance(item.what, bytes))
        with suppress(OSError):
            while more := self._source.recv(self._network._buffer):
                data += more
        if data and not self._held and not self._stopped:
            with suppress(OSError):
                self._network._note(self._connection, self._to, data[: self._target.send(data)])

    def stop(self) -> None:
        """Nothing passes any more."""
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
        """How many bytes the receiver's socket has not taken yet."""
        return self._size
