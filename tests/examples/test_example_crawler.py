"""Stage 9: the crawler finds every page once, whatever the redirects, loops and errors on its way."""

import os
import re
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from example_programs import (
    CRAWLER,
    SECONDS_BEFORE_A_PROGRAM_HANGS,
    SITE_PAGES,
    check_loop,
    needs_aiohttp,
    page_sizes,
    requests_seen,
    start_site,
)

pytestmark = needs_aiohttp


@pytest.fixture
def made_site():
    """Serves the `routes` that a test sets: path -> (status, body or Location). Counts requests by path."""

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
            """Do not log: requests are counted instead."""

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


def test_finds_every_page_of_the_site(impl, programs, site):
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


def test_fetches_nothing_twice_and_no_more_at_once_than_it_has_workers(impl, programs):
    _, url = start_site(programs, f"--pages={SITE_PAGES}", "--delay=0.02")
    programs.report(CRAWLER, "--url", url, "--workers=3", on=impl.name)
    seen = requests_seen(url)
    # aiohttp itself repeats a request if a connection that it had used before is closed without an answer.
    requests = {path: count for path, count in seen["requests"].items() if path != "/broken/close"}
    assert set(requests.values()) == {1}
    assert requests.keys() >= {f"/merge/{number}/1" for number in (11, 12)}
    assert 2 <= seen["most_at_once"] <= 3
    # Connections are reused. Only the three without a good answer may have cost one.
    assert seen["connections"] <= 3 + 4


def test_follows_as_many_redirects_as_allowed(programs, made_site):
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


def test_limit_holds_for_each_address_that_is_linked_to(programs, made_site):
    """/r1 is reached first with no redirect left, but a link leads to it as well, and then it has its own limit."""
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


def test_redirects_to_one_page_merge(impl, programs, made_site):
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


def test_redirect_loops(impl, programs, made_site):
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


def test_errors_stay_with_their_address(impl, programs, made_site):
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


def test_stays_on_its_site(programs, made_site):
    elsewhere = ("http://elsewhere.invalid/", "//elsewhere.invalid/x", "mailto:a@example.org", "javascript:void(0)")
    made_site.routes = {
        "/": (200, links(*elsewhere, "/away", "/page")),
        "/away": (302, "http://elsewhere.invalid/"),
        "/page": (200, '<A class="x" HREF=/more?a=1&amp;b=2>more</A>'),
        "/more?a=1&b=2": (200, ""),
    }
    report = programs.report(CRAWLER, "--url", made_site.url)
    assert (paths_of(made_site, report["found"]), report["errors"]) == (["/", "/more?a=1&b=2", "/page"], {})


def test_ends_after_as_many_pages_as_asked_for(impl, programs, site):
    report = programs.report(CRAWLER, "--url", site, "--pages=10", on=impl.name)
    assert (report["pages"], len(report["found"])) == (10, 10)


def test_server_that_cannot_be_reached(impl, programs):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    code, line = programs.failure(CRAWLER, "--url", f"http://127.0.0.1:{port}", on=impl.name)
    assert (code, "found no page" in line, "Cannot connect" in line) == (1, True, True)


def test_site_without_a_page(programs, made_site):
    code, line = programs.failure(CRAWLER, "--url", made_site.url)
    assert (code, "no answer was a page" in line) == (1, True)


def test_alone_it_starts_a_site_and_shows_statistics(programs):
    done = programs.run(CRAWLER, "--site-pages=30", "--delay=0")
    assert (done.returncode, done.stderr) == (0, "")
    first, answers, errors, *lines = done.stdout.splitlines()
    assert first.startswith("30 pages, ")
    assert "3 x 404" in answers
    assert (errors, len(lines)) == ("errors: 5", 5)


def test_bad_arguments(programs):
    for arguments in (["--workers=0"], ["--max-redirects=-1"], ["--pages=0"], ["--url=ftp://example.org"]):
        assert programs.failure(CRAWLER, *arguments)[0] == 2


def test_progress_bar_on_a_terminal_only(programs, site):
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
