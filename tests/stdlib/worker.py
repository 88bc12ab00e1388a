"""One process that runs the tests of one suite on one implementation and reports each as it starts and ends.

Started by conformance/pool.py, which hands it a job on stdin (JSON: the fields of pool.Job, the tests that are `done`
and the path of the `log`) and reads events, one JSON object a line, from a pipe.
"""

import faulthandler
import fnmatch
import gc
import json
import os
import sys
import unittest

from conformance import binding, catalog


class Reporter(unittest.TestResult):
    """Writes one event when a test starts and one when it ends, and arms the watchdog in between."""

    def __init__(self, events, timeout, log, take_loops):
        super().__init__()
        self.events = events
        self.timeout = timeout
        self.log = log
        self.take_loops = take_loops
        self.running = None
        self.outcome = self.text = None

    def emit(self, **event):
        self.events.write(json.dumps(event) + "\n")
        self.events.flush()

    def startTest(self, test):
        super().startTest(test)
        self.running = name_of(test)
        self.outcome, self.text = "passed", ""
        self.emit(event="start", test=self.running)
        self.arm_watchdog()

    def arm_watchdog(self):
        # exit=True: no gentler way stops a test that hangs in C code and holds the GIL.
        faulthandler.dump_traceback_later(self.timeout, exit=True, file=self.log)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)
        if self.running is None:  # never started: 3.12.1 reports a test that its class skips without starting it
            return
        self.emit_end(self.running, self.outcome, self.text, self.take_loops(), not catalog.is_cpythons_own(type(test)))
        self.running = None

    def emit_end(self, name, outcome, text, loops=0, own=True):
        self.emit(event="end", test=name, outcome=outcome, text=text, loops=loops, own=own)

    def record(self, test, outcome, text):
        if self.running is None:  # a class or module fixture, which unittest reports as a test that never starts
            self.emit_end(name_of(test) if isinstance(test, unittest.TestCase) else str(test), outcome, text)
            return
        if self.outcome in ("passed", "skipped"):  # the first failure counts; a failing tearDown adds to its text
            self.outcome = outcome
        self.text = f"{self.text}\n{text}".strip()

    def addError(self, test, err):
        self.record(test, "failed", self._exc_info_to_string(err, test))

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.record(test, "failed", f"{subtest}\n{self._exc_info_to_string(err, test)}")

    def addSkip(self, test, reason):
        self.record(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self.record(test, "skipped", "CPython expects this test to fail")

    def addUnexpectedSuccess(self, test):
        self.record(test, "failed", "CPython expects this test to fail, but it passed")


def name_of(test):
    return f"{type(test).__name__}.{test._testMethodName}"


def tests_of(job):
    loader = unittest.defaultTestLoader
    for cls in catalog.test_classes(job["module"], set(job["unbound"])):
        for method in loader.getTestCaseNames(cls):
            test = cls(method)
            name = name_of(test)
            if name not in job["done"] and is_wanted(name, job):
                yield test


def is_wanted(name, job):
    if job["only"] is not None and name not in job["only"]:
        return False
    full_name = f"{job['module'].rpartition('.')[2]}.{name}"
    return job["pattern"] is None or job["pattern"] in full_name or fnmatch.fnmatchcase(full_name, job["pattern"])


def allow_resources():
    """Allow the resources of CPython's own `-u all,-network,-largefile` to these suites."""
    from test import support

    support.use_resources = ["cpu", "subprocess", "walltime"]


def main():
    events_fd = int(sys.argv[1])
    os.set_inheritable(events_fd, False)  # otherwise children of the tests would keep it open
    job = json.load(sys.stdin)
    log = open(job["log"], "a", encoding="utf-8")  # noqa: SIM115  # faulthandler writes to it up to the very end
    faulthandler.enable(log)
    with open(events_fd, "w", encoding="utf-8") as events:
        take_loops = binding.count_new_loops(binding.choose(job["impl"]).EventLoop)
        reporter = Reporter(events, job["timeout"], log, take_loops)
        allow_resources()
        try:
            tests = list(tests_of(job))
        except unittest.SkipTest as skip:  # CPython's module skips itself
            reporter.emit(event="no suite", reason=str(skip))
            return
        if job["names_only"]:
            reporter.emit(event="names", names=[name_of(test) for test in tests])
            return
        # Many tests collect all garbage when they end: what is there before them need not be searched each time.
        gc.collect()
        gc.freeze()
        unittest.TestSuite(tests).run(reporter)
        reporter.emit(event="finished")
        reporter.arm_watchdog()  # against a thread that never lets the interpreter exit


if __name__ == "__main__":
    main()
