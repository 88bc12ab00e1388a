"""website.py: its answers, that it copes with clients of all kinds, and how it ends."""

import contextlib
import http.client
import re
import signal
import socket
import subprocess
import time

import pytest
from example_programs import SECONDS_BEFORE_A_PROGRAM_HANGS, requests_seen, split_address, start_site


def talk(url, data):
    """The server's whole answer to these bytes, sent at once on one connection."""
    with socket.create_connection(split_address(url), timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        chunks = []
        while chunk := sock.recv(65536):
            chunks.append(chunk)
    return b"".join(chunks)


def test_is_the_same_on_every_run(programs):
    answers = []
    for _ in range(2):
        _, url = start_site(programs, "--pages=20")
        answers.append([talk(url, b"GET /page/%d HTTP/1.0\r\n\r\n" % number) for number in range(20)])
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.0", 200),
        (b"GET /page/39?query HTTP/1.0", 200),
        (b"GET http://example.org/page/1 HTTP/1.0", 200),
        (b"GET /page/40 HTTP/1.0", 404),
        (b"GET /page/-1 HTTP/1.0", 404),
        (b"GET /page/" + b"9" * 5000 + b" HTTP/1.0", 404),
        (b"GET /nothing HTTP/1.0", 404),
        (b"GET /status/503 HTTP/1.0", 503),
        (b"GET /loop/a HTTP/1.0", 302),
        (b"POST / HTTP/1.0", 405),
        (b"GET / HTTP/1.1", 400),  # without Host
        (b"GET / HTTP/2.0", 400),
        (b"GET /", 400),
        (b"GET / HTTP/1.0\r\nno header", 400),
        (b"GET / HTTP/1.0\r\nContent-Length: 3", 413),
        (b"GET /" + b"x" * 20_000, 431),
    ],
)
def test_answers(site, request_line, status):
    answer = talk(site, request_line + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close\r\n" in answer


def test_redirects_lead_where_they_should(site):
    def location(path):
        connection = http.client.HTTPConnection(*split_address(site))
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().headers["Location"]

    assert location("/redirect/7") == "/page/7"
    assert location("/redirect/0") == "/"
    assert location("/chain/3/7") == "../2/7"
    assert location("/chain/1/7") == "/page/7"
    assert location("/merge/left/7") == location("/merge/right/7") == "/page/7"
    assert (location("/loop/a"), location("/loop/b")) == ("/loop/b", "/loop/a")


def test_keeps_a_connection_open(site):
    connection = http.client.HTTPConnection(*split_address(site))
    with contextlib.closing(connection):
        connection.connect()
        ours = connection.sock
        for path in ("/", "/missing/1", "/redirect/1", "/page/1"):
            connection.request("GET", path)
            connection.getresponse().read()
            assert connection.sock is ours
        connection.request("HEAD", "/")
        response = connection.getresponse()
        assert (response.read(), int(response.headers["Content-Length"]) > 0) == (b"", True)


def test_http_1_0_keeps_a_connection_open_if_asked_to(site):
    one = b"GET /status/200 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    assert talk(site, one * 3).count(b"Connection: keep-alive") == 3


@pytest.mark.parametrize("delay", [0, 0.01])
def test_answers_pipelined_requests_in_order(programs, delay):
    _, url = start_site(programs, f"--delay={delay}")
    requests = [b"GET /status/%d HTTP/1.1\r\nHost: x\r\n\r\n" % status for status in range(200, 250)]
    answer = talk(url, b"".join(requests) + b"GET / HTTP/1.0\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"%d" % status for status in (*range(200, 250), 200)]


def test_request_in_many_pieces(site):
    with socket.create_connection(split_address(site)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /status/204 HTTP/1.0\r\n\r\n":
            sock.send(bytes([byte]))
        assert sock.recv(100).startswith(b"HTTP/1.1 204")


def test_broken_answers(site):
    assert talk(site, b"GET /broken/close HTTP/1.0\r\n\r\n") == b""
    with pytest.raises(http.client.IncompleteRead):
        connection = http.client.HTTPConnection(*split_address(site))
        with contextlib.closing(connection):
            connection.request("GET", "/broken/short")
            connection.getresponse().read()


def test_delay(programs):
    _, url = start_site(programs, "--delay=0.3")
    began = time.monotonic()
    talk(url, b"GET / HTTP/1.0\r\n\r\n")
    assert time.monotonic() - began >= 0.3


def test_client_that_leaves_during_the_delay(programs):
    _, url = start_site(programs, "--delay=0.2")
    with socket.create_connection(split_address(url)) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert requests_seen(url)["requests"].keys() <= {"/", "/stats"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_on_a_signal_and_frees_its_port(programs, number):
    process, url = start_site(programs, "--delay=30")
    host, port = split_address(url)
    with socket.create_connection((host, port)) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")  # waits for its answer when the site ends
        process.send_signal(number)
        assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
    assert process.returncode == 0
    again = programs.start("website.py", f"--port={port}")
    assert again.stdout.readline().startswith(url)


def test_ends_with_the_process_that_holds_its_stdin(programs):
    process = programs.start("website.py", "--until-stdin-closes", stdin=subprocess.PIPE)
    assert process.stdout.readline()
    process.stdin.close()
    assert process.wait(SECONDS_BEFORE_A_PROGRAM_HANGS) == 0


def test_bad_arguments(programs, site):
    for arguments in (["--pages=0"], ["--pages=x"], ["--delay=-1"], ["--delay=nan"], ["--port=65536"], ["--what"]):
        assert programs.failure("website.py", *arguments)[0] == 2
    _, port = split_address(site)
    code, line = programs.failure("website.py", f"--port={port}")
    assert code == 1
    assert f"cannot serve on 127.0.0.1:{port}" in line
