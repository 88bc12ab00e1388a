""".ci/check_floors.py finds an import from a floor above, in Cython, C and Python, and a circle of imports."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "check_floors.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="only the repository has the checks")

SOUND = {
    "ext/hotloop/_c/runtime/references.pxd": "from cpython.object cimport PyObject\n",
    "ext/hotloop/_c/tasks/future.pyx": "from hotloop._c.runtime.references cimport steal\n",
    "ext/hotloop/_c/tasks/task.pyx": "from hotloop._c.tasks.future cimport Future\n",
    "ext/hotloop/_c/loop/metrics.h": '#include "loop/poll_backoff.h"\n#include <stdint.h>\n',
    "src/hotloop/_pure/tasks/future.py": "import asyncio\nfrom hotloop._asyncio.internals import events\n",
    "src/hotloop/_pure/scheduler/timers.py": "if TYPE_CHECKING:\n    import hotloop._pure.loop.loop_core\n",
}


@pytest.fixture
def check(tmp_path):
    def run(changed):
        for name, text in (SOUND | changed).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout

    return run


def test_the_projects_own_sources():
    done = subprocess.run([sys.executable, str(SCRIPT)], cwd=SCRIPT.parents[1], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_sources_that_import_from_below(check):
    assert check({}) == (0, "")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "ext/hotloop/_c/tasks/future.pyx",
            "from hotloop._c.loop.state cimport LoopState\n",
            "ext/hotloop/_c/tasks/future uses loop/state, which is on a floor above\n",
        ),
        (
            "ext/hotloop/_c/tasks/future.pxd",
            "cdef extern from 'x.h': pass\nfrom hotloop._c.tls.engine cimport (\n    TlsEngine,\n)\n",
            "ext/hotloop/_c/tasks/future uses tls/engine, which is on a floor above\n",
        ),
        (
            "ext/hotloop/_c/runtime/references.pxd",
            'cdef extern from "system/clock.h":\n    pass\n',
            "ext/hotloop/_c/runtime/references uses system/clock.h, which is on a floor above\n",
        ),
        (
            "ext/hotloop/_c/poller/epoll.h",
            '#include "loop/metrics.h"\n',
            "ext/hotloop/_c/poller/epoll.h uses loop/metrics.h, which is on a floor above\n",
        ),
        (
            "src/hotloop/_pure/tasks/future.py",
            "def late():\n    from hotloop._pure.network.network_core import NetworkCore\n",
            "src/hotloop/_pure/tasks/future uses network/network_core, which is on a floor above\n",
        ),
        (
            "src/hotloop/_pure/tasks/future.py",
            "if TYPE_CHECKING:\n    import x\nelse:\n    from hotloop._pure.network.network_core import NetworkCore\n",
            "src/hotloop/_pure/tasks/future uses network/network_core, which is on a floor above\n",
        ),
        (
            "ext/hotloop/_c/tasks/future.pyx",
            "from hotloop._c.tasks.task cimport Task\n",
            "ext/hotloop/_c: a circle: tasks/future uses tasks/task uses tasks/future\n",
        ),
        ("src/hotloop/_pure/attic/old.py", "", "src/hotloop/_pure/attic/old: attic is no floor\n"),
        (
            "ext/hotloop/_c/tasks/task.pyx",
            "from hotloop._c.attic.old cimport Old\n",
            "ext/hotloop/_c/tasks/task uses attic/old, which is on no floor\n",
        ),
    ],
)
def test_what_is_refused(check, name, text, message):
    code, out = check({name: text})
    assert code == 1
    assert set(out.split()) == set(message.split())  # a circle may be reported from any of its modules
