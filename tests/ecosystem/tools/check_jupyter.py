"""A Jupyter kernel as the page says: cells, interrupts, and its end."""

import contextlib
import json
import os
import sys

import pytest
from document import section, with_programs_of
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from serving import SECONDS_TO_START

FACTS = """
import asyncio, json, hotloop
print(json.dumps([isinstance(asyncio.get_running_loop(), hotloop.EventLoop), hotloop.implementation]))
"""


@contextlib.contextmanager
def kernel_of(tmp_path, monkeypatch):
    """The manager of a running kernel, whose specification is in `kernels/hotloop`, and its client."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PATH", with_programs_of(sys.executable))
    manager = KernelManager(
        kernel_name="hotloop", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(tmp_path / "kernels")])
    )
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS_TO_START)
        yield manager, client
    finally:
        client.stop_channels()
        with contextlib.suppress(RuntimeError):
            manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """As the page says: the specification is where Jupyter looks for it."""
    folder = tmp_path / "kernels" / "hotloop"
    folder.mkdir(parents=True)
    section("Jupyter").write(folder)
    with kernel_of(tmp_path, monkeypatch) as running:
        yield running


def execute(client, source):
    """A cell's output and its reply."""
    printed = []

    def output(message):
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(source, timeout=SECONDS_TO_START, output_hook=output, allow_stdin=False)
    return "".join(printed), reply["content"]


def test_kernel(kernel):
    manager, client = kernel
    printed, reply = execute(client, FACTS)
    assert reply["status"] == "ok"
    assert json.loads(printed) == [True, os.environ["HOTLOOP_IMPL"]]

    printed, _ = execute(client, "background = asyncio.create_task(asyncio.sleep(0.01, 'done meanwhile'))")
    printed, _ = execute(client, "print(await background)\nprint(await asyncio.to_thread(lambda: 'in a thread'))")
    assert printed == "done meanwhile\nin a thread\n"

    printed, reply = execute(client, "1 / 0")
    assert (reply["status"], reply["ename"]) == ("error", "ZeroDivisionError")

    manager.shutdown_kernel()
    assert not manager.is_alive()


# ipykernel queues the cancellation of the cell in a signal handler, without waking the loop. The standard library's
# selectors, with which the pure loop polls, sleep on; plain asyncio hangs here as well.
awaits = pytest.param(
    "print('busy'); await asyncio.sleep(3600)",
    marks=pytest.mark.skipif(
        os.environ.get("HOTLOOP_IMPL") == "python", reason="the standard library's selectors sleep on"
    ),
)


@pytest.mark.parametrize("cell", ["import time; print('busy'); time.sleep(3600)", awaits])
def test_interrupts(kernel, cell):
    """Ctrl-C ends the cell, and the kernel goes on."""
    manager, client = kernel
    interrupted = []

    def output(message):
        if message["msg_type"] == "stream" and not interrupted:
            interrupted.append(message["content"]["text"])
            manager.interrupt_kernel()

    execute(client, FACTS)
    reply = client.execute_interactive(cell, timeout=SECONDS_TO_START, output_hook=output, allow_stdin=False)
    assert reply["content"]["status"] == "error", reply
    assert reply["content"]["ename"] in ("KeyboardInterrupt", "CancelledError")
    assert execute(client, "print('goes on')")[0] == "goes on\n"
