"""Memory runs out between the kernel and the protocol. Data that the kernel has handed over is delivered, or the
connection ends: a stream has no holes."""

import pytest
from support.interpreter import limits_memory

SCRIPT = """if True:
    import _testcapi, gc, socket
    gc.disable()  # it needs memory, too
    SIZE = {size}
    PARTS = [letter * SIZE for letter in (b"a", b"b", b"c")]

    class Protocol(asyncio.Protocol):
        def __init__(self):
            self.got = [None] * 100
            self.count = 0
            self.lost = False
        def data_received(self, data):
            self.got[self.count] = data
            self.count += 1
        def datagram_received(self, data, address):
            self.data_received(data)
        def connection_lost(self, error):
            self.lost = True

    def open_tcp(loop):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            peer = socket.create_connection(listener.getsockname())
            ours = listener.accept()[0]
        transport, protocol = loop.run_until_complete(loop.connect_accepted_socket(Protocol, ours))
        return protocol, peer.send, (transport.abort, peer.close)

    def open_pipe(loop):
        reading, writing = os.pipe()
        file = os.fdopen(reading, "rb", 0)
        transport, protocol = loop.run_until_complete(loop.connect_read_pipe(Protocol, file))
        return protocol, lambda data: os.write(writing, data), (transport.close, lambda: os.close(writing))

    def open_datagrams(loop):
        opening = loop.create_datagram_endpoint(Protocol, local_addr=("127.0.0.1", 0))
        transport, protocol = loop.run_until_complete(opening)
        def send(data):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:  # each from an address of its own
                peer.sendto(data, transport.get_extra_info("sockname"))
        return protocol, send, (transport.close,)

    def open_sock(loop):
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        protocol = Protocol()
        def send(data):
            peer.send(data)
            loop.run_until_complete(receive(running_out=data is PARTS[1]))
        async def receive(running_out):
            if running_out:
                _testcapi.set_nomemory(allocation, allocation + 1)
            while True:
                try:
                    data = await loop.sock_recv(ours, 1 << 16)
                    break
                except MemoryError:
                    pass  # nothing was taken off the socket
            _testcapi.remove_mem_hooks()
            protocol.data_received(data)
        return protocol, send, (peer.close, ours.close)

    def run_once(loop):
        loop.stop()
        loop.run_forever()

    for allocation in range(12):
        loop = impl.new_event_loop()
        messages = []
        loop.set_exception_handler(lambda loop, context: messages.append(context["message"]))
        protocol, send, ends = open_{kind}(loop)
        bell, rope = socket.socketpair()
        loop.add_reader(bell, _testcapi.remove_mem_hooks)
        for number, part in enumerate(PARTS):
            expected = b"".join(PARTS[: number + 1])
            send(part)
            if number == 1:
                # The events come in the order in which the descriptors became ready.
                rope.send(b"x")
                loop.call_soon(_testcapi.set_nomemory, allocation, allocation + 1)
                run_once(loop)
                _testcapi.remove_mem_hooks()
                loop.remove_reader(bell)
            for _ in range(20):
                run_once(loop)
            whole = b"".join(data for data in protocol.got if data)
            if protocol.lost:
                assert messages, f"{{allocation}}: no report says why the connection has ended"
                assert expected.startswith(whole), f"{{allocation}}: a hole"
                break
            assert whole == expected, f"{{allocation}}: {{len(whole)}} of {{len(expected)}} bytes, {{messages}}"
        for end in ends:
            end()
        loop.run_until_complete(asyncio.sleep(0.001))
        bell.close()
        rope.close()
        loop.close()
    """


@limits_memory
@pytest.mark.only("c", reason="in Python calling the protocol may itself fail for lack of memory, as in asyncio")
@pytest.mark.parametrize("size", [5_000, 50_000])
@pytest.mark.parametrize("kind", ["tcp", "pipe", "sock", "datagrams"])
def test_no_memory_for_what_arrives(impl, kind, size):
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script(SCRIPT.format(kind=kind, size=size))


@limits_memory
@pytest.mark.only("c", reason="in Python the exit code is lost if its object cannot be allocated, as in asyncio")
def test_no_memory_for_an_exit_code(impl):
    """The kernel reports an exit code once, so the loop must not drop it."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script("""if True:
        import _testcapi, gc, signal
        gc.disable()  # it needs memory, too
        loop = impl.new_event_loop()
        messages = []
        loop.set_exception_handler(lambda loop, context: messages.append(context["exception"]))
        def run_once():
            loop.stop()
            loop.run_forever()
        for allocation in range(25):
            script = "kill -STOP $$; exit 3"
            starting = loop.subprocess_exec(asyncio.SubprocessProtocol, "sh", "-c", script, stdin=None, stdout=None)
            transport, _ = loop.run_until_complete(starting)
            pid = transport.get_pid()
            os.waitid(os.P_PID, pid, os.WSTOPPED)
            waiting = loop.create_task(transport._wait())
            run_once()
            os.kill(pid, signal.SIGCONT)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            loop.call_soon(_testcapi.set_nomemory, allocation, allocation + 1)
            loop.call_later(0, _testcapi.remove_mem_hooks)
            run_once()
            _testcapi.remove_mem_hooks()
            assert loop.run_until_complete(waiting) == 3, allocation
            assert loop.run_until_complete(transport._wait()) == 3, allocation
            transport.close()
        assert all(type(error) is MemoryError for error in messages)
        loop.run_until_complete(asyncio.sleep(0.001))
        loop.close()
        """)


@limits_memory
@pytest.mark.only("c", reason="in Python calling the protocol may itself fail for lack of memory, as in asyncio")
@pytest.mark.parametrize("method", ["get_buffer", "eof_received"])
def test_no_memory_for_the_traceback_of_what_a_protocol_raises(impl, method):
    """The transport then catches a MemoryError that has no traceback."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script(f"""if True:
        import _testcapi, gc, socket
        gc.disable()  # it needs memory, too

        class Protocol(asyncio.BufferedProtocol):
            lost = False
            def get_buffer(self, hint=-1):
                _testcapi.set_nomemory(0, allocations)
                return len(None)
            def connection_lost(self, error):
                self.lost = True
        Protocol.eof_received = Protocol.get_buffer

        for allocations in range(1, 40):
            loop = impl.new_event_loop()
            loop.set_exception_handler(lambda loop, context: None)
            ours, peer = socket.socketpair()
            _, protocol = loop.run_until_complete(loop.connect_accepted_socket(Protocol, ours))
            peer.send(b"x") if "{method}" == "get_buffer" else peer.shutdown(socket.SHUT_WR)
            while not protocol.lost:
                try:
                    loop.stop()
                    loop.run_forever()
                except MemoryError:
                    _testcapi.remove_mem_hooks()
                    asyncio._set_running_loop(None)
                _testcapi.remove_mem_hooks()
            peer.close()
            loop.close()
        """)
