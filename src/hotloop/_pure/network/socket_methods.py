"""SocketMethods: asyncio's sock_*() methods, with their bytes counted for loop.metrics().

They are rewritten because asyncio's read and write in the middle of a coroutine; wrapping each in another coroutine
would slow down programs that never ask for metrics. Errors have asyncio's messages. As in asyncio, a method that has to
wait leaves a callback that tries again, and data that the callback has read is lost if the caller is cancelled in the
same iteration. All methods repeat the same steps, because a shared function would be one more call than in asyncio.

Source: asyncio/selector_events.py and unix_events.py, which differ between Python 3.11 and 3.15 only in whether a
file's position is set if nothing could be sent.
"""

import contextlib
import errno
import functools
import io
import os
import sys
from asyncio import SendfileNotAvailableError
from typing import Any

from hotloop._asyncio.internals import base_events
from hotloop._asyncio.mixin import Behind
from hotloop._pure.transports.views import view_of_bytes

if sys.platform != "win32":
    from hotloop._asyncio.internals import unix_events
    from hotloop._asyncio.sent_file import move_position, next_part


class SocketMethods(Behind):  # type: ignore[misc]
    """Part of NetworkCore."""

    async def sock_recv(self, sock: Any, n: Any) -> Any:
        """Receive at most `n` bytes. See loop.sock_recv()."""
        base_events._check_ssl_socket(sock)
        if self._debug:
            _check_non_blocking(sock)
        try:
            data = sock.recv(n)
        except (BlockingIOError, InterruptedError):
            pass
        else:
            if self._measurements.measuring:
                self._measurements.received(data)
            return data
        return await self._sock_reading(sock, "recv", n)

    async def sock_recv_into(self, sock: Any, buf: Any) -> Any:
        """Receive into a buffer; return the number of bytes. See loop.sock_recv_into()."""
        base_events._check_ssl_socket(sock)
        if self._debug:
            _check_non_blocking(sock)
        try:
            count = sock.recv_into(buf)
        except (BlockingIOError, InterruptedError):
            pass
        else:
            if self._measurements.measuring:
                self._measurements.received(count)
            return count
        return await self._sock_reading(sock, "recv_into", buf)

    async def sock_recvfrom(self, sock: Any, bufsize: Any) -> Any:
        """Receive a datagram; return (data, address). See loop.sock_recvfrom()."""
        base_events._check_ssl_socket(sock)
        if self._debug:
            _check_non_blocking(sock)
        try:
            received = sock.recvfrom(bufsize)
        except (BlockingIOError, InterruptedError):
            pass
        else:
            if self._measurements.measuring:
                self._measurements.received(received)
            return received
        return await self._sock_reading(sock, "recvfrom", bufsize)

    async def sock_recvfrom_into(self, sock: Any, buf: Any, nbytes: Any = 0) -> Any:
        """Receive a datagram into a buffer; return (number of bytes, address). See loop.sock_recvfrom_into()."""
        base_events._check_ssl_socket(sock)
        if self._debug:
            _check_non_blocking(sock)
        if not nbytes:
            nbytes = len(buf)
        try:
            received = sock.recvfrom_into(buf, nbytes)
        except (BlockingIOError, InterruptedError):
            pass
        else:
            if self._measurements.measuring:
                self._measurements.received(received)
            return received
        return await self._sock_reading(sock, "recvfrom_into", buf, nbytes)

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        """Send all of `data`. See loop.sock_sendall()."""
        base_events._check_ssl_socket(sock)
        if self._debug:
            _check_non_blocking(sock)
        try:
            sent = sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        else:
            if self._measurements.measuring:
                self._measurements.sent(sent)
        if type(data) is bytes and sent == len(data):
            return
        view = view_of_bytes(data)
        try:
            if sent != len(view):
                await self._sock_writing(sock, self._sock_send_on, self._send_part, sock, memoryview(view), [sent])
        finally:
            del view  # a traceback would keep it, and data that has a view cannot be resized

    async def sock_sendto(self, sock: Any, data: Any, address: Any) -> Any:
        """Send a datagram; return the number of bytes. See loop.sock_sendto()."""
        base_events._check_ssl_socket(sock)
        if self._debug:
            _check_non_blocking(sock)
        try:
            sent = sock.sendto(data, address)
        except (BlockingIOError, InterruptedError):
            pass
        else:
            if self._measurements.measuring:
                self._measurements.sent(sent)
            return sent
        return await self._sock_writing(sock, self._sock_try, self._measurements.sent, sock, "sendto", data, 0, address)

    # -- waiting -------------------------------------------------------------------------------------------------------

    # kind_of_watcher() recognizes the callbacks by their names.

    def _sock_reading(self, sock: Any, method: str, *arguments: Any) -> Any:
        """A future for the result of a method of the socket, which is called when there is something to read."""
        future = self.create_future()
        fd = sock.fileno()
        self._ensure_fd_no_transport(fd)
        handle = self._add_reader(fd, self._sock_try, future, self._measurements.received, sock, method, *arguments)
        future.add_done_callback(functools.partial(self._sock_read_done, fd, handle=handle))
        return future

    def _sock_writing(self, sock: Any, attempt: Any, *arguments: Any) -> Any:
        """A future that `attempt(future, *arguments)` finishes; it is called while the socket is writable."""
        future = self.create_future()
        fd = sock.fileno()
        self._ensure_fd_no_transport(fd)
        handle = self._add_writer(fd, attempt, future, *arguments)
        future.add_done_callback(functools.partial(self._sock_write_done, fd, handle=handle))
        return future

    def _sock_try(self, future: Any, count: Any, sock: Any, method: str, *arguments: Any) -> None:
        if future.done():
            return  # cancelled in this iteration
        try:
            result = getattr(sock, method)(*arguments)
        except (BlockingIOError, InterruptedError):
            pass
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            future.set_exception(error)
        else:
            if self._measurements.measuring:
                count(result)
            future.set_result(result)

    def _sock_send_on(self, future: Any, part: Any, *arguments: Any) -> None:
        """Send the next part, by `part(*arguments)`, which returns whether it was the last one."""
        if future.done():
            return
        try:
            was_last = part(*arguments)
        except (BlockingIOError, InterruptedError):
            pass
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            future.set_exception(error)
        else:
            if was_last:
                future.set_result(None)

    def _send_part(self, sock: Any, view: memoryview, progress: list[int]) -> bool:
        sent = sock.send(view[progress[0] :])
        if self._measurements.measuring:
            self._measurements.sent(sent)
        progress[0] += sent
        return progress[0] == len(view)

    # -- files ---------------------------------------------------------------------------------------------------------

    if sys.platform != "win32":

        async def _sock_sendfile_native(self, sock: Any, file: Any, offset: int, count: int | None) -> int:
            """Send a file; return the number of bytes, and leave the file's position behind them.

            Raises asyncio.SendfileNotAvailableError if os.sendfile() cannot send this file."""
            # asyncio looks in unix_events.os, so this is where programs remove the function.
            if not hasattr(unix_events.os, "sendfile"):
                raise SendfileNotAvailableError("os.sendfile() is not available")
            try:
                source = file.fileno()
                size = os.fstat(source).st_size
            except (AttributeError, io.UnsupportedOperation, OSError):
                raise SendfileNotAvailableError("not a regular file")  # noqa: B904 - the context, as asyncio's
            if not (count or size):
                return 0
            progress = [0]
            part = sock, source, offset, count, size, progress
            try:
                with contextlib.suppress(BlockingIOError, InterruptedError):
                    if self._send_file_part(*part):
                        return 0
                # Also after the last part, as in asyncio.
                await self._sock_writing(sock, self._sock_send_on, self._send_file_part, *part)
            except OSError as error:
                if progress[0] == 0:
                    raise SendfileNotAvailableError("os.sendfile call failed") from error
                if error.errno == errno.ENOTCONN and type(error) is not ConnectionError:
                    # The connection was closed meanwhile: raise the same exception on all systems.
                    raise ConnectionError("socket is not connected", errno.ENOTCONN) from error
                raise
            finally:
                move_position(file, offset, progress[0])
            return progress[0]

        def _send_file_part(
            self, sock: Any, source: int, offset: int, count: int | None, size: int, progress: list[int]
        ) -> bool:
            if progress[0]:
                self._ensure_fd_no_transport(sock)  # by which the socket may have been taken meanwhile
            rest = next_part(size, count, progress[0])
            sent = os.sendfile(sock.fileno(), source, offset + progress[0], rest) if rest else 0
            if sent and self._measurements.measuring:
                self._measurements.sent(sent)
            progress[0] += sent
            return sent == 0


def _check_non_blocking(sock: Any) -> None:
    if sock.gettimeout() != 0:
        raise ValueError("the socket must be non-blocking")
