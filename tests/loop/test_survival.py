"""P04: no sequence of public calls kills the interpreter. Each program runs in an interpreter of its own, to its normal
end."""

import pytest

pytestmark = pytest.mark.promise("P04")

fuzzed = pytest.mark.only("c", "python", reason="asyncio's own classes survive different things in each version")


def check_survived(process):
    assert (process.returncode, process.stdout.splitlines()[-1:]) == (0, ["survived"]), process.stderr[-3000:]


JUNK = """
import contextvars, gc, random, itertools, types, warnings
warnings.simplefilter("ignore")
loop = impl.new_event_loop()
other = impl.new_event_loop()
other.close()

async def coroutine():
    pass

@types.coroutine
def generator():
    yield

def raising(*args, **keywords):
    raise ZeroDivisionError

class Evil:
    def __eq__(self, other): raise ZeroDivisionError
    def __hash__(self): raise ZeroDivisionError
    def __call__(self, *args): raise ZeroDivisionError
    def __repr__(self): raise ZeroDivisionError
    def __float__(self): raise ZeroDivisionError
    def __index__(self): raise ZeroDivisionError
    def __bool__(self): raise ZeroDivisionError
    def __getattr__(self, name): raise ZeroDivisionError

def junk():
    return [None, 0, -1, 1 << 80, float("nan"), float("inf"), 1e308, "", "text", b"bytes", (), (1,), [], {}, object(),
            Evil(), loop, other, int, print, raising, contextvars.copy_context(), coroutine(), coroutine,
            ZeroDivisionError, StopIteration(),
            impl.Future(loop=loop), asyncio.Future(loop=loop), types.SimpleNamespace(), type, impl.Task, impl.Future]

def attack(subject, names, rounds, seed):
    pick = random.Random(seed)
    for name in names:
        for count in range(4):
            for _ in range(rounds):
                try:
                    result = getattr(subject, name)(*(pick.choice(junk()) for _ in range(count)))
                    if hasattr(result, "send"):
                        result.close()
                except (Exception, asyncio.CancelledError):
                    pass

def finish():
    loop.set_exception_handler(lambda *args: None)
    loop.set_debug(False)
    loop.set_task_factory(None)
    for _ in range(10):
        try:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            for handle in list(loop._scheduled):
                handle.cancel()
            loop.stop()
            loop.run_forever()
        except Exception:
            pass
    loop.close()
    gc.collect()
    print("survived")
"""


@fuzzed
@pytest.mark.parametrize("seed", range(3))
def test_random_arguments_to_everything(impl, seed):
    out = impl.run_script(
        JUNK
        + f"""
seed = {seed}
BLOCKING = {{"run_forever", "run_until_complete", "close", "select"}}
loop.set_exception_handler(lambda *args: None)
def names(thing):
    kept = {{"__init__", "__repr__", "__await__", "__iter__", "__eq__", "__hash__", "__del__", "__lt__",
             "__getattribute__", "__setattr__"}}
    return [n for n in dir(thing) if n not in BLOCKING and (not n.startswith("_") or n in kept or n.startswith("_make"))
            and callable(getattr(thing, n, None))]

subjects = [lambda: impl.Future(loop=loop), lambda: impl.Task(coroutine(), loop=loop), lambda: loop.call_soon(int),
            lambda: loop.call_later(5, int), lambda: impl.DefaultSelector(), lambda: impl.Future, lambda: impl.Task,
            lambda: impl.Handle, lambda: impl.TimerHandle]
for make in subjects:
    subject = make()
    attack(subject, names(subject) if not isinstance(subject, type) else ["__call__"], 5, seed)
scheduling = ["call_soon", "call_later", "call_at", "call_soon_threadsafe", "create_task", "create_future", "time",
              "stop", "get_debug", "set_exception_handler", "call_exception_handler", "default_exception_handler",
              "is_running", "is_closed",
              "_timer_handle_cancelled", "_process_events", "set_task_factory"]
import logging
logging.disable()
attack(loop, scheduling, 20, seed)
loop._ready.clear()
finish()
""",
        check=False,
    )
    check_survived(out)


@fuzzed
def test_objects_that_were_never_initialised(impl):
    out = impl.run_script(
        JUNK
        + """
import sys
sys.unraisablehook = lambda *args: None  # their __del__ may complain
for cls in (impl.Future, impl.Task, impl.Handle, impl.TimerHandle, impl.DefaultSelector, impl.EventLoop):
    makers = [lambda: cls.__new__(cls)]
    try:
        makers.append(type("Sub", (cls,), {"__init__": lambda self: None}))
    except TypeError:
        pass  # final
    for make in makers:
        for name in dir(cls):
            if name in ("run_forever", "run_until_complete", "select", "__init_subclass__", "__reduce_ex__",
                        "__reduce__", "__class__"):
                continue
            try:
                subject = make()
                value = getattr(subject, name)
                if callable(value):
                    for count in range(3):
                        try:
                            value(*[None] * count)
                        except (Exception, asyncio.CancelledError):
                            pass
            except (Exception, asyncio.CancelledError):
                pass
        try:
            repr(make())
        except Exception:
            pass
gc.collect()
finish()
""",
        check=False,
    )
    check_survived(out)


@fuzzed
def test_attributes_deleted_and_replaced(impl):
    out = impl.run_script(
        JUNK
        + """
loop.set_exception_handler(lambda *args: None)
async def waiting(future):
    await future

for make in (lambda: impl.Future(loop=loop), lambda: impl.Task(waiting(loop.create_future()), loop=loop)):
    for name in dir(make()):
        if name.startswith("__") and name != "__dict__":
            continue
        for value in [*junk(), "delete"]:
            subject = make()
            loop.stop(); loop.run_forever()
            try:
                delattr(subject, name) if value == "delete" else setattr(subject, name, value)
            except Exception:
                pass
            for act in (lambda: subject.cancel(), lambda: repr(subject), lambda: subject.set_result(1),
                        lambda: subject.result()):
                try:
                    act()
                except (Exception, asyncio.CancelledError):
                    pass
            try:
                loop.stop(); loop.run_forever()
            except Exception:
                pass
            if hasattr(type(subject), "_log_destroy_pending"):
                try:
                    subject._log_destroy_pending = False
                except Exception:
                    pass
loop._ready.clear()
finish()
""",
        check=False,
    )
    check_survived(out)


def test_a_loop_in_a_daemon_thread_at_exit(impl):
    """The interpreter is torn down around a thread that is asleep in the poll, or busy."""
    for work in ("pass", "loop.call_soon(busy)"):
        out = impl.run_script(
            f"""
import threading
loop = impl.new_event_loop()
def busy():
    loop.call_soon(busy)
{work}
started = threading.Event()
loop.call_soon(started.set)
threading.Thread(target=loop.run_forever, daemon=True).start()
started.wait()
print("exiting", flush=True)
""",
            check=False,
        )
        assert (out.returncode, out.stdout) == (0, "exiting\n"), out.stderr[-3000:]


def test_threads_call_a_loop_while_the_interpreter_exits(impl):
    out = impl.run_script(
        """
import threading
loop = impl.new_event_loop()
started = threading.Event()
def caller():
    while True:
        try:
            loop.call_soon_threadsafe(int)
        except RuntimeError:
            return
        started.set()
threading.Thread(target=loop.run_forever, daemon=True).start()
for _ in range(3):
    threading.Thread(target=caller, daemon=True).start()
started.wait()
print("exiting", flush=True)
""",
        check=False,
    )
    assert (out.returncode, out.stdout) == (0, "exiting\n"), out.stderr[-3000:]


def test_everything_left_open_at_exit(impl):
    out = impl.run_script(
        """
loop = impl.new_event_loop()
async def waiting(future):
    await future
tasks = [loop.create_task(waiting(loop.create_future())) for _ in range(5)]
loop.call_later(3600, print)
selector = impl.DefaultSelector()
loop.stop(); loop.run_forever()
for _ in range(3):
    loop.call_soon(print)
failed = loop.create_future()
failed.set_exception(ZeroDivisionError())
import builtins
builtins.keep = [loop, tasks, selector, failed]
print("exiting", flush=True)
""",
        check=False,
    )
    assert (out.returncode, out.stdout) == (0, "exiting\n"), out.stderr[-3000:]


def test_what_outlives_the_modules_says_nothing(impl):
    """The modules that print reports are gone when the last garbage is collected, so no part of a report is printed."""
    impl.run_script(
        """
async def waiting(): await loop.create_future()
async def failing(): raise ZeroDivisionError
loop = impl.new_event_loop()
sys.keep = loop.create_task(waiting()), loop.create_task(failing()), loop.create_future()
sys.keep[2].set_exception(ZeroDivisionError())
loop.run_until_complete(asyncio.sleep(0))
"""
    )


def test_exit_from_inside_a_callback_and_a_task(impl):
    for source in (
        "loop.call_soon(sys.exit, 3); loop.run_forever()",
        "loop.run_until_complete(leave())",
        "loop.call_soon(os._exit, 3); loop.run_forever()",
        "loop.create_task(leave()); loop.run_forever()",
    ):
        out = impl.run_script(f"async def leave(): sys.exit(3)\nloop = impl.new_event_loop()\n{source}\n", check=False)
        assert out.returncode == 3, out.stderr[-3000:]


def test_atexit_and_del_use_the_loop(impl):
    out = impl.run_script(
        """
import atexit
loop = impl.new_event_loop()
atexit.register(lambda: print(loop.run_until_complete(asyncio.sleep(0.001, "at exit")), flush=True) or loop.close())
class Late:
    def __del__(self):
        try:
            late = impl.new_event_loop()
            late.run_until_complete(asyncio.sleep(0))
            late.close()
        except Exception:
            pass
sys.late = Late()
""",
        check=False,
    )
    assert (out.returncode, out.stdout) == (0, "at exit\n"), out.stderr[-3000:]


def test_deep_recursion(impl):
    out = impl.run_script(
        """
loop = impl.new_event_loop()
loop.set_exception_handler(lambda *args: None)
def recurse(argument):
    recurse(argument)
loop.call_soon(recurse, 0)
future = loop.create_future()
future.add_done_callback(recurse)
future.set_result(None)
async def deep(n):
    return await deep(n + 1)
task = loop.create_task(deep(0))
loop.stop(); loop.run_forever()
loop.stop(); loop.run_forever()
assert isinstance(task.exception(), RecursionError)
loop.close()
print("survived")
""",
        check=False,
    )
    check_survived(out)


def test_a_long_chain_of_tasks_is_dropped(impl):
    """A hundred thousand tasks, each waiting for the next: freeing them must not take a stack as deep."""
    out = impl.run_script(
        """
import gc
loop = impl.new_event_loop()
async def waiting(future):
    await future
last = first = loop.create_future()
for _ in range(100_000):
    last = loop.create_task(waiting(last))
    last._log_destroy_pending = False
loop.stop(); loop.run_forever()
del first, last
gc.collect()
print(len(asyncio.all_tasks(loop)))
loop.close()
""",
        check=False,
    )
    assert (out.returncode, out.stdout) == (0, "0\n"), out.stderr[-3000:]


@pytest.mark.only("c", reason="dropping deques that hold each other takes as deep a stack")
def test_a_long_chain_of_ready_queues_is_dropped(impl):
    out = impl.run_script(
        """
queue = None
for _ in range(100_000):
    loop = impl.new_event_loop()
    loop.close()
    loop._ready.append(queue)
    queue = loop._ready
del loop
queue = None
print("survived")
""",
        check=False,
    )
    check_survived(out)


def test_a_long_chain_of_done_callbacks(impl):
    out = impl.run_script(
        """
loop = impl.new_event_loop()
futures = [loop.create_future() for _ in range(50_000)]
for one, following in zip(futures, futures[1:]):
    one.add_done_callback(lambda _, f=following: f.set_result(None))
futures[0].set_result(None)
loop.run_until_complete(futures[-1])
loop.close()
print("survived")
""",
        check=False,
    )
    check_survived(out)
