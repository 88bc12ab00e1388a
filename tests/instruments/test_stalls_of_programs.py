"""The stall watchdog in whole programs: hotloop.run(), forks, and the interpreter's end."""

import os

import pytest
from support.forking import IN_CHILD

pytestmark = pytest.mark.only("c", "python", reason="asyncio's loops do not report their progress")

PRELUDE = """
import hotloop, threading
from hotloop.instruments import watchdog

begun, stalls = threading.Event(), []

def report(stall):
    # Wherever it is found: on a loaded machine even before block() is called.
    if any(frame.name in ("main", "blocking") for frame in stall.stack):
        stalls.append(stall.ended)
        begun.set()

def block():
    begun.wait()

def watchdogs():
    return [thread for thread in threading.enumerate() if thread.name == "hotloop-watchdog"]
"""


def test_run(impl):
    impl.run_script(
        PRELUDE
        + """
async def main():
    block()

hotloop.run(main(), stall_after=0.01, stall_report=report)
for thread in watchdogs():
    thread.join()
assert stalls == [False, True], stalls
"""
    )


def test_what_is_cancelled_at_the_end_is_watched(impl):
    impl.run_script(
        PRELUDE
        + """
async def background():
    try:
        await asyncio.sleep(3600)
    finally:
        asyncio.get_running_loop().call_soon(blocking)
        await asyncio.sleep(0)

def blocking():
    block()

async def start():
    task = asyncio.create_task(background())
    await asyncio.sleep(0)

hotloop.run(start(), stall_after=0.01, stall_report=report)
for thread in watchdogs():
    thread.join()
assert stalls == [False, True], stalls
"""
    )


def test_off_unless_asked_for(impl):
    impl.run_script("""if True:
        import hotloop, threading
        async def main():
            assert threading.active_count() == 1
        hotloop.run(main())
        assert not [name for name in sys.modules if name.startswith("hotloop.instruments")]
    """)


def test_the_last_stall_of_a_program_is_reported_to_its_end(impl):
    """The default report goes to the standard error."""
    done = impl.run_script(
        """if True:
        import hotloop, logging, threading

        class Handler(logging.Handler):
            def emit(self, record):
                if "in main" in record.getMessage():
                    begun.set()

        begun = threading.Event()
        logging.basicConfig(format="%(message)s")
        logging.getLogger("hotloop.stalls").addHandler(Handler())

        def block():
            begun.wait()

        async def main():
            block()

        hotloop.run(main(), stall_after=0.01)
    """,
        check=False,
    )
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    at = next(at for at, line in enumerate(lines) if line.endswith("in main"))
    assert any("has been blocked for" in line for line in lines[:at])
    assert any("was blocked for" in line and "task 'Task-1' (main())" in line for line in lines[at:])


def test_a_program_ends_during_a_report(impl):
    impl.run_script(
        PRELUDE
        + """
def report_for_ever(stall):
    begun.set()
    threading.Event().wait()

async def main():
    block()

watchdog._SECONDS_TO_FINISH = 0.001
hotloop.run(main(), stall_after=0.01, stall_report=report_for_ever)
"""
    )


def test_a_program_ends_while_a_loop_is_blocked_in_a_daemon_thread(impl):
    impl.run_script(
        PRELUDE
        + """
def run():
    loop = hotloop.new_event_loop()
    hotloop.watch_stalls(loop, 0.01, report)
    loop.call_soon(blocking)
    loop.run_forever()

def blocking():
    block()
    threading.Event().wait()

threading.Thread(target=run, daemon=True).start()
begun.wait()
"""
    )


def test_bad_keywords(impl):
    impl.run_script("""if True:
        import hotloop, threading
        async def main():
            raise AssertionError
        for error, keywords in (
            (ValueError, {"stall_after": 0}),
            (TypeError, {"stall_after": "1"}),
            (TypeError, {"stall_after": 1, "stall_report": 1}),
            (ValueError, {"stall_report": print}),
            (ValueError, {"stall_whole": True}),
            (ValueError, {"dump_tasks_on": 999}),
        ):
            coroutine = main()
            try:
                hotloop.run(coroutine, **keywords)
            except error:
                coroutine.close()
            else:
                raise AssertionError(keywords)
        assert not [thread for thread in threading.enumerate() if thread.name == "hotloop-watchdog"]
    """)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()")
class TestFork:
    FORK = (
        PRELUDE
        + IN_CHILD
        + """
def watch_again():
    assert watchdogs() == [], watchdogs()
    hotloop.run(main(), stall_after=0.01, stall_report=report)
    for thread in watchdogs():
        thread.join()
    assert stalls == [False, True], stalls

async def main():
    block()
"""
    )

    def test_a_child_may_watch_again_and_the_parent_goes_on(self, impl):
        impl.run_script(
            self.FORK
            + """
loop = hotloop.new_event_loop()
with hotloop.watch_stalls(loop, 0.01, report) as watch:
    in_child(watch_again)
    assert stalls == []
    loop.run_until_complete(main())
    loop.close()
for thread in watchdogs():
    thread.join()
assert stalls == [False, True], stalls
"""
        )

    def test_a_child_that_was_forked_while_the_watchdog_was_at_it(self, impl):
        """In the child, nothing ever releases the watchdog's lock."""
        impl.run_script(
            self.FORK
            + """
def hold():
    with watchdog.WATCHDOG._changed:
        held.set()
        forked.wait()

held, forked = threading.Event(), threading.Event()
loop = hotloop.new_event_loop()
watch = hotloop.watch_stalls(loop, 60, report)
thread = threading.Thread(target=hold)
thread.start()
held.wait()

def child():
    watch.stop()
    watch_again()

in_child(child)
forked.set()
thread.join()
loop.close()
watch.stop()
"""
        )

    def test_a_child_of_a_report(self, impl):
        """The report runs in the watchdog's thread; the child has a copy of that thread, and watches nothing."""
        impl.run_script(
            self.FORK
            + """
def fork(stall):
    if any(frame.name == "main" for frame in stall.stack) and not stall.ended:
        in_child(lambda: None)
        begun.set()

hotloop.run(main(), stall_after=0.01, stall_report=fork)
"""
        )


WATCHED_BY_A_VARIABLE = """
import logging

class Reports(logging.Handler):
    def emit(self, record):
        if "main()" in record.getMessage():
            stalls.append(record.getMessage().split(" blocked ")[0].split()[-1])
            begun.set()

logging.getLogger("hotloop.stalls").addHandler(Reports())

async def main():
    block()
"""


@pytest.mark.parametrize(
    "run",
    [
        "hotloop.run(main())",
        "hotloop.run(main(), tasks='asyncio')",
        "with asyncio.Runner(loop_factory=hotloop.new_event_loop) as runner: runner.run(main())",
    ],
    ids=["run", "asyncio's tasks", "runner"],
)
def test_a_variable_has_every_loop_watched(impl, monkeypatch, run):
    monkeypatch.setenv("HOTLOOP_STALL_AFTER", "0.01")
    impl.run_script(
        PRELUDE
        + WATCHED_BY_A_VARIABLE
        + run
        + """
for thread in watchdogs():
    thread.join()
assert stalls == ["been", "was"], stalls
"""
    )


@pytest.mark.parametrize("value", ["soon", "-1", "inf", "nan", "0.25,all", "0.25,", "whole"])
def test_a_variable_that_is_no_limit(impl, monkeypatch, value):
    monkeypatch.setenv("HOTLOOP_STALL_AFTER", value)
    impl.run_script(
        PRELUDE
        + """
import logging, os

said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("hotloop.stalls").addHandler(handler)
hotloop.run(asyncio.sleep(0))
assert [text.split(":")[0] for text in said] == ["HOTLOOP_STALL_AFTER=" + os.environ["HOTLOOP_STALL_AFTER"]], said
assert not watchdogs()
"""
    )


@pytest.mark.parametrize(("setting", "whole"), [("0.01", False), ("0.01,whole", True), ("0.01, Whole", True)])
def test_a_variable_logs_whole_stacks_on_request(impl, monkeypatch, setting, whole):
    monkeypatch.setenv("HOTLOOP_STALL_AFTER", setting)
    impl.run_script(
        PRELUDE
        + f"""
import logging

class Reports(logging.Handler):
    def emit(self, record):
        text = record.getMessage()
        if "in main" in text and not begun.is_set():
            texts.append(text)
            begun.set()

texts = []
logging.getLogger("hotloop.stalls").addHandler(Reports())

async def main():
    block()

hotloop.run(main())
assert ("in <module>" in texts[0]) is {whole}, texts
"""
    )


@pytest.mark.parametrize("value", ["", "0", "off", "False"])
def test_a_variable_that_is_switched_off(impl, monkeypatch, value):
    monkeypatch.setenv("HOTLOOP_STALL_AFTER", value)
    impl.run_script(PRELUDE + "hotloop.run(asyncio.sleep(0))\nassert not watchdogs()")


def test_the_programs_own_limit_counts_more_than_the_variable(impl, monkeypatch):
    monkeypatch.setenv("HOTLOOP_STALL_AFTER", "0.01")
    impl.run_script(
        PRELUDE
        + """
async def main():
    assert [watch.interval for watch in watchdog.WATCHDOG._due] == [900.0]

hotloop.run(main(), stall_after=3600)
"""
    )
