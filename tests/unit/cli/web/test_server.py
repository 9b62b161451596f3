"""The server of the page: whom it answers, what it refuses, and how long it waits."""

import json
import re
import socket
import threading
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from growing_runs import second
from live_snapshots import WORK
from patience import PATIENCE_S
from run_states import summary_of
from web_pages import TOKEN, Served, page_view, scenario, served

from loadsim.cli.live.figures import LiveRun
from loadsim.cli.web.publish import shown_page
from loadsim.cli.web.server import MOST_CONNECTIONS
from loadsim.errors import ConfigError

DATA = ("quickstart", "small", "window", "users on", "READ", TOKEN)


def load(live: LiveRun, *seconds: int) -> None:
    live.stage("load")
    for at_s in seconds:
        live.snapshot(second(at_s, 10 * at_s), {})


def test_the_page_has_no_data_and_loads_no_other_address(tmp_path: Path) -> None:
    """Anyone who reaches the server may read it: figures, names and token are not in it, and no other address is."""
    with served(page_view()) as page:
        load(page.live, 61, 62)
        status, headers, text = page.ask("GET", "/", {"Authorization": None})
    assert status == 200
    assert not [word for word in ("small", TOKEN, "embedded") if word in text]
    assert re.findall(r"https?://[^\"'\s]+", text) == ["http://www.w3.org/2000/svg"]  # the name of a namespace
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["Cache-Control"] == "no-store"
    assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": "Bearer \xff\xfe"}, 401),
    ],
)
def test_the_state_needs_the_pages_token(headers: dict[str, str | None], status: int) -> None:
    """It has the token. Others get a line without data, and no site may read an answer."""
    with served(page_view()) as page:
        load(page.live, 61, 62)
        found, got, text = page.ask("GET", "/state", headers)
        assert found == status
        if status != 200:
            assert not [word for word in DATA if word in text]
        assert not [name for name in got if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/../etc/passwd", 404),
        ("GET", "/state/", 404),
        ("GET", "//[", 404),
        ("GET", "http://127.0.0.1/state", 404),
        ("GET", "/state?page=%ff%00", 404),
        *((method, "/state", 405) for method in ("POST", "OPTIONS", "HEAD", "PUT", "DELETE")),
        ("GET", "/state?version=1", 404),
        ("GET", "/state?page=a&version=1e9", 404),
        ("GET", f"/state?page=a&version={'9' * 40}", 404),
        ("GET", "/state?page=%3Cb%3E&version=1", 404),
        ("GET", "/state?page=a&version=1&other=1", 404),
    ],
)
def test_other_requests_are_rejected(tmp_path: Path, method: str, path: str, status: int) -> None:
    """Neither a path nor a method nor a query that a page does not send."""
    with served(page_view()) as page:
        load(page.live, 61)
        assert page.ask(method, path)[0] == status


def raw(page: Served, *pieces: bytes) -> bytes:
    """Return all that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE_S) as connection:
        found = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            while more := connection.recv(1 << 16):
                found += more
        except (BrokenPipeError, ConnectionResetError):  # unread bytes of ours
            pass
        return found


def test_long_and_broken_requests_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They get an error or nothing, and leave no trace on the terminal."""
    with served(page_view()) as page:
        good = f"GET /state HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
        assert raw(page, good, b"\r\n").startswith(b"HTTP/1.0 200 ")
        long_line = b"X-Long: " + b"x" * 70_000 + b"\r\n\r\n"
        assert raw(page, good, long_line).startswith(b"HTTP/1.0 431 ")
        assert raw(page, b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n")[:10] in (b"HTTP/1.0 4", b"the reques", b"")
        for broken in (
            b"\r\n\r\n",
            b"\0\xff\r\n\r\n",
            b"GET /state\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            b"GET / X/9\r\n\r\n",
        ):
            answer = raw(page, broken) if broken[0] != 0x16 else raw(page, broken, b"\n\n")
            assert b"users" not in answer
    assert capsys.readouterr().err == ""


def test_connections_are_bounded() -> None:
    """One more than allowed is closed at once; after the others have gone, there is room again."""
    with served(page_view()) as page:
        good = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n\r\n".encode()
        idle = [socket.create_connection(("127.0.0.1", page.port), PATIENCE_S) for _ in range(MOST_CONNECTIONS)]
        assert raw(page, good) == b""
        for each in idle:
            each.shutdown(socket.SHUT_WR)
            assert each.recv(1) == b""
            each.close()
        assert raw(page, good).startswith(b"HTTP/1.0 200 ")


def test_a_request_for_the_state_waits_for_a_change(tmp_path: Path) -> None:
    """It is answered when there is some, and the end is news."""
    with served(page_view()) as page:
        version = page.state()["version"]
        answers: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: answers.append(page.state(f"?page=p1&version={version}")))
        asking.start()
        page.live.stage("prepare")
        page.live.prepared("inspect", 3, 6)
        asking.join(PATIENCE_S)
        assert answers[0]["phase"] == "preparing the mailboxes"
        assert page.state()["status"] == "inspect: 3 of 6 accounts"
        version = page.state()["version"]
        last = threading.Thread(target=lambda: answers.append(page.state(f"?page=p1&version={version}")))
        last.start()
        page.view.finish()
        last.join(PATIENCE_S)
        assert answers[1]["finished"]
        assert answers[1]["phase"] == "Ended without a result; the terminal shows why"


def test_the_end_waits_until_an_open_page_has_the_result(tmp_path: Path) -> None:
    """The page is between two requests when the run ends."""
    view = page_view()
    first, last = threading.Event(), []
    with served(view) as page:

        def follow() -> None:
            version = page.state("?page=p1&version=-1")["version"]
            first.set()
            while not last:
                found = page.state(f"?page=p1&version={version}")
                version = found["version"]
                if found["finished"]:
                    last.append(found)

        following = threading.Thread(target=follow)
        following.start()
        assert first.wait(PATIENCE_S)
        summary = summary_of(tmp_path)
        page.live.done(summary, tmp_path / "out")
    following.join(PATIENCE_S)
    assert last[0]["result"] == {
        "verdict": "Valid by relaxed limits, criteria missed",
        "tone": "bad",
        "headline": last[0]["result"]["headline"],
        "reasons": [one.text for one in summary.verdict.missed],
        "directory": str(tmp_path / "out"),
    }
    assert "score" in last[0]["result"]["headline"]


def test_texts_of_the_state_are_bounded_and_printable(tmp_path: Path) -> None:
    """A server that fails each task in its own words, at length and with controls, fills no page."""
    view = page_view()
    words = {f"5{number:05d} \x1b[31m<script>{'x' * 5000}": number for number in range(1, 3000)}
    snapshot = replace(WORK, failures={"SEND": words})
    with served(view) as page:
        page.live.stage("load")
        page.live.snapshot(snapshot, {})
        for number in range(1000):
            page.live.warning(f"warning {number}\x07")
        for number in range(30):
            page.live.sampled(f"command/{number}", {f"a{each}_count": 1e308 for each in range(2000)})
        page.live.snapshot(snapshot, {})
        found = page.state()
    (failures,) = [text for name, text, _ in found["figures"] if name == "Failures"]
    assert failures.endswith("; 2,993 more kinds")
    assert failures.isprintable()
    assert len(json.dumps(found)) < 50_000
    assert len(found["charts"]) == 3 + 24  # of the load, and of probes
    assert (len(found["warnings"]), found["warnings"][-1]) == (20, "warning 999\\x07")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        args = Namespace(web=other.getsockname()[1])
        with pytest.raises(ConfigError, match="found: Address already in use"):
            shown_page(args, scenario()).__enter__()


def test_each_run_has_a_token_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The address is printed, with a token too long to guess behind the #."""
    tokens = set()
    for _ in range(2):
        with shown_page(Namespace(web=0), scenario()):
            found = re.fullmatch(r"Watch: http://127\.0\.0\.1:(\d+)/#([\w-]{43})\n", capsys.readouterr().err)
            assert found is not None
            tokens.add(found[2])
    assert len(tokens) == 2
