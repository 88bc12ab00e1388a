"""11_threads.py: several loops serve one port, in threads and in processes, and end together."""

import contextlib
import json
import os
import re
import signal
import socket
import sys

import pytest
from example_programs import SECONDS_BEFORE_A_PROGRAM_HANGS, check_loop, needs_proc, wait_until

THREADS = "11_threads.py"
CLIENTS = 64
MESSAGE = b"x" * 1000

needs_reuse_port = pytest.mark.skipif(
    not hasattr(socket, "SO_REUSEPORT"), reason="without SO_REUSEPORT there is no port for several loops"
)
each_way = pytest.mark.parametrize("way", ["--threads", "--processes"])


def start_server(programs, on, *arguments):
    process = programs.start(THREADS, *arguments, on=on)
    host, port, how = re.fullmatch(r"echo server on (\S+) port (\d+): (.+)\n", process.stdout.readline()).groups()
    return process, (host, int(port)), how


def connect(address):
    return socket.create_connection(address, timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)


def check_echo(client, data=MESSAGE):
    client.sendall(data)
    received = b""
    while len(received) < len(data):
        chunk = client.recv(65536)
        assert chunk, f"the connection ended after {len(received)} of {len(data)} bytes"
        received += chunk
    assert received == data


def refuses(address):
    try:
        connect(address).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # the listening socket was closed just then: ask again
    return False


def end_of(process, number=signal.SIGTERM):
    """What a server says at its end, which must come without an error."""
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)
    assert (process.returncode, err) == (0, "")
    return out


@needs_reuse_port
@each_way
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_clients_are_served(impl, programs, way, number):
    process, address, how = start_server(programs, impl.name, f"{way}=2", "--json")
    assert how.startswith("2 threads with" if way == "--threads" else "2 processes")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(address)) for _ in range(CLIENTS)]
        for client in clients:
            check_echo(client)
        for client in reversed(clients):
            check_echo(client)
    report = json.loads(end_of(process, number))
    assert len(report["loops"]) == 2
    for loop in report["loops"]:
        check_loop(loop, impl)
        if sys.platform == "linux":
            assert loop["connections"] > 0, "the kernel deals out connections by a hash: all 64 to one is no chance"
    assert report["together"]["connections"] == CLIENTS
    if not impl.is_oracle:
        assert report["together"]["bytes_received"] == report["together"]["bytes_sent"] == 2 * CLIENTS * len(MESSAGE)
        for name in ("callbacks", "task_steps", "busy_ns"):
            assert report["together"][name] == sum(loop[name] for loop in report["loops"]) > 0


@needs_reuse_port
@each_way
def test_open_connections_go_on_after_the_signal(impl, programs, way):
    process, address, _ = start_server(programs, impl.name, f"{way}=2", "--grace=3600")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(address)) for _ in range(CLIENTS)]
        for client in clients:
            check_echo(client)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(address))
        for client in clients:
            check_echo(client)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
    out, err = process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)
    assert (process.returncode, err) == (0, "")
    loops = re.findall(r"^loop \d: (\d+) connections?\b", out, re.MULTILINE)
    [together] = re.findall(r"^together: (\d+) connections\b", out, re.MULTILINE)
    assert (len(loops), sum(map(int, loops))) == (2, int(together))
    assert int(together) >= CLIENTS


@needs_reuse_port
@each_way
def test_connections_that_stay_open_are_cut_off(impl, programs, way):
    process, address, _ = start_server(programs, impl.name, f"{way}=2", "--grace=0")
    with connect(address) as client:
        check_echo(client)
        assert re.search(r"^together: 1 connection\b", end_of(process), re.MULTILINE)
        assert client.recv(1) == b""


@needs_reuse_port
def test_connections_in_the_queue_are_served_at_the_end(impl, programs):
    """A stopped process accepts nothing: the connections wait in the kernel when the signal does."""
    process, address, _ = start_server(programs, impl.name, "--grace=3600")
    with contextlib.ExitStack() as stack:
        process.send_signal(signal.SIGSTOP)
        clients = [stack.enter_context(connect(address)) for _ in range(CLIENTS)]
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        for client in clients:
            check_echo(client)
    out, err = process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)
    assert (process.returncode, err) == (0, "")
    assert re.search(rf"^together: {CLIENTS} connections\b", out, re.MULTILINE)


@needs_reuse_port
@needs_proc
def test_no_process_is_left_even_if_the_first_is_killed(impl, programs):
    process, address, _ = start_server(programs, impl.name, "--processes=2")
    with connect(address) as client:
        check_echo(client)
    process.kill()
    process.wait()
    programs.assert_all_gone()


@needs_reuse_port
@each_way
def test_port_in_use(programs, way):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = programs.failure(THREADS, f"{way}=2", f"--port={port}")
    assert (code, f"cannot listen on 127.0.0.1:{port}" in line) == (1, True)


def test_without_reuse_port(programs, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import socket\nvars(socket).pop('SO_REUSEPORT', None)\n")
    programs.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), programs.environ.get("PYTHONPATH", "")])
    code, line = programs.failure(THREADS)
    assert (code, "this system has no SO_REUSEPORT" in line) == (1, True)


def test_bad_arguments(programs):
    for arguments in (["--threads=0"], ["--threads=two"], ["--grace=-1"], ["--threads=2", "--processes=2"]):
        assert programs.failure(THREADS, *arguments)[0] == 2
