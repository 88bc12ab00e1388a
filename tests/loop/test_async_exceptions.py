"""PyThreadState_SetAsyncExc(), by which debuggers and time limits stop a thread, ends the run of a loop that waits."""

import asyncio
import ctypes
import socket
import threading

import pytest


class Stop(BaseException):
    pass


async def waiting_for_a_timer(entered):
    asyncio.get_running_loop().call_later(0, entered.set)
    await asyncio.sleep(0.2)
    return "the exception went to a callback"


async def waiting_for_a_socket(entered):
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        later = threading.Timer(0.2, theirs.send, [b"the exception went to a callback"])
        later.start()
        try:
            loop.call_soon(entered.set)
            return (await loop.sock_recv(ours, 100)).decode()
        finally:
            later.join()


@pytest.mark.parametrize("waiting", [waiting_for_a_timer, waiting_for_a_socket])
def test_it_ends_the_run(impl, waiting):
    entered, outcomes = threading.Event(), []

    def run():
        loop = impl.new_event_loop()
        try:
            outcomes.append(loop.run_until_complete(asyncio.wait_for(waiting(entered), 60)))
        except Stop:
            outcomes.append("stopped")
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            outcomes.append("goes on")
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    entered.wait()
    # Until it really waits it may get the exception in a callback, on asyncio, too.
    threading.Event().wait(0.05)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))
    thread.join()
    assert outcomes == ["stopped", "goes on"]
