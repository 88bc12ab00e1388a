"""The examples, run as a user runs them: each a program of its own, on asyncio and through `python -m hotloop`.

Every program started here carries a mark in its environment, which its children inherit, so that at the end of a test
it can be shown that none of them is left.
"""

import contextlib
import http.client
import importlib.util
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
CRAWLER = "09_aiohttp_crawler.py"
RAW_STAGES = [f"{name}.py" for name in ("01_blocking", "02_process_pool", "03_thread_pool", "04_busy_loop")]
SELECTOR_STAGES = [f"{name}.py" for name in ("05_callbacks", "06_generators", "07_yield_from")]
LOOP_STAGE = "08_async_await.py"
SECONDS_BEFORE_A_PROGRAM_HANGS = 60
SITE_PAGES = 40

needs_aiohttp = pytest.mark.skipif(
    importlib.util.find_spec("aiohttp") is None, reason="aiohttp, which the crawler uses, is not installed here"
)
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="only /proc shows which processes were left behind"
)


def restore_signals():
    """A job in the background of a shell ignores SIGINT, and so would everything that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Programs:
    """Starts examples, and knows which of them and of their children are still there."""

    def __init__(self):
        self.mark = f"HOTLOOP_EXAMPLE_TEST={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        self.environ = os.environ | {name: value}
        self.environ.pop("HOTLOOP_IMPL", None)
        self.started = []

    def command(self, program, arguments, implementation):
        words = [str(EXAMPLES / program), *map(str, arguments)]
        if implementation == "asyncio":
            return [sys.executable, "-W", "error", *words]
        return [sys.executable, "-W", "error", "-m", "hotloop", "--impl", implementation, *words]

    def start(self, program, *arguments, on="asyncio", **options):
        process = subprocess.Popen(
            self.command(program, arguments, on),
            env=self.environ,
            text=True,
            preexec_fn=restore_signals,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options,
        )
        self.started.append(process)
        return process

    def run(self, program, *arguments, on="asyncio"):
        process = self.start(program, *arguments, on=on)
        out, err = process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def report(self, program, *arguments, on="asyncio"):
        """The report of an example that must succeed in silence."""
        done = self.run(program, "--json", *arguments, on=on)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def failure(self, program, *arguments, on="asyncio"):
        """Exit code and the one line of an example that must fail."""
        done = self.run(program, *arguments, on=on)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith(f"{program}: "), done.stderr
        return done.returncode, done.stderr

    def left_behind(self):
        """Command lines of the processes that bear our mark."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):  # it has ended meanwhile, or is not ours to look at
                    if self.mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                        found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def assert_all_gone(self, seconds=20):
        """Helper processes of multiprocessing end shortly after the program that they served."""
        deadline = time.monotonic() + seconds
        while left := self.left_behind():
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.02)

    def end(self):
        for process in self.started:
            with process:
                process.kill()


@pytest.fixture
def programs():
    programs = Programs()
    yield programs
    programs.end()


def start_site(programs, *arguments):
    process = programs.start("site.py", *arguments)
    return process, process.stdout.readline().partition(" ")[0]


@pytest.fixture(scope="module")
def site():
    """A small site without delay, for all tests that only fetch from it."""
    programs = Programs()
    process, url = start_site(programs, f"--pages={SITE_PAGES}")
    yield url
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
    assert process.returncode == 0
    programs.end()


def split_address(url):
    host, port = re.fullmatch(r"http://([\d.]+):(\d+)/", url).groups()
    return host, int(port)


def requests_seen(url):
    connection = http.client.HTTPConnection(*split_address(url))
    with contextlib.closing(connection):
        connection.request("GET", "/stats")
        return json.loads(connection.getresponse().read())


# ---- The site ----


class TestSite:
    def talk(self, url, data):
        """All that the server answers to these bytes, sent in one go on one connection."""
        with socket.create_connection(split_address(url), timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            chunks = []
            while chunk := sock.recv(65536):
                chunks.append(chunk)
        return b"".join(chunks)

    def test_is_the_same_on_every_run(self, programs):
        answers = []
        for _ in range(2):
            _, url = start_site(programs, "--pages=20")
            answers.append([self.talk(url, b"GET /page/%d HTTP/1.0\r\n\r\n" % number) for number in range(20)])
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
    def test_answers(self, site, request_line, status):
        answer = self.talk(site, request_line + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"Connection: close\r\n" in answer

    def test_redirects_lead_where_they_should(self, site):
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

    def test_keeps_a_connection_open(self, site):
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

    def test_http_1_0_keeps_a_connection_open_if_asked_to(self, site):
        one = b"GET /status/200 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        assert self.talk(site, one * 3).count(b"Connection: keep-alive") == 3

    @pytest.mark.parametrize("delay", [0, 0.01])
    def test_answers_pipelined_requests_in_order(self, programs, delay):
        _, url = start_site(programs, f"--delay={delay}")
        requests = [b"GET /status/%d HTTP/1.1\r\nHost: x\r\n\r\n" % status for status in range(200, 250)]
        answer = self.talk(url, b"".join(requests) + b"GET / HTTP/1.0\r\n\r\n")
        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"%d" % status for status in (*range(200, 250), 200)]

    def test_request_in_many_pieces(self, site):
        with socket.create_connection(split_address(site)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b"GET /status/204 HTTP/1.0\r\n\r\n":
                sock.send(bytes([byte]))
            assert sock.recv(100).startswith(b"HTTP/1.1 204")

    def test_broken_answers(self, site):
        assert self.talk(site, b"GET /broken/close HTTP/1.0\r\n\r\n") == b""
        with pytest.raises(http.client.IncompleteRead):
            connection = http.client.HTTPConnection(*split_address(site))
            with contextlib.closing(connection):
                connection.request("GET", "/broken/short")
                connection.getresponse().read()

    def test_delay(self, programs):
        _, url = start_site(programs, "--delay=0.3")
        began = time.monotonic()
        self.talk(url, b"GET / HTTP/1.0\r\n\r\n")
        assert time.monotonic() - began >= 0.3

    def test_client_that_leaves_during_the_delay(self, programs):
        _, url = start_site(programs, "--delay=0.2")
        with socket.create_connection(split_address(url)) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert requests_seen(url)["requests"].keys() <= {"/", "/stats"}

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ends_on_a_signal_and_frees_its_port(self, programs, number):
        process, url = start_site(programs, "--delay=30")
        host, port = split_address(url)
        with socket.create_connection((host, port)) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")  # is waiting for its answer when the site ends
            process.send_signal(number)
            assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
        assert process.returncode == 0
        again = programs.start("site.py", f"--port={port}")
        assert again.stdout.readline().startswith(url)

    def test_ends_with_the_process_that_holds_its_stdin(self, programs):
        process = programs.start("site.py", "--until-stdin-closes", stdin=subprocess.PIPE)
        assert process.stdout.readline()
        process.stdin.close()
        assert process.wait(SECONDS_BEFORE_A_PROGRAM_HANGS) == 0

    def test_bad_arguments(self, programs, site):
        for arguments in (["--pages=0"], ["--pages=x"], ["--delay=-1"], ["--delay=nan"], ["--port=65536"], ["--what"]):
            assert programs.failure("site.py", *arguments)[0] == 2
        _, port = split_address(site)
        code, line = programs.failure("site.py", f"--port={port}")
        assert code == 1
        assert f"cannot serve on 127.0.0.1:{port}" in line


# ---- The stages ----


def fetch_ten(programs, stage, site, on):
    report = programs.report(stage, "--url", site, "--pages=10", on=on)
    assert (report["pages"], report["bytes"]) == (10, sum(page_sizes(site, 10)))
    return report


def page_sizes(site, count):
    connection = http.client.HTTPConnection(*split_address(site))
    with contextlib.closing(connection):
        for number in range(count):
            connection.request("GET", f"/page/{number}" if number else "/")
            yield len(connection.getresponse().read())


@pytest.mark.only("asyncio", reason="these stages use neither a selector nor an event loop")
@pytest.mark.parametrize("stage", RAW_STAGES)
def test_raw_stage(impl, programs, stage, site):
    assert fetch_ten(programs, stage, site, impl.name)["engine"] is None


@pytest.mark.parametrize("stage", SELECTOR_STAGES)
def test_selector_stage_uses_the_default_selector(impl, programs, stage, site):
    report = fetch_ten(programs, stage, site, impl.name)
    selector = impl.DefaultSelector
    assert report["engine"] == f"{selector.__module__}.{selector.__qualname__}"
    assert report["implementation"] == (None if impl.is_oracle else impl.name)


def test_loop_stage_uses_the_loop(impl, programs, site):
    check_loop(fetch_ten(programs, LOOP_STAGE, site, impl.name), impl)


def check_loop(report, impl):
    assert report["engine"].startswith("asyncio." if impl.is_oracle else "hotloop.")
    assert report["implementation"] == (None if impl.is_oracle else impl.name)


@pytest.mark.parametrize("stage", [*RAW_STAGES, *SELECTOR_STAGES, LOOP_STAGE])
def test_stage_alone_starts_its_own_site(programs, stage):
    done = programs.run(stage, "--pages=3", "--delay=0")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"3 pages, [\d,]+ bytes in ", done.stdout)


@pytest.mark.parametrize("stage", [*RAW_STAGES, *SELECTOR_STAGES, LOOP_STAGE])
def test_stage_that_cannot_fetch(programs, stage, site):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    code, line = programs.failure(stage, "--url", f"http://127.0.0.1:{port}")
    assert (code, "cannot fetch" in line, "refused" in line or "failed" in line) == (1, True, True)
    code, line = programs.failure(stage, "--url", site, f"--pages={SITE_PAGES + 1}")
    assert (code, f"/page/{SITE_PAGES}: HTTP status 404" in line) == (1, True)


def test_bad_arguments(programs):
    for arguments in (["--pages=0"], ["--pages=ten"], ["--url=nonsense"], ["--url=http://x:99999"], ["--delay=-1"]):
        assert programs.failure("01_blocking.py", *arguments)[0] == 2
    assert programs.failure("01_blocking.py", "--url=https://127.0.0.1")[0] == 1
    assert programs.failure("01_blocking.py", "--url=http://no.such.host.invalid")[0] == 1


def test_concurrent_stages_wait_at_the_same_time(programs):
    _, url = start_site(programs, "--delay=0.1", "--pages=10")
    for stage in [*RAW_STAGES, *SELECTOR_STAGES, LOOP_STAGE]:
        before = requests_seen(url)["most_at_once"]
        programs.report(stage, "--url", url)
        expected = 1 if stage == "01_blocking.py" else 5  # of ten; a loaded machine may start the last ones late
        assert requests_seen(url)["most_at_once"] >= max(before, expected), stage


# ---- The crawler ----


@pytest.fixture
def made_site():
    """Serves what a test puts into its `routes`: path -> (status, body or Location). Counts requests by path."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            server.requests[self.path] += 1
            status, content = server.routes.get(self.path, (404, ""))
            body = b"" if 300 <= status < 400 else content if isinstance(content, bytes) else content.encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", content)
            self.send_header("Content-Type", server.types.get(self.path, "text/html"))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            """Nothing: what was requested is counted, not logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.routes, server.types, server.requests = {}, {}, Counter()
        server.daemon_threads, server.block_on_close = True, False
        server.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def links(*paths):
    return "".join(f'<a href="{path}">{path}</a>\n' for path in paths)


def paths_of(site, addresses):
    base = site.url.rstrip("/")
    assert all(address.startswith(base) for address in addresses)
    return sorted(address.removeprefix(base) for address in addresses)


@needs_aiohttp
class TestCrawler:
    def test_finds_every_page_of_the_site(self, impl, programs, site):
        report = programs.report(CRAWLER, "--url", site, on=impl.name)
        base = site.rstrip("/")
        assert report["found"] == sorted([site, *(f"{base}/page/{number}" for number in range(1, SITE_PAGES))])
        assert report["pages"] == SITE_PAGES
        assert report["bytes"] == sum(page_sizes(site, SITE_PAGES))
        assert report["statuses"]["404"] == SITE_PAGES // 10
        assert report["statuses"]["500"] == 1
        assert {address.removeprefix(base): error.split(":")[0] for address, error in report["errors"].items()} == {
            "/broken/close": "Server disconnected",
            "/broken/short": "Response payload is not completed",
            "/chain/2/0": "more than 10 redirects",
            "/loop/a": "redirect loop",
            "/loop/b": "redirect loop",
        }
        check_loop(report, impl)

    def test_fetches_nothing_twice_and_no_more_at_once_than_it_has_workers(self, impl, programs):
        _, url = start_site(programs, f"--pages={SITE_PAGES}", "--delay=0.02")
        programs.report(CRAWLER, "--url", url, "--workers=3", on=impl.name)
        seen = requests_seen(url)
        # aiohttp itself asks once more when a connection that it had used before is closed without an answer.
        requests = {path: count for path, count in seen["requests"].items() if path != "/broken/close"}
        assert set(requests.values()) == {1}
        assert requests.keys() >= {f"/merge/{number}/1" for number in (11, 12)}
        assert 2 <= seen["most_at_once"] <= 3
        # A connection is used again. Only the three without a good answer may have cost one.
        assert seen["connections"] <= 3 + 4

    def test_follows_as_many_redirects_as_allowed(self, programs, made_site):
        made_site.routes = {
            "/": (200, links("/r3")),
            "/r3": (301, "/r2"),
            "/r2": (302, "r1"),
            "/r1": (308, made_site.url + "page#part"),
            "/page": (200, "the end"),
        }
        report = programs.report(CRAWLER, "--url", made_site.url, "--max-redirects=3")
        assert (paths_of(made_site, report["found"]), report["errors"]) == (["/", "/page"], {})
        report = programs.report(CRAWLER, "--url", made_site.url, "--max-redirects=2")
        assert paths_of(made_site, report["found"]) == ["/"]
        assert report["errors"] == {made_site.url + "r1": "more than 2 redirects"}
        report = programs.report(CRAWLER, "--url", made_site.url, "--max-redirects=0")
        assert report["errors"] == {made_site.url + "r3": "more than 0 redirects"}

    def test_limit_holds_for_each_address_that_is_linked_to(self, programs, made_site):
        """/r1 is reached with no redirect left first, but is linked to as well, and then has its own limit."""
        made_site.routes = {
            "/": (200, links("/r3", "/late1")),
            "/late1": (200, links("/late2")),
            "/late2": (200, links("/late3")),
            "/late3": (200, links("/late4")),
            "/late4": (200, links("/r1")),
            "/r3": (302, "/r2"),
            "/r2": (302, "/r1"),
            "/r1": (302, "/page"),
            "/page": (200, ""),
        }
        report = programs.report(CRAWLER, "--url", made_site.url, "--max-redirects=2", "--workers=1")
        assert ("/page" in paths_of(made_site, report["found"]), report["errors"]) == (True, {})
        assert set(made_site.requests.values()) == {1}

    def test_redirects_to_one_page_merge(self, impl, programs, made_site):
        made_site.routes = {
            "/": (200, links("/a", "/b", "/page#x")),
            "/a": (302, "/c"),
            "/b": (302, "/c"),
            "/c": (301, "/page"),
            "/page": (200, links("/", "/page#y", "/a")),
        }
        report = programs.report(CRAWLER, "--url", made_site.url, on=impl.name)
        assert paths_of(made_site, report["found"]) == ["/", "/page"]
        assert made_site.requests == dict.fromkeys(made_site.routes, 1)

    def test_redirect_loops(self, impl, programs, made_site):
        made_site.routes = {
            "/": (200, links("/to-loop", "/self")),
            "/to-loop": (302, "/one"),
            "/one": (302, "/two"),
            "/two": (302, "/one"),
            "/self": (302, "/self"),
        }
        report = programs.report(CRAWLER, "--url", made_site.url, on=impl.name)
        assert paths_of(made_site, report["errors"]) == ["/one", "/self", "/two"]
        assert set(report["errors"].values()) == {"redirect loop"}
        assert set(made_site.requests.values()) == {1}

    def test_errors_stay_with_their_address(self, impl, programs, made_site):
        made_site.routes = {
            "/": (200, links("/redirect", "/charset", "/binary", "http://[x/", "/500", "/no-location", "/good")),
            "/redirect": (302, "http://[not-an-address/"),
            "/charset": (200, links("/from-charset").encode()),
            "/from-charset": (200, b"\xff\xfe"),
            "/binary": (200, links("/not-a-link")),
            "/500": (500, links("/not-a-link")),
            "/no-location": (304, ""),
            "/good": (200, ""),
        }
        made_site.types = {"/charset": "text/html; charset=klingon", "/binary": "application/octet-stream"}
        report = programs.report(CRAWLER, "--url", made_site.url, on=impl.name)
        assert paths_of(made_site, report["found"]) == ["/", "/charset", "/from-charset", "/good"]
        assert paths_of(made_site, report["errors"]) == ["/redirect"]
        assert report["statuses"] == {"200": 5, "302": 1, "304": 1, "500": 1}

    def test_stays_on_its_site(self, programs, made_site):
        elsewhere = ("http://elsewhere.invalid/", "//elsewhere.invalid/x", "mailto:a@example.org", "javascript:void(0)")
        made_site.routes = {
            "/": (200, links(*elsewhere, "/away", "/page")),
            "/away": (302, "http://elsewhere.invalid/"),
            "/page": (200, '<A class="x" HREF=/more?a=1&amp;b=2>more</A>'),
            "/more?a=1&b=2": (200, ""),
        }
        report = programs.report(CRAWLER, "--url", made_site.url)
        assert (paths_of(made_site, report["found"]), report["errors"]) == (["/", "/more?a=1&b=2", "/page"], {})

    def test_ends_after_as_many_pages_as_asked_for(self, impl, programs, site):
        report = programs.report(CRAWLER, "--url", site, "--pages=10", on=impl.name)
        assert (report["pages"], len(report["found"])) == (10, 10)

    def test_server_that_cannot_be_reached(self, impl, programs):
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port = nobody.getsockname()[1]
        code, line = programs.failure(CRAWLER, "--url", f"http://127.0.0.1:{port}", on=impl.name)
        assert (code, "found no page" in line, "Cannot connect" in line) == (1, True, True)

    def test_site_without_a_page(self, programs, made_site):
        code, line = programs.failure(CRAWLER, "--url", made_site.url)
        assert (code, "no answer was a page" in line) == (1, True)

    def test_alone_it_starts_a_site_and_shows_statistics(self, programs):
        done = programs.run(CRAWLER, "--site-pages=30", "--delay=0")
        assert (done.returncode, done.stderr) == (0, "")
        first, answers, errors, *lines = done.stdout.splitlines()
        assert first.startswith("30 pages, ")
        assert "3 x 404" in answers
        assert (errors, len(lines)) == ("errors: 5", 5)

    def test_bad_arguments(self, programs):
        for arguments in (["--workers=0"], ["--max-redirects=-1"], ["--pages=0"], ["--url=ftp://example.org"]):
            assert programs.failure(CRAWLER, *arguments)[0] == 2

    def test_progress_bar_on_a_terminal_only(self, programs, site):
        terminal, theirs = os.openpty()
        try:
            process = programs.start(CRAWLER, "--url", site, stderr=theirs)
            out, _ = process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)
            drawn = os.read(terminal, 65536).decode()
        finally:
            os.close(terminal)
            os.close(theirs)
        assert (process.returncode, out.startswith(f"{SITE_PAGES} pages")) == (0, True)
        assert re.match(r"\r\[#* *\] [\d,]+/[\d,]+, [\d,]+/s ", drawn)
        assert drawn.endswith("\r\x1b[K")


def test_crawler_without_aiohttp(programs, tmp_path):
    (tmp_path / "aiohttp.py").write_text("raise ModuleNotFoundError('no aiohttp', name='aiohttp')\n")
    programs.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), programs.environ.get("PYTHONPATH", "")])
    code, line = programs.failure(CRAWLER)
    assert (code, "aiohttp is not installed" in line) == (1, True)


# ---- The echo server ----


class TestEchoServer:
    def start(self, programs, on):
        process = programs.start("echo_server.py", on=on)
        host, port = re.fullmatch(r"echo server on (\S+) port (\d+)\n", process.stdout.readline()).groups()
        return process, (host, int(port))

    def stop(self, process, number=signal.SIGTERM):
        process.send_signal(number)
        assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
        assert process.returncode == 0

    def receive(self, sock, count):
        data = bytearray()
        while len(data) < count:
            chunk = sock.recv(65536)
            assert chunk, f"the connection ended after {len(data)} of {count} bytes"
            data += chunk
        return bytes(data)

    def test_many_clients(self, impl, programs):
        process, address = self.start(programs, impl.name)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(50)]
            for turn in range(3):
                for number, client in enumerate(clients):
                    client.sendall(b"%d of client %d\n" % (turn, number))
                for number, client in reversed(list(enumerate(clients))):
                    expected = b"%d of client %d\n" % (turn, number)
                    assert self.receive(client, len(expected)) == expected
            clients[0].shutdown(socket.SHUT_WR)
            assert clients[0].recv(1) == b""
        self.stop(process)

    def test_much_data_and_a_client_that_does_not_read(self, impl, programs):
        process, address = self.start(programs, impl.name)
        with socket.create_connection(address) as lazy, socket.create_connection(address, timeout=30) as client:
            lazy.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    lazy.send(b"x" * 65536)
            data = os.urandom(1 << 20) * 4
            sender = threading.Thread(target=client.sendall, args=(data,))
            sender.start()
            try:
                assert self.receive(client, len(data)) == data
            finally:
                sender.join()
        self.stop(process)

    def test_client_that_resets_its_connection(self, impl, programs):
        process, address = self.start(programs, impl.name)
        for _ in range(10):
            with socket.create_connection(address) as rude:
                rude.sendall(b"x" * 100_000)
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        with socket.create_connection(address, timeout=30) as client:
            client.sendall(b"still there?")
            assert self.receive(client, 12) == b"still there?"
        self.stop(process)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ends_with_clients_connected(self, impl, programs, number):
        process, address = self.start(programs, impl.name)
        with socket.create_connection(address, timeout=30) as client:
            client.sendall(b"hello")
            assert self.receive(client, 5) == b"hello"
            self.stop(process, number)
            assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)

    @pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can limit another process's descriptors")
    def test_goes_on_when_descriptors_run_out(self, impl, programs):
        process, address = self.start(programs, impl.name)
        used = max(int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir()) + 1
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 2, used + 2))
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(5)]
            clients[0].sendall(b"first")
            assert self.receive(clients[0], 5) == b"first"
            for client in clients[:4]:
                client.close()
            clients[4].sendall(b"fifth")
            assert self.receive(clients[4], 5) == b"fifth"
        self.stop(process)

    def test_port_in_use(self, programs):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, line = programs.failure("echo_server.py", f"--port={port}")
        assert (code, f"cannot listen on 127.0.0.1:{port}" in line) == (1, True)


# ---- The demonstration ----


SMALL = ("--pages=30", "--delay=0.01", "--rounds=1")


@needs_proc
@needs_aiohttp
@pytest.mark.only("c", reason="the demonstration starts all implementations itself, the compiled one among them")
class TestDemo:
    def test_small(self, impl, programs):
        done = programs.run("demo.py", *SMALL)
        assert (done.returncode, done.stderr) == (0, ""), done
        stages = re.findall(r"^(\d) .* (-|hotloop c) +[\d.]+ +[\d.]+ +[\d.]+$", done.stdout, re.MULTILINE)
        assert stages == [(str(number), "-" if number < 5 else "hotloop c") for number in range(1, 10)]
        rows = re.findall(
            r"^(asyncio|hotloop c|hotloop python) +30 +\S+ +\S+ +\S+ +([\d,]+) +5$", done.stdout, re.MULTILINE
        )
        assert [name for name, _ in rows] == ["asyncio", "hotloop c", "hotloop python"]
        assert len({size for _, size in rows}) == 1
        assert done.stdout.endswith("\nAll three found the same 30 pages.\n")
        programs.assert_all_gone()

    @pytest.mark.parametrize(
        "moment",
        [
            "hotloop 0",
            "1 blocking",
            "2 process",
            "3 thread",
            "4 busy",
            "5 callbacks",
            "8 async",
            "9 aiohttp",
            "taking turns",
        ],
    )
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ended_by_a_signal(self, impl, programs, moment, number):
        process = programs.start("demo.py", "--delay=0.05", process_group=0)
        read_until(process.stdout, moment)
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)
        assert (process.returncode, err) == (128 + number, "")
        programs.assert_all_gone()

    def test_leaves_nothing_behind_even_if_it_is_killed(self, impl, programs):
        process = programs.start("demo.py", "--delay=0.1")
        read_until(process.stdout, "2 process")
        process.kill()
        process.wait()
        programs.assert_all_gone()


def read_until(stream, text):
    """Read a program's output until `text` is in it; the rest stays unread."""
    seen = b""
    while text.encode() not in seen:
        chunk = os.read(stream.fileno(), 4096)
        assert chunk, f"the program ended without having said {text!r}: {seen!r}"
        seen += chunk


@needs_aiohttp
def test_demo_without_the_extension(programs, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['hotloop._c.ready'] = None\n")
    programs.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), programs.environ.get("PYTHONPATH", "")])
    code, line = programs.failure("demo.py", *SMALL)
    assert (code, "needs hotloop's compiled extension" in line) == (1, True)


def test_demo_tells_when_the_loops_disagree(programs):
    program = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import common, demo
sys.argv = ["demo.py"]
right, wrong = {{"found": ["/", "/1"]}}, {{"found": ["/", "/2", "/3"]}}
reports = {{"asyncio": [right, right], "hotloop c": [right, wrong], "hotloop python": [right, right]}}
common.run(lambda: demo.check_same_pages(reports, PAGES))
"""
    for pages, message in (
        (2, "hotloop c found other pages than asyncio: 1 missing, 2 more (/1, /2, /3)"),
        (3, "asyncio found 2 of the site's 3 pages"),
    ):
        source = program.replace("PAGES", str(pages))
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=programs.environ)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"demo.py: {message}\n")


def test_demo_with_bad_arguments(programs):
    for arguments in (["--pages=0"], ["--rounds=0"], ["--delay=never"], ["extra"]):
        assert programs.failure("demo.py", *arguments)[0] == 2


# ---- Ctrl-C and SIGTERM ----


def wait_until(condition):
    deadline = time.monotonic() + SECONDS_BEFORE_A_PROGRAM_HANGS
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not come"
        time.sleep(0.01)


@needs_proc
class TestSignals:
    @pytest.mark.parametrize("stage", [*RAW_STAGES, *SELECTOR_STAGES, LOOP_STAGE])
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_stage(self, programs, stage, number):
        site, url = start_site(programs, "--delay=1")
        process = programs.start(stage, "--url", url, "--pages=10", process_group=0)
        wait_until(lambda: is_connected_to(url))
        os.killpg(process.pid, number)  # as a terminal does: to all processes of the group
        assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
        assert process.returncode == 128 + number
        site.kill()
        programs.assert_all_gone()

    @needs_aiohttp
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_crawler(self, impl, programs, number):
        site, url = start_site(programs, "--delay=30")
        process = programs.start(CRAWLER, "--url", url, on=impl.name, process_group=0)
        wait_until(lambda: is_connected_to(url))
        os.killpg(process.pid, number)
        assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
        assert process.returncode == 128 + number
        site.kill()
        programs.assert_all_gone()

    @pytest.mark.parametrize("stage", ["01_blocking.py", LOOP_STAGE])
    def test_stage_with_a_site_of_its_own(self, programs, stage):
        process = programs.start(stage, "--delay=30", process_group=0)
        wait_until(lambda: any("site.py" in line for line in programs.left_behind().values()))
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
        assert process.returncode == 130
        programs.assert_all_gone()

    def test_site_ends_even_if_the_stage_is_killed(self, programs):
        process = programs.start("01_blocking.py", "--delay=30")
        wait_until(lambda: any("site.py" in line for line in programs.left_behind().values()))
        process.kill()
        process.wait()
        programs.assert_all_gone()


def is_connected_to(url):
    """Whether anybody is; the site itself would tell as slowly as it answers everything else."""
    _, port = split_address(url)
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(local.endswith(f":{port:04X}") and state == "01" for _, local, _, state, *_ in lines)
