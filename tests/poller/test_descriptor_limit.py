"""P29: at the limit of descriptors a server waits between its attempts, serves the clients it has, and recovers."""

import sys
import textwrap

import pytest

pytestmark = [
    pytest.mark.promise("P29"),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of descriptors to set"),
]

# Runs in a process of its own, with a lowered limit. The process also has the clients: it makes their sockets before
# all numbers are taken, and connects them afterwards.
PRELUDE = """
import errno, resource, socket, threading
from support.endpoints import counted_turns, until
from support.recording import Recorder

resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

def exhaust():
    "Take every descriptor that is left."
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError as error:
        assert error.errno == errno.EMFILE
        return taken

class Echo(Recorder):
    def data_received(self, data):
        super().data_received(data)
        self.transport.write(data)

class Serving:
    "A server with one client, no descriptors left, and further clients at the door."

    def __init__(self, loop, kind):
        self.loop, self.kind = loop, kind
        self.accepted, self.reports, self.attempts, self.next_report = [], [], [], None
        loop.set_exception_handler(self.handle)

    def handle(self, loop, context):
        self.reports.append(context)
        self.attempts.append((len(turns), loop.time()))
        if self.next_report is not None and not self.next_report.done():
            self.next_report.set_result(None)

    async def another_report(self):
        self.next_report = self.loop.create_future()
        await self.next_report

    def factory(self):
        self.accepted.append(Echo())
        return self.accepted[-1]

    async def start(self):
        self.waiting = [socket.socket() for _ in range(5)]
        self.server = await self.loop.create_server(self.factory, "127.0.0.1", 0)
        self.address = self.server.sockets[0].getsockname()
        self.client = socket.create_connection(self.address)
        self.client.setblocking(False)
        await until(lambda: self.accepted and self.accepted[0].transport)
        self.taken = exhaust()
        for sock in self.waiting:
            sock.setblocking(False)
            sock.connect_ex(self.address)
        await until(lambda: self.reports)

    async def echo(self, data):
        self.client.send(data)
        assert await asyncio.wait_for(self.loop.sock_recv(self.client, 100), 60) == data

    async def finish(self):
        for fd in self.taken:
            os.close(fd)
        await until(lambda: len(self.accepted) == 6)
        for sock in (*self.waiting, self.client):
            sock.close()
        await until(lambda: all(protocol.lost for protocol in self.accepted))
        self.server.close()
        await self.server.wait_closed()

loop = impl.new_event_loop()
turns = counted_turns(loop)
serving = Serving(loop, "tcp")
"""


def run(impl, main):
    script = PRELUDE + textwrap.dedent(main) + "\nloop.run_until_complete(main())\nloop.close()\nprint('done')\n"
    assert impl.run_script(script).stdout == "done\n"


def test_the_loop_stays_idle_and_serves_the_clients_it_has(impl):
    """A second passes between two attempts. In that time a spinning loop would make thousands of iterations or
    reports."""
    run(
        impl,
        """
        async def main():
            await serving.start()
            for number in range(20):
                await serving.echo(b"%d" % number)
            turns_before = len(turns)
            await serving.another_report()
            assert len(turns) - turns_before < 10
            assert len(serving.accepted) == 1
            # No timer is early, so this holds on the slowest machine; one attempt makes many reports in asyncio.
            (first_turn, began), *_ = serving.attempts
            assert all(turn == first_turn or time > began + 0.999 for turn, time in serving.attempts), serving.attempts
            await serving.finish()
        """,
    )


def test_the_reports_are_asyncios(impl):
    run(
        impl,
        """
        async def main():
            await serving.start()
            for report in serving.reports:
                assert report["message"] == "socket.accept() out of system resource"
                assert report["exception"].errno == errno.EMFILE
                assert report["socket"].getsockname() == serving.address
            await serving.finish()
        """,
    )


def test_closed_before_the_next_attempt(impl):
    """The server is closed before the retry, and by then another file may have the number of its socket."""
    run(
        impl,
        """
        async def main():
            asyncio.constants.ACCEPT_RETRY_DELAY = 0.01
            await serving.start()
            serving.server.close()
            for fd in serving.taken:
                os.close(fd)
            for sock in serving.waiting:
                sock.close()
            one, other = socket.socketpair()
            other.send(b"somebody else's")
            # Until a timer that is due after that of the next attempt.
            await asyncio.sleep(2 * asyncio.constants.ACCEPT_RETRY_DELAY)
            assert one.recv(100) == b"somebody else's"
            assert len(serving.accepted) == 1
            for sock in (one, other, serving.client):
                sock.close()
            await until(lambda: serving.accepted[0].lost)
        """,
    )
