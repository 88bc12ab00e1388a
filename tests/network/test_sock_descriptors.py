"""The sock_* methods while a descriptor's number gets another file, or a file another descriptor: closed, detached,
duplicated and replaced sockets."""

import asyncio
import errno
import gc
import os
import socket
import weakref

import pytest
from support.endpoints import assert_free, counted_turns, fill_socket, ping, settle, started, turns
from support.implementations import expected_backend


@pytest.fixture
def epoll_or_poll(impl):
    if "kqueue" in expected_backend(impl.name):
        pytest.skip("a changed registration is that of the number's new file, as with asyncio's KqueueSelector")


def new_pair():
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    return ends


def new_pair_at(fd):
    """A new pair, whose first socket has got the number of one that was closed."""
    one, other = sorted(new_pair(), key=lambda end: end.fileno() != fd)
    assert one.fileno() == fd
    return one, other


def test_a_socket_opened_in_the_turn_in_which_the_one_with_its_number_was_closed(loop):
    async def main():
        one, other = new_pair()
        for number in range(20):
            content = b"%d" % number
            fd = one.fileno()
            other.send(content)
            assert await loop.sock_recv(one, 100) == content
            one.close()
            other.close()
            one, other = new_pair()
            assert fd in (one.fileno(), other.fileno())
            if one.fileno() != fd:
                one, other = other, one
            loop.call_soon(other.send, content)
            assert await loop.sock_recv(one, 100) == content
        one.close()
        other.close()

    loop.run_until_complete(main())


def test_another_object_for_the_same_descriptor(loop, pair):
    one, other = pair

    async def main():
        await ping(loop, one, other)
        again = socket.socket(fileno=one.detach())
        with again:
            assert again.gettimeout() == 0 or again.setblocking(False) is None
            await ping(loop, again, other)
            assert_free(loop, again)

    loop.run_until_complete(main())


@pytest.mark.parametrize("ended", [True, False])
def test_another_file_put_under_the_number_by_dup2(loop, pair, ended):
    one, other = pair

    async def main():
        replacement, peer = new_pair()
        with replacement, peer:
            await ping(loop, one, other)
            if ended:
                # No other code runs in between, and the loop makes no turn.
                waiting = await started(loop.sock_recv(one, 100))
                other.close()
                assert await waiting == b""
            else:
                await turns(3)
                await settle()
            os.dup2(replacement.fileno(), one.fileno())
            await ping(loop, one, peer)
            assert_free(loop, one)

    loop.run_until_complete(main())


def test_the_file_of_a_closed_socket_lives_on(loop):
    """A duplicate, in a child process for example, keeps the file registered: its events come under a number that
    another socket has by now."""

    async def main():
        one, other = new_pair()
        await ping(loop, one, other)
        fd = one.fileno()
        with one.dup() as duplicate, other:
            one.close()
            new, peer = new_pair_at(fd)
            with new, peer:
                waiting = await started(loop.sock_recv(new, 100))
                other.send(b"for the duplicate")
                await settle()
                assert not waiting.done()
                peer.send(b"for the new one")
                assert await waiting == b"for the new one"
            assert duplicate.recv(100) == b"for the duplicate"

    loop.run_until_complete(main())


@pytest.mark.parametrize("taken_by", ["an operation", "a reader"])
def test_an_operation_whose_socket_is_closed_waits_until_it_is_cancelled(loop, taken_by):
    """Also if another socket gets the number: it learns nothing of that one."""

    async def main():
        one, other = new_pair()
        fd = one.fileno()
        waiting = await started(loop.sock_recv(one, 100))
        one.close()
        other.close()
        new, peer = new_pair_at(fd)
        with new, peer:
            if taken_by == "an operation":
                taking = await started(loop.sock_recv(new, 100))
            else:
                loop.add_reader(new, list)
            await settle()
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            if taken_by == "an operation":
                taking.cancel()
                await settle()
            else:
                loop.remove_reader(new)

    loop.run_until_complete(main())


@pytest.mark.usefixtures("epoll_or_poll")
@pytest.mark.parametrize("removed_by", ["a cancellation", "remove_writer()"])
def test_the_wait_beside_a_callback_ends_when_another_socket_has_the_number(loop, removed_by):
    """The callback is not for that socket. asyncio's selector drops it, with an error."""

    async def main():
        reported, calls = [], []
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        one, other = new_pair()
        fd = one.fileno()
        fill_socket(one)
        loop.add_reader(one, calls.append, "readable")
        waiting = await started(loop.sock_sendall(one, b"unsent"))
        one.close()
        other.close()
        new, peer = new_pair_at(fd)
        with new, peer:
            if removed_by == "remove_writer()":
                with pytest.raises(FileNotFoundError):
                    loop.remove_writer(fd)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await settle()
            assert [type(error) for error in reported] == [FileNotFoundError] * (removed_by == "a cancellation")
            peer.send(b"for the new one")
            await settle()
            assert not calls
            assert_free(loop, new)

    loop.run_until_complete(main())


@pytest.mark.usefixtures("epoll_or_poll")
def test_a_callback_is_added_where_another_socket_had_one_for_the_other_event(loop):
    """asyncio's selector drops that one, with an error."""

    async def main():
        calls = []
        one, other = new_pair()
        fd = one.fileno()
        loop.add_reader(one, calls.append, "readable")
        one.close()
        other.close()
        new, peer = new_pair_at(fd)
        with new, peer:
            peer.send(b"for the new one")
            with pytest.raises(FileNotFoundError):
                loop.add_writer(new, calls.append, "writable")
            await settle()
            assert not calls
            loop.add_writer(new, calls.append, "writable")
            await settle()
            assert set(calls) == {"writable"}
            assert loop.remove_writer(new) is True
            assert_free(loop, new)

    loop.run_until_complete(main())


@pytest.mark.parametrize("added", ["nothing", "a writer"])
def test_an_operation_whose_socket_is_detached_fails_when_its_file_is_ready(loop, added):
    """As SSLContext.wrap_socket() does, which goes on with the file under the same number."""

    async def main():
        one, other = new_pair()
        waiting = await started(loop.sock_recv(one, 100))
        with socket.socket(fileno=one.detach()) as same, other:
            if added == "a writer":
                loop.add_writer(same, lambda: loop.remove_writer(same))
            await settle()
            assert not waiting.done()
            other.send(b"ping")
            with pytest.raises(OSError) as caught:
                await waiting
            assert caught.value.errno == errno.EBADF
            assert await loop.sock_recv(same, 100) == b"ping"

    loop.run_until_complete(main())


def test_the_loop_sleeps_while_a_duplicate_is_readable(loop):
    turns_taken = counted_turns(loop)

    async def main():
        one, other = new_pair()
        await ping(loop, one, other)
        with one.dup(), other:
            one.close()
            other.send(b"x")
            await settle()
            del turns_taken[:]
            await asyncio.sleep(0.02)
            assert len(turns_taken) < 10

    loop.run_until_complete(main())


def test_the_loop_sleeps_while_data_waits_without_a_reader(loop, pair):
    one, other = pair
    turns_taken = counted_turns(loop)

    async def main():
        await ping(loop, one, other)
        other.send(b"x")
        await settle()
        del turns_taken[:]
        await asyncio.sleep(0.02)
        assert len(turns_taken) < 10
        assert await loop.sock_recv(one, 100) == b"x"
        await ping(loop, one, other)

    loop.run_until_complete(main())


def test_a_socket_is_not_kept_alive(loop, pair):
    async def main():
        one, other = new_pair()
        await ping(loop, one, other)
        reference = weakref.ref(one)
        with pytest.warns(ResourceWarning, match="unclosed <socket"):
            del one
            gc.collect()
        assert reference() is None
        other.close()

    loop.run_until_complete(main())
