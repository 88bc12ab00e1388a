"""TLS with any one allocation failing: no data is lost unless the connection ends with an error."""

import pytest
from support.interpreter import limits_memory

pytestmark = [
    limits_memory,
    pytest.mark.only("c", reason="asyncio's own TLS is written in Python, where any line may fail to allocate"),
]

HARNESS = """if True:
    import _testcapi, gc, ssl
    from support.certificates import HOST, issued
    from support.recording import Recorder
    from support.tls_connections import tls_connections_on
    from support.stepping import run_once

    ALLOCATIONS = 40  # more than a turn makes before what it is tested for is over
    TURNS = 60  # more than anything takes here
    DATA = bytes(range(250)) * 100
    gc.disable()  # it needs memory, too

    def run_short_of_memory(loop, allocation):
        _testcapi.set_nomemory(allocation, allocation + 1)
        try:
            loop.run_forever()
        except MemoryError:
            asyncio._set_running_loop(None)
        finally:
            _testcapi.remove_mem_hooks()

    def look(peer):
        try:
            peer.read()
            if peer.saw_close_notify:
                peer.notify_close()
        except ssl.SSLError:
            pass

    def settle(connection, happened):
        for turn in range(TURNS):
            look(connection.peer)
            run_once(connection.loop)
            if happened():
                return True

    class Trial:
        def __init__(self, tls, allocation):
            self.tls, self.loop, self.allocation = tls, tls.loop, allocation
            self.connection = connection = tls.open("server", Recorder())
            connection.deliver(b"first")
            self.transport, self.protocol, self.peer = connection.transport, connection.protocol, connection.peer
            self.protocol.received.clear()
            self.raised = False

        def do(self, function, *arguments):
            def doing():
                try:
                    function(*arguments)
                except MemoryError:
                    self.raised = True
            self.loop.call_soon(doing)

        def fail(self):
            self.loop.stop()
            run_short_of_memory(self.loop, self.allocation)

        def has_ended(self):
            return self.protocol.lost and self.connection.is_gone

        def check(self, happened):
            settled = settle(self.connection, lambda: happened() or self.has_ended())
            assert settled, (self.allocation, self.protocol.calls, self.transport, self.tls.reports)
            if not happened():
                assert self.protocol.error is not None or self.tls.reports, (self.allocation, self.protocol.calls)
            self.protocol.check_life_cycle()

    def run(trial):
        for allocation in range(ALLOCATIONS):
            loop = impl.new_event_loop()
            with tls_connections_on(loop, issued()) as tls:
                trial(tls, allocation)
                for connection in tls.opened:
                    connection.transport.abort()
                run_once(loop, 3)
                tls.reports.clear()
            loop.close()
"""

TRIALS = {
    "while data arrives": """
    def trial(tls, allocation):
        trial = Trial(tls, allocation)
        trial.peer.write(DATA)
        trial.fail()
        trial.check(lambda: trial.protocol.received == DATA)
        assert DATA.startswith(trial.protocol.received), (allocation, len(trial.protocol.received))
    """,
    "while reading is resumed": """
    def trial(tls, allocation):
        trial = Trial(tls, allocation)
        trial.transport.pause_reading()
        trial.peer.write(DATA)
        run_once(trial.loop, 3)
        trial.do(trial.transport.resume_reading)
        trial.fail()
        if trial.raised:
            trial.transport.resume_reading()
        trial.fail()
        trial.check(lambda: trial.protocol.received == DATA)
        assert DATA.startswith(trial.protocol.received), (allocation, len(trial.protocol.received))
    """,
    "while much is received for a protocol that is paused": """
    def trial(tls, allocation):
        trial = Trial(tls, allocation)
        trial.transport.set_read_buffer_limits(5000, 1000)
        trial.transport.pause_reading()
        trial.peer.write(DATA)
        trial.fail()
        trial.transport.resume_reading()
        trial.fail()
        trial.peer.write(DATA)
        trial.check(lambda: trial.protocol.received == DATA + DATA)
        assert (DATA + DATA).startswith(trial.protocol.received), (allocation, len(trial.protocol.received))
    """,
    "while data is written": """
    def trial(tls, allocation):
        trial = Trial(tls, allocation)
        trial.do(trial.transport.write, DATA)
        trial.fail()
        run_once(trial.loop)
        expected = b"" if trial.raised else DATA
        trial.transport.write(b"more")
        trial.check(lambda: trial.peer.received == expected + b"more")
        assert (expected + b"more").startswith(trial.peer.received), (allocation, len(trial.peer.received))
    """,
    "while lines are written": """
    def trial(tls, allocation):
        trial = Trial(tls, allocation)
        trial.do(trial.transport.writelines, [DATA[n:n + 100] for n in range(0, 10_000, 100)])
        trial.fail()
        run_once(trial.loop)
        expected = b"" if trial.raised else DATA[:10_000]
        trial.transport.write(b"more")
        trial.check(lambda: trial.peer.received == expected + b"more")
        assert (expected + b"more").startswith(trial.peer.received), (allocation, len(trial.peer.received))
    """,
    "while it is closed": """
    def trial(tls, allocation):
        trial = Trial(tls, allocation)
        trial.do(trial.transport.close)
        trial.fail()
        if not trial.transport.is_closing():
            trial.transport.close()
        trial.check(lambda: trial.has_ended() and trial.protocol.error is None)
    """,
    "while the peer says goodbye": """
    def trial(tls, allocation):
        trial = Trial(tls, allocation)
        trial.peer.write(b"last words")
        trial.peer.notify_close()
        trial.fail()
        trial.check(lambda: trial.has_ended() and trial.protocol.received == b"last words")
        assert trial.has_ended()
    """,
    "after the peer has gone": """
    def trial(tls, allocation):
        trial = Trial(tls, allocation)
        trial.peer.write(b"last words")
        trial.connection.end()
        run_once(trial.loop, allocation % 4)
        trial.fail()
        trial.check(lambda: trial.has_ended() and trial.protocol.received == b"last words")
        assert trial.has_ended()
    """,
    "while the connection is lost": """
    def trial(tls, allocation):
        trial = Trial(tls, allocation)
        trial.transport.abort()
        for _ in range(2):
            trial.fail()
        assert settle(trial.connection, trial.has_ended), (allocation, trial.protocol.calls)
        trial.protocol.check_life_cycle()
    """,
}


@pytest.mark.parametrize("when", TRIALS)
def test_an_allocation_fails(impl, when):
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script(HARNESS + TRIALS[when] + "\n    run(trial)\n")
