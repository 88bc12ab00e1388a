"""A child process that does what its parent tells it, one thing after the other, and says when it is done.

Its argument is the number of a socket. After a command's answer, what the command has done is in the kernel: data is in
the pipe, a descriptor is closed. When the socket is closed without an answer, the process ends.
"""

import os
import select
import signal
import socket
import sys

PIECE = 4096  # bytes; as many as a pipe that is reported as writable takes


def can(fd, event):
    poll = select.poll()
    poll.register(fd, event)
    return any(found & event for _, found in poll.poll(0))


def put(fd, size, byte=b"p"):
    """Write what the file takes at once."""
    blocking = os.get_blocking(fd)
    os.set_blocking(fd, False)
    count = 0
    try:
        while count < size:
            count += os.write(fd, byte * min(size - count, PIECE))
    except BlockingIOError:
        pass
    finally:
        os.set_blocking(fd, blocking)
    return count


def eat(fd, size):
    data = b""
    while len(data) < size and can(fd, select.POLLIN | select.POLLHUP):
        piece = os.read(fd, size - len(data))
        if not piece:
            return f"{len(data)} {sum(data)} end"
        data += piece
    return f"{len(data)} {sum(data)}"


def fork(control):
    """A process of its own keeps the descriptors, and obeys from now on."""
    if os.fork() == 0:
        return f"forked {os.getpid()}"
    control.close()
    os._exit(7)


def obey(control, name, *arguments):
    if name == "ping":
        return ""
    if name == "put":
        return put(int(arguments[0]), int(arguments[1]))
    if name == "fill":
        return put(int(arguments[0]), 1_000_000, b"f")
    if name == "eat":
        return eat(0, int(arguments[0]))
    if name == "close":
        return os.close(int(arguments[0]))
    if name == "ignore":
        return signal.signal(signal.SIGTERM, signal.SIG_IGN) and ""
    if name == "fork":
        return fork(control)
    if name == "kill":
        return os.kill(os.getpid(), int(arguments[0]))
    os._exit(int(arguments[0]))


def main():
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    control.send(str(os.getpid()).encode())
    while command := control.recv(100).decode().split():
        try:
            answer = obey(control, *command)
        except OSError as error:
            answer = error.strerror
        control.send(f"{answer} ".encode())


if __name__ == "__main__":
    main()
