"""Real runs on a page in a real browser: live figures, foreign pages, and its result."""

import http.server
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from devtools import browser
from patience import PATIENCE_S
from small_runs import written

pytestmark = pytest.mark.nightly(part="tools")

LONG = {"day_length": "4m", "ramp_up": "1s", "warm_up": "1s", "window": "200s"}

FOREIGN = """<!DOCTYPE html><title>foreign</title><iframe src="{url}"></iframe><script>
const headers = {{ Authorization: "Bearer {token}" }}, tries = [
  fetch("{base}state", {{ headers }}).then((found) => found.text()),
  fetch("{base}", {{ mode: "no-cors" }}).then((found) => found.text()),
];
Promise.allSettled(tries).then((all) => {{
  window.found = JSON.stringify(all.map((one) => one.status === "fulfilled" ? one.value : "refused"));
}});
</script>"""


@contextmanager
def foreign_page(text: str) -> Iterator[str]:
    """The address of another site on this machine that shows this page."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        serving.join()


@contextmanager
def watched(tmp_path: Path, *options: str, **document: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run in a process of its own, and the address of its page; it gets no signal but from the test."""
    path = written(tmp_path / "small.yaml", **document)
    command = [sys.executable, "-m", "loadsim", "run", "--web", "0", "--out", str(tmp_path / "out"), *options]
    with subprocess.Popen([*command, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.fullmatch(r"Watch: (http://127\.0\.0\.1:\d+/#\S+)\n", process.stderr.readline())
        assert found is not None
        try:
            yield process, found[1]
        finally:
            process.kill()


def test_a_run_is_shown_in_a_browser(tmp_path: Path) -> None:
    """Figures grow, another site reads nothing, and after Ctrl-C the page has the verdict."""
    with watched(tmp_path, "--no-report", "--quiet", run=LONG) as (process, url), browser() as chromium:
        shown = chromium.page(url)
        shown.wait_for("points.length > 3")
        assert "6 of 6 on" in shown.text("#figures")
        assert "event loop" in shown.text("#figures")
        assert "planned until now" in shown.text("#figures")
        shown.wait_for("document.getElementById('rows').textContent.includes('READ')")
        assert not re.search(r"\bvalid\b|criteria met", shown.text(), re.IGNORECASE)
        assert chromium.complaints == []

        # Another site, even one that knows the token, and one whose name resolves to this address.
        base, _, token = url.partition("#")
        with foreign_page(FOREIGN.format(url=url, base=base, token=token)) as elsewhere:
            foreign = chromium.page(elsewhere)
            foreign.wait_for("window.found")
            reading, page = json.loads(foreign.value("window.found"))
            assert reading == "refused"
            assert page in ("", "refused")
        assert process.poll() is None
        shown.call("Page.bringToFront")
        assert shown.value("document.getElementById('phase').textContent") == "window"

        # The end.
        chromium.complaints.clear()
        chromium.requested.clear()
        process.send_signal(signal.SIGINT)
        shown.wait_for("over")
        assert shown.text("#verdict").startswith("\u00d7 Invalid")
        assert "[stopped]" in shown.text("#reasons")
        assert str(tmp_path / "out") in shown.text("#place")
        assert shown.value("document.querySelectorAll('main a').length") == 0
        printed, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 3
        assert "[stopped]" in printed
        assert errors == ""
        assert chromium.complaints == []
        assert {re.sub(r"\?.*", "", address) for address in chromium.requested} <= {f"{base}state"}
    assert json.loads((tmp_path / "out" / "score.json").read_text())["verdict"]["validity"] == "invalid"
