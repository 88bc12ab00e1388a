"""P20: if there is nothing to resolve, loop.getaddrinfo() answers at once, with the same answer as
socket.getaddrinfo(). For names see test_name_threads."""

import asyncio
import enum
import importlib
import inspect
import itertools
import logging
import random
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
from support import implementations

LITERALS = [
    "127.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "192.0.2.7",
    b"192.0.2.7",
    "::1",
    "::",
    b"::1",
    "2001:DB8:0:0::1",
    "::ffff:192.0.2.7",
    "ff02::1",
    "fe80::1",
    "fe80::1%1",
    "fe80::1%lo",
    b"fe80::1%lo",
    "::1%1",
    "::1%lo",
    "2001:db8::1%4294967295",
    "fe80::1%",
    "fe80::1%no-such-interface",
    None,
]
# Hosts that need a resolver unless AI_NUMERICHOST is set.
OTHER_HOSTS = ["localhost", "127.1", "0x7f.0.0.1", "127.0.0.01", "1.2.3", ":::", "fe80::1%1%1", "", "ünï.example", 7]
PORTS = [0, 1, 80, 65535, "0", "80", "00080", "99999", b"443", None]
OTHER_PORTS = ["http", "", "-1", " 80", "80 ", "no-such-service", b"\xff", -1, 65536, 1 << 70, 1.5, "\u0661"]
FAMILIES = [0, socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 99, -1]
TYPES = [0, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, 2049, 99]
PROTOS = [0, socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP, 132, 250]
FLAGS = [
    0,
    socket.AI_PASSIVE,
    socket.AI_NUMERICHOST,
    socket.AI_NUMERICSERV,
    socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    socket.AI_CANONNAME,
    socket.AI_ADDRCONFIG,
    socket.AI_V4MAPPED,
    socket.AI_V4MAPPED | socket.AI_ALL,
    socket.AI_PASSIVE | socket.AI_ADDRCONFIG | socket.AI_CANONNAME,
    1 << 30,
]
USUAL = [(0, 1, 0), (0, 0, 0), (socket.AF_INET, 1, 6), (socket.AF_INET6, 1, 6), (0, 2, 17), (0, 0, 6), (0, 1, 17)]


class Port(enum.IntEnum):
    HTTP = 80


def literal_cases():
    """All of the usual calls, and 1,500 unusual ones."""
    usual = itertools.product(LITERALS, [0, 80, "80", None], USUAL, [0, socket.AI_PASSIVE])
    cases = [(host, port, *rest, flags) for host, port, rest, flags in usual]
    unusual = [FAMILIES, TYPES, PROTOS, FLAGS]
    rng = random.Random(20)
    cases += [tuple(rng.choice(values) for values in [LITERALS, PORTS, *unusual]) for _ in range(1500)]
    cases += [(host, port, 0, 1, 0, flags) for host, port, flags in itertools.product(LITERALS, PORTS, FLAGS)]
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    cases += [(host, port, 0, 1, 0, numeric) for host, port in itertools.product(OTHER_HOSTS, OTHER_PORTS)]
    return list(dict.fromkeys(cases))


def other_cases():
    """Calls whose hosts are answered without a network, but not at once."""
    hosts = ["localhost", "127.1", "0x7f.0.0.1", b"localhost", bytearray(b"127.0.0.1"), 7, "127.0.0.1\0"]
    cases = [(host, port, 0, 1, 0, 0) for host, port in itertools.product(hosts, [80, "80", None])]
    cases += [(host, port, 0, 1, 0, 0) for host, port in itertools.product(["127.0.0.1", "::1", None], OTHER_PORTS)]
    return [*cases, ("127.0.0.1", bytearray(b"80"), 0, 1, 0, 0), ("127.0.0.1", "http", 0, 1, 0, socket.AI_NUMERICHOST)]


def outcome(function, *arguments):
    """The outcome of a call: a list with its types, or an exception."""
    try:
        infos = function(*arguments)
    except Exception as error:
        return type(error), error.args
    return None if infos is None else (type(infos), [repr(info) for info in infos])


def awaited(coroutine):
    """The result of a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError("it waited")


def at_once(loop):
    """A loop.getaddrinfo() that must not wait."""

    def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
        return awaited(loop.getaddrinfo(host, port, family=family, type=type, proto=proto, flags=flags))

    return getaddrinfo


def in_its_time(loop):
    def getaddrinfo(host, port, family, type, proto, flags):
        return loop.run_until_complete(loop.getaddrinfo(host, port, family=family, type=type, proto=proto, flags=flags))

    return getaddrinfo


@pytest.fixture
def address(impl):
    return importlib.import_module(f"{implementations.PACKAGES[impl.name]}.system.address")


@pytest.fixture
def busy_executor(loop):
    """The loop's default executor; its only thread waits for the end of the test."""
    release = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        loop.set_default_executor(executor)
        executor.submit(release.wait)
        yield executor
        release.set()


ours = pytest.mark.only("c", "python", reason="asyncio asks its executor whatever the host is (python/cpython#112169)")
needs_ipv6 = pytest.mark.skipif(
    not socket.has_ipv6 or (sys.platform == "linux" and not Path("/proc/net/if_inet6").exists()),
    reason="this kernel has no IPv6",
)


# -- the same answers --------------------------------------------------------------------------------------------------


@pytest.mark.promise("P20")
def test_the_answers_are_those_of_the_socket_module(impl, loop):
    """Over more than 2,000 calls, through the loop: lists and exceptions, enumerations included."""
    cases = literal_cases() + other_cases()
    assert len(cases) > 2000
    ask = in_its_time(loop)
    wrong = {case for case in cases if outcome(ask, *case) != outcome(socket.getaddrinfo, *case)}
    assert wrong == set()


@pytest.mark.promise("P20")
@ours
def test_literals_are_answered_at_once(impl, loop, address):
    """Also the second time, when the existing kinds of entries are known."""
    ask = at_once(loop)
    refusals = 0
    for case in literal_cases():
        expected = outcome(socket.getaddrinfo, *case)
        refusals += isinstance(expected[1], tuple)
        for _ in range(2):
            assert outcome(ask, *case) == outcome(address.getaddrinfo_literal, *case) == expected, case
        assert address.resolves_at_once(case[0], case[1], case[5])
    assert 200 < refusals < 3000  # the cases have enough of both kinds of answers


@pytest.mark.promise("P20")
@ours
@pytest.mark.parametrize("case", other_cases(), ids=repr)
def test_what_is_not_certain_is_left_to_the_executor(impl, address, case):
    """Hosts that some resolver might look up, with or without success."""
    assert address.getaddrinfo_literal(*case) is None
    assert not address.resolves_at_once(case[0], case[1], case[5])


@ours
def test_arguments_of_other_types(impl, loop, address):
    calls = [
        ("127.0.0.1", Port.HTTP, 0, 1, 0, 0),
        ("127.0.0.1", True, 0, 1, 0, 0),
        ("127.0.0.1", 80, socket.AddressFamily.AF_INET, socket.SocketKind.SOCK_STREAM, 6, socket.AddressInfo(1)),
        ("127.0.0.1", 80, "x", 0, 0, 0),
        ("127.0.0.1", 80, 0, None, 0, 0),
        ("127.0.0.1", 80, 0, 0, 1.5, 0),
        ("127.0.0.1", 80, 0, 0, 0, "x"),
        ("127.0.0.1", 80, 1 << 40, 0, 0, 0),
        ("127.0.0.1", 80, 0, 1 << 80, 0, 0),
        ("127.0.0.1", 80, 0, 0, -1 << 80, 0),
        ("127.0.0.1", 80, 0, 0, 0, 1 << 80),
    ]
    for call in calls:
        assert outcome(address.getaddrinfo_literal, *call) == outcome(socket.getaddrinfo, *call), call


@ours
@pytest.mark.parametrize("names", [("host",), ("host", "port", "family")])
def test_missing_arguments_are_an_error(impl, address, names):
    if len(names) == 1:
        with pytest.raises(TypeError):
            address.getaddrinfo_literal("127.0.0.1")
    else:
        assert address.getaddrinfo_literal("127.0.0.1", 80, 2) == socket.getaddrinfo("127.0.0.1", 80, 2)


def test_each_answer_is_a_list_of_its_own(impl, loop):
    async def main():
        first = await loop.getaddrinfo("127.0.0.1", 80)
        expected = list(first)
        first.clear()
        assert await loop.getaddrinfo("127.0.0.1", 80) == expected

    loop.run_until_complete(main())


# -- at once -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P20")
@ours
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%1", None])
def test_a_saturated_executor_does_not_delay_literals(impl, loop, busy_executor, host, debug):
    loop.set_debug(debug)
    loop.slow_callback_duration = 3600  # reports no slow callback, however busy the machine is

    async def main():
        return await loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM)

    assert loop.run_until_complete(main()) == socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)


@pytest.mark.promise("P20")
def test_names_wait_for_the_programs_executor(impl, loop, busy_executor):
    """Looking a name up may take long, so it needs a thread."""
    coroutine = loop.getaddrinfo("localhost", 80)
    coroutine.send(None)
    coroutine.close()


@pytest.mark.promise("P20")
@ours
def test_a_server_on_all_interfaces_needs_no_executor(impl, loop, busy_executor):
    async def main():
        server = await loop.create_server(asyncio.Protocol, None, 0)
        assert server.sockets
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


@pytest.mark.promise("P20")
@ours
@needs_ipv6
def test_connecting_to_an_address_with_a_zone_needs_no_executor(impl, loop, busy_executor):
    async def main():
        connected = loop.create_future()

        class Server(asyncio.Protocol):
            def connection_made(self, transport):
                transport.close()
                connected.set_result(transport.get_extra_info("peername")[0])

        server = await loop.create_server(Server, "::1", 0)
        port = server.sockets[0].getsockname()[1]
        closed = loop.create_future()

        class Client(asyncio.Protocol):
            connection_lost = closed.set_result

        transport, _ = await loop.create_connection(Client, "::1%1", port)
        assert transport.get_extra_info("peername") == ("::1", port, 0, 0)
        assert await connected == "::1"
        await closed
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


# -- what programs and tests do to it ----------------------------------------------------------------------------------


def answer_of_a_replacement(loop, threads):
    def replacement(*arguments):
        threads.append(threading.get_ident())
        return ["replaced", *arguments]

    return replacement


def test_a_replaced_getaddrinfo_is_asked_in_the_executor(impl, loop, monkeypatch):
    threads = []
    replacement = answer_of_a_replacement(loop, threads)
    before = loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80, type=1))
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", replacement)
        answer = loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80, type=1))
        assert answer == ["replaced", "127.0.0.1", 80, 0, 1, 0, 0]
    assert threads and threads[0] != threading.get_ident()
    assert loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80, type=1)) == before


def test_a_socket_module_that_is_replaced_in_asyncio_is_asked(impl, loop):
    with mock.patch("asyncio.base_events.socket") as module:
        module.getaddrinfo.return_value = ["replaced"]
        assert loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80)) == ["replaced"]


@ours
def test_a_getaddrinfo_replaced_before_the_import_is_never_bypassed(impl):
    module = f"{implementations.PACKAGES[impl.name]}.system.address"
    source = f"""if True:
        import functools, socket
        socket.getaddrinfo = functools.wraps(socket.getaddrinfo)(lambda *arguments: ["replaced"])
        from {module} import getaddrinfo_literal, resolves_at_once
        assert getaddrinfo_literal("127.0.0.1", 80) is None
        assert not resolves_at_once("127.0.0.1", 80)
    """
    subprocess.run([sys.executable, "-W", "error", "-c", source], check=True, timeout=60)


def test_the_audit_event(impl):
    """Each call raises it, with the arguments that socket.getaddrinfo() passes."""
    impl.run_script(
        """if True:
        import socket
        seen = []
        calls = [("127.0.0.1", 80, 0, 1, 0, 0), ("127.0.0.1", "80", 0, 0, 0, 0), ("::1", 80, 0, 2, 17, 0)]
        calls += [(b"::1", 80, socket.AF_INET6, socket.SOCK_STREAM, 6, socket.AI_PASSIVE)]
        async def main():
            for host, port, family, type, proto, flags in calls * 2:
                await loop.getaddrinfo(host, port, family=family, type=type, proto=proto, flags=flags)
        loop = impl.new_event_loop()
        sys.addaudithook(lambda event, arguments: event == "socket.getaddrinfo" and seen.append(repr(arguments)))
        loop.run_until_complete(main())
        loop.close()
        ours = seen[:]
        seen.clear()
        for call in calls * 2:
            socket.getaddrinfo(*call)
        assert ours == seen and len(seen) == 2 * len(calls), (ours, seen)
        """
    )


def test_an_audit_hook_may_refuse(impl):
    impl.run_script(
        """if True:
        def hook(event, arguments):
            if event == "socket.getaddrinfo" and refusing:
                raise PermissionError("not from here")
        refusing = False
        sys.addaudithook(hook)
        loop = impl.new_event_loop()
        for refusing in (False, True, False):
            try:
                infos = loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80, type=1))
            except PermissionError:
                assert refusing
            else:
                assert infos and not refusing
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        """
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_debug_mode_logs_what_is_asked_and_how_long_it_took(impl, loop, monkeypatch, host):
    log = []
    logger = mock.Mock(spec=logging.Logger)
    logger.debug.side_effect = lambda text, *arguments: log.append(text % arguments)
    logger.info.side_effect = lambda text, *arguments: log.append(text % arguments)
    loop.set_debug(True)
    loop.slow_callback_duration = 0
    with monkeypatch.context() as patched:
        patched.setattr("asyncio.base_events.logger", logger)
        infos = loop.run_until_complete(loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM))
    loop.set_debug(False)
    asked, took = [text for text in log if "address info" in text]
    name = repr(socket.SOCK_STREAM)
    assert asked == f"Get address info {host}:80, type={name}"
    assert took.startswith(f"Getting address info {host}:80, type={name} took ")
    assert took.endswith(f"ms: {infos!r}")


def test_a_closed_loop_refuses(impl):
    loop = impl.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        awaited(loop.getaddrinfo("127.0.0.1", 80))


def test_it_is_a_coroutine_function_with_asyncios_signature(impl, loop):
    assert inspect.iscoroutinefunction(loop.getaddrinfo)
    coroutine = loop.getaddrinfo("127.0.0.1", 80)
    assert inspect.iscoroutine(coroutine)
    coroutine.close()
    ours = inspect.signature(loop.getaddrinfo).parameters.values()
    theirs = inspect.signature(asyncio.SelectorEventLoop.getaddrinfo).parameters.values()
    described = [(parameter.name, parameter.kind, parameter.default) for parameter in ours]
    assert described == [(parameter.name, parameter.kind, parameter.default) for parameter in theirs][1:]


def test_a_task_and_a_cancelled_task(impl, loop):
    async def main():
        infos = await asyncio.create_task(loop.getaddrinfo("127.0.0.1", 80))
        assert infos == socket.getaddrinfo("127.0.0.1", 80)
        task = asyncio.create_task(loop.getaddrinfo("127.0.0.1", 80))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run_until_complete(main())
