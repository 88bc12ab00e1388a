"""One suite unpacked and ready: runs its tests on a loop, in a process group that does not outlive the run."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.pool import Verdict

from harness import reports, servers, sources
from harness.catalog import NotAvailable, Suite
from harness.environment import Environment
from harness.loop_under_test import check_loop, plug_in

TEST_SECONDS = 120  # until a single test counts as hung
# pytest's exit codes for a session that ran to its end: all passed; some failed.
COMPLETE = (0, 1)
LINES_SHOWN = 15  # of the output of an incomplete session


@dataclasses.dataclass
class Run:
    """The result of one session of pytest, for the judge of expected.toml."""

    verdicts: dict[str, Verdict]
    no_suite: str | None = None  # why there are no verdicts
    seconds: float = 0.0
    incomplete: str | None = None  # why some verdicts are missing
    others: dict[str, int] = dataclasses.field(default_factory=dict)  # loops not under test, by test


class Workplace:
    """A suite's tests in a folder of their own, with its servers running."""

    def __init__(self, suite: Suite, environment: Environment, folder: Path, root: Path, access: servers.Access):
        self.suite = suite
        self.environment = environment
        self.folder = folder
        self.root = root
        self.access = access
        self._prefix = [] if suite.root else without_root()
        self._sessions = 0

    def run(self, impl: str, log: Path, *, only: Sequence[str] | None = None, pattern: str | None = None) -> Run:
        """Run the suite, or `only` these node ids, or the tests that match pytest's `-k pattern`."""
        self._sessions += 1
        session = self.folder / str(self._sessions)
        session.mkdir()
        variables = plug_in(impl, session / "plug") | self.access.variables
        for variable in ("HOME", "TMPDIR"):
            variables[variable] = str(session / variable[0])
            os.mkdir(variables[variable])
        check_loop(self.environment, impl, variables)
        report = session / "report.xml"
        began = time.monotonic()
        code = self._pytest(report, variables, log, only or [], ["-k", pattern] if pattern else [])
        return self._result(code, report, log, time.monotonic() - began)

    def _pytest(
        self, report: Path, variables: dict[str, str], log: Path, only: Sequence[str], more: list[str]
    ) -> int | None:
        """Return pytest's exit code, or None if it had to be ended."""
        command = [
            *("nice", *self._prefix, str(self.environment.python), "-m", "pytest"),
            *("-p", "loops_seen", "-p", "no:cacheprovider", "--continue-on-collection-errors"),
            *("--override-ini=addopts=", "--override-ini=junit_logging=no", f"--junitxml={report}"),
            *(f"--timeout={TEST_SECONDS}", *self.suite.options, *self.access.options, *more),
            *(["-n", str(self.suite.processes)] if self.suite.processes and not only else []),
            *(only or self.suite.tests),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(60 * self.suite.minutes)
            except subprocess.TimeoutExpired:
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):  # tests leave processes behind, above all hanging tests
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _result(self, code: int | None, report: Path, log: Path, seconds: float) -> Run:
        verdicts = reports.read(report) if report.is_file() else {}
        run = Run(verdicts, seconds=seconds, others=reports.others(report) if verdicts else {})
        if code is None:
            run.incomplete = f"did not end within {self.suite.minutes} minutes\n{tail(log)}"
        elif code not in COMPLETE:
            run.incomplete = f"pytest ended with exit code {code}\n{tail(log)}"
        return run


def without_root() -> list[str]:
    """A command prefix that runs a program without root: in a user namespace root has another number, and its own
    files."""
    if os.geteuid() != 0:
        return []
    command = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
        return command
    raise NotAvailable("it is not to be run as root, and unshare makes no user namespace here: use another user")


def tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES_SHOWN:])


@contextlib.contextmanager
def open_workplace(suite: Suite, cache: Path) -> Iterator[Workplace]:
    """Fetch, install and start everything that the suite needs. Raises NotAvailable if a part is missing."""
    requirements = Path(__file__).parent.parent / "requirements" / f"{suite.name}.txt"
    environment = Environment(suite.name, requirements, cache)
    # Short, because tests put Unix sockets below it, whose paths the kernel limits to 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="up-"))
    try:
        with contextlib.ExitStack() as stack:
            access = servers.Access()
            for kind in suite.servers:
                access = stack.enter_context(servers.KINDS[kind](folder / kind))
            environment.prepare()
            root = sources.unpack(suite, sources.fetch(suite, environment, cache), folder / "source")
            yield Workplace(suite, environment, folder, root, access)
    except OSError as error:
        raise NotAvailable(f"{type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
