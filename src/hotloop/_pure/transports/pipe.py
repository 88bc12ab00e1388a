"""The transports of pipes: asyncio's, with their bytes counted for loop.metrics().

The methods that read and write are rewritten, because asyncio calls os.read() and os.write() in the middle of them;
they are the same from Python 3.11 to 3.15. The classes keep asyncio's names, which appear in a transport's repr().

Source: asyncio/unix_events.py.
"""

import os
from asyncio import constants
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.internals import base_events, unix_events
from hotloop._pure.loop.metrics import Measurements
from hotloop._pure.transports.views import as_single_bytes

if TYPE_CHECKING:
    _Reading = Any
    _Writing = Any
else:
    _Reading = unix_events._UnixReadPipeTransport
    _Writing = unix_events._UnixWritePipeTransport


def descriptor_of(transport: Any) -> int:
    """The transport's descriptor, for a system call. If the program has closed the file, -1, for which the kernel
    returns EBADF: the number may be another file's by now, and asyncio would use it all the same."""
    pipe = transport._pipe
    try:
        return transport._fileno if pipe is None or pipe.fileno() == transport._fileno else -1
    except Exception:
        return -1


class _UnixReadPipeTransport(_Reading):  # type: ignore[misc]
    _measurements: Measurements  # NetworkCore sets it before anything is read

    def _read_ready(self) -> None:
        try:
            data = os.read(descriptor_of(self), self.max_size)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, MemoryError) as error:
            self._fatal_error(error, "Fatal read error on pipe transport")
            return
        if data:
            try:
                if self._measurements.measuring:
                    self._measurements.received(data)
                self._protocol.data_received(data)
            except MemoryError as error:
                # The protocol may have lost this data; later data must not follow a gap.
                self._fatal_error(error, "Fatal error: protocol.data_received() call failed.")
            return
        if self._loop.get_debug():
            base_events.logger.info("%r was closed by peer", self)
        self._closing = True
        self._loop._remove_reader(self._fileno)
        self._loop.call_soon(self._protocol.eof_received)
        self._loop.call_soon(self._call_connection_lost, None)


class _UnixWritePipeTransport(_Writing):  # type: ignore[misc]
    _measurements: Measurements  # NetworkCore sets it before anything is written

    def write(self, data: Any) -> None:
        """Write bytes, a bytearray or a memoryview. See asyncio.WriteTransport."""
        assert isinstance(data, (bytes, bytearray, memoryview)), repr(data)
        if isinstance(data, bytearray):
            data = memoryview(data)
        data = as_single_bytes(data)
        if not data:
            return
        if self._conn_lost or self._closing:
            if self._conn_lost >= constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES:
                base_events.logger.warning("pipe closed by peer or os.write(pipe, data) raised exception.")
            self._conn_lost += 1
            return
        written = 0
        if not self._buffer:
            try:
                written = os.write(descriptor_of(self), data)
            except (BlockingIOError, InterruptedError):
                pass
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._conn_lost += 1
                self._fatal_error(error, "Fatal write error on pipe transport")
                return
            if written and self._measurements.measuring:
                self._measurements.sent(written)
            if written == len(data):
                return
        try:
            self._keep(memoryview(data)[written:] if written else data)
        except Exception as error:
            if written:
                # Only a part was written; later data must not follow it.
                self._conn_lost += 1
                self._fatal_error(error, "Fatal write error on pipe transport")
            raise
        self._maybe_pause_protocol()

    def _keep(self, data: Any) -> None:
        """Buffer `data` until the pipe is writable. If memory runs out, nothing has changed."""
        is_first = not self._buffer
        self._buffer += data
        if is_first:
            try:
                self._loop._add_writer(self._fileno, self._write_ready)
            except BaseException:
                self._buffer.clear()
                raise

    def _write_ready(self) -> None:
        buffer = self._buffer
        assert buffer, "Data should not be empty"
        try:
            written = os.write(descriptor_of(self), buffer)
            # Before anything else can fail: data that stays in the buffer would be written again.
            del buffer[:written]
            if written and self._measurements.measuring:
                self._measurements.sent(written)
            if buffer:
                return
            self._loop._remove_writer(self._fileno)
        except (BlockingIOError, InterruptedError):
            return
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            buffer.clear()
            self._conn_lost += 1
            # _fatal_error() removes the writer only if something is buffered.
            self._loop._remove_writer(self._fileno)
            self._fatal_error(error, "Fatal write error on pipe transport")
            return
        was_closing = self._closing
        self._maybe_resume_protocol()
        # If the protocol has closed the transport just now, the end comes after what it wrote before that.
        if was_closing:
            self._loop._remove_reader(self._fileno)
            self._call_connection_lost(None)

    def _call_connection_lost(self, exc: BaseException | None) -> None:
        # abort() in resume_writing() has queued a second call of it.
        if self._protocol is not None:
            super()._call_connection_lost(exc)
