"""While the garbage collector clears a cycle, a weak reference's callback may run, find objects that were cleared
already and use them. They raise, or do nothing; they do not crash.

Each kind of object is tried in a process of its own.
"""

import subprocess
import sys

import pytest
from support.certificates import WITHOUT_TRUSTME

PROGRAM = """
import asyncio, gc, inspect, os, socket, sys, threading, warnings, weakref
import hotloop, hotloop.asyncio as aio

warnings.simplefilter("ignore")
# CPython's own crash if they are used after they were cleared.
CRASHING = ("Context", "partial")

LEFT_OUT = ["__class__", "__init_subclass__", "__subclasshook__", "__new__", "__getattribute__"]
# Says that no loop runs in this thread, and then asyncio's loop would not go on either.
LEFT_OUT += ["_run_forever_cleanup"]

class Node:
    pass

class Visible(tuple):
    '''Has no tp_clear: what it holds can be found while the collector clears other objects.'''

def begun(coroutine):
    try:
        coroutine.send(None)
    except StopIteration:
        pass
    return coroutine

async def forever(future):
    await future

def gather(loop, first, second):
    return [aio.gather(first, second)]

def shield(loop, first, second):
    return [aio.shield(first), aio.shield(second)]

def wait(loop, first, second):
    return [begun(aio.wait([first, second]))]

def wait_for(loop, first, second):
    return [begun(aio.wait_for(first, 1000)), begun(aio.wait_for(second, None))]

def as_completed(loop, first, second):
    iterator = aio.as_completed([first, second])
    return [iterator, begun(iterator.__anext__())] if hasattr(iterator, "__anext__") else [iterator]

def group(loop, first, second):
    made = aio.TaskGroup()
    begun(made.__aenter__())
    return [made, made.create_task(forever(first)), begun(made.__aexit__(None, None, None))]

def queues(loop, first, second):
    full, empty = aio.Queue(1), aio.PriorityQueue()
    full.put_nowait(first)
    return [full, empty, begun(full.put(second)), begun(full.join()), begun(empty.get())]

def locks(loop, first, second):
    made = []
    for kind in (aio.Lock, aio.Condition, aio.Semaphore, aio.BoundedSemaphore):
        lock = kind()
        begun(lock.acquire())
        made += [lock, begun(lock.acquire()), begun(lock.__aenter__())]
    condition, event = aio.Condition(), aio.Event()
    begun(condition.acquire())
    return [*made, condition, begun(condition.wait()), event, begun(event.wait())]

def streams(loop, first, second):
    reader = aio.StreamReader(limit=9, loop=loop)
    protocol = aio.StreamReaderProtocol(reader, loop=loop)
    writer = aio.StreamWriter(asyncio.Transport(), protocol, reader, loop)
    waiting = begun(reader.readline())
    protocol.pause_writing()
    return [reader, protocol, writer, waiting, begun(protocol._drain_helper()), begun(writer.wait_closed())]

def timeouts(loop, first, second):
    timeout = aio.timeout(1000)
    begun(timeout.__aenter__())
    return [timeout, begun(aio.sleep(1000))]

def tasks(loop, first, second):
    return [loop.create_task(forever(first)), loop.call_later(1000, print), loop.call_soon(second.done)]

async def connections(loop, first, second):
    made = []
    for end in socket.socketpair():
        made += await loop.create_connection(asyncio.Protocol, sock=end)
        made[-2].pause_reading()
    made[0].write(b"x" * 5_000_000)
    return made

async def pipes(loop, first, second):
    reading, writing = os.pipe()
    made = [*await loop.connect_read_pipe(asyncio.Protocol, os.fdopen(reading, "rb", 0))]
    made += await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(writing, "wb", 0))
    made[0].pause_reading()
    made[2].write(b"x" * 500_000)
    return made

async def tls(loop, first, second):
    import ssl, trustme

    authority = trustme.CA()
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("localhost").configure_cert(serving)
    authority.configure_trust(trusting)
    server, client = socket.socketpair()
    made = await asyncio.gather(
        loop.connect_accepted_socket(asyncio.Protocol, server, ssl=serving),
        loop.create_connection(asyncio.Protocol, sock=client, ssl=trusting, server_hostname="localhost"),
    )
    made = [*made[0], *made[1]]
    made[0].pause_reading()
    made[2].write(b"x" * 5_000_000)
    return [*made, made[0]._ssl_protocol, made[2]._ssl_protocol]

async def datagrams(loop, first, second):
    made = [*await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))]
    address = made[0].get_extra_info("sockname")
    made += await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=address)
    for _ in range(3):
        made[2].sendto(b"x")
    return made

async def server(loop, first, second):
    made = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    client = await loop.create_connection(asyncio.Protocol, *made.sockets[0].getsockname())
    await asyncio.sleep(0.01)
    return [made, begun(made.serve_forever()), begun(made.wait_closed()), *client]

async def sockets(loop, first, second):
    made = socket.socketpair()
    listening = socket.create_server(("127.0.0.1", 0))
    for sock in (*made, listening):
        sock.setblocking(False)
    waiting = [loop.sock_recv(made[0], 9), loop.sock_recv_into(made[1], bytearray(9)), loop.sock_accept(listening)]
    waiting.append(loop.sock_sendall(made[0], b"x" * 9_000_000))
    loop.add_reader(made[0], print)
    return [*map(begun, waiting), *made]

def selector(loop, first, second):
    made = hotloop.DefaultSelector()
    pair = socket.socketpair()
    made.register(pair[0], 1, made)
    return [made, made.get_map(), *pair]

async def children(loop, first, second):
    pipes = {"stdin": -1, "stdout": -1, "stderr": -1}
    return [*await loop.subprocess_exec(asyncio.SubprocessProtocol, sys.executable, "-c", "input()", **pipes)]

def other_loop(loop, first, second):
    other = hotloop.new_event_loop()
    return [other, other.create_future(), other.call_soon(print), other.call_later(1000, print)]

def loop_without_finalizer(loop, first, second):
    class Unclosed(hotloop.EventLoop):
        def __del__(self):
            pass

    other = Unclosed()
    return [other, other.create_future(), other.call_soon(print), other.call_later(1000, print)]

def in_dropped_loop(make):
    def make_in_other_loop(loop, first, second):
        made = []

        def run():
            other = hotloop.new_event_loop()
            made.extend([other, *other.run_until_complete(make(other, None, None)), *other_loop(loop, None, None)])
            made.append(other.create_task(forever(other.create_future())))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return made

    return make_in_other_loop

def use(found):
    if type(found).__name__ in CRASHING:
        return
    uses = [repr, iter, next, bool, hash, lambda object: object.cancelled(), lambda object: object.done()]
    # Before dir() comes to __exit__(), which closes a selector.
    uses += [lambda object: object.unregister(1), lambda object: object.select(0)]
    for name in dir(type(found)):
        if name not in LEFT_OUT:
            for arguments in ((), (None,), (1,), (b"x",), (print,), (ValueError(),), (None, None, None)):
                uses.append(lambda object, name=name, arguments=arguments: getattr(object, name)(*arguments))
    for function in uses:
        try:
            result = function(found)
            if inspect.isawaitable(result):
                begun(result.__await__()).throw(ValueError())
        except BaseException:
            pass

async def main(make):
    loop, task, used, references = asyncio.get_running_loop(), asyncio.current_task(), [], []
    loop.set_exception_handler(lambda loop, context: None)
    left_out = (type, int, str, type(use), type(sys), dict)

    def use_what_is_visible(reference):
        for visible in gc.get_objects():
            if type(visible) is Visible:
                for found in visible:
                    used.append(type(found).__name__)
                    use(found)

    async def make_garbage():
        futures = [loop.create_future(), loop.create_future()]
        kept = make(loop, *futures)
        if inspect.isawaitable(kept):
            kept = await kept
        found = kept + futures
        for _ in range(3):
            for referent in [referent for known in found for referent in gc.get_referents(known)]:
                inside = type(referent).__module__.startswith("hotloop._")
                if (inside or type(referent) in (list, tuple)) and id(referent) not in map(id, [*kept_by_loop, *found]):
                    found.append(referent)
        # The collector clears in the order in which objects were made.
        visible, early, late = Visible(found), Node(), Node()
        # Code objects are unknown to the collector, so the reference to it outlives the clearing of `early`.
        early.code = compile("1", "", "eval")
        references.append(weakref.ref(early.code, use_what_is_visible))
        early.late, late.early = late, early
        late.visible, late.kept, late.futures = visible, kept, futures

    kept_by_loop = [task, loop, *gc.get_referents(loop)]
    gc.collect()
    gc.disable()
    await make_garbage()
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)
    print("used", len(used), file=sys.stderr)
    os._exit(0 if used else 2)

with open(os.devnull, "w") as sys.stdout:
    make = globals()[sys.argv[1]]
    hotloop.run(main(in_dropped_loop(make) if "dropped" in sys.argv else make))
"""

WITHOUT_GIL = not getattr(sys, "_is_gil_enabled", lambda: True)()
IN_A_LOOP = ["connections", "pipes", "tls", "datagrams", "server", "sockets", "children"]


@pytest.mark.skipif(WITHOUT_GIL, reason="there the collector knows code objects: nothing runs while it clears")
@pytest.mark.parametrize(
    "kind",
    [
        "gather",
        "shield",
        "wait",
        "wait_for",
        "as_completed",
        "group",
        "queues",
        "locks",
        "streams",
        "timeouts",
        "tasks",
        "selector",
        "other_loop",
        "loop_without_finalizer",
        *IN_A_LOOP,
        *(f"{kind} dropped" for kind in IN_A_LOOP),
    ],
)
def test_what_the_garbage_collector_has_cleared(kind):
    if kind.startswith("tls"):
        pytest.importorskip("trustme", reason=WITHOUT_TRUSTME)
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", PROGRAM, *kind.split()]
    ended = subprocess.run(command, text=True, capture_output=True)
    assert ended.returncode == 0, ended.stderr
