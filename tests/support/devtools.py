"""A page in headless Chromium that a test controls by the DevTools protocol, over a pipe.

Source: https://chromedevtools.github.io/devtools-protocol/. Messages are JSON, each ends with a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser import BROWSER
from patience import PATIENCE_S


class Browser:
    """A running Chromium, and what its pages complained of or asked for."""

    def __init__(self, write_to: int, read_from: int) -> None:
        self._write_to = write_to
        self._read_from = read_from
        self._unread = b""
        self._calls = 0
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self._loaded: set[str] = set()  # the sessions whose page is complete

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Call a method, and return its result; events that come before it are noted."""
        self._calls += 1
        message: dict[str, Any] = {"id": self._calls, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._received()
            if answer.get("id") == self._calls:
                assert "error" not in answer, (method, answer["error"])
                result = answer["result"]
                assert isinstance(result, dict)
                return result
            self._note(answer)

    def _received(self) -> dict[str, Any]:
        until_s = time.monotonic() + PATIENCE_S
        while b"\0" not in self._unread:
            assert select.select([self._read_from], [], [], until_s - time.monotonic())[0], "the browser is silent"
            piece = os.read(self._read_from, 1 << 16)
            assert piece, "the browser has exited"
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        found = json.loads(message)
        assert isinstance(found, dict)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded.add(event["sessionId"])
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(str(params["entry"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(params["args"]))

    def load(self, method: str, session: str, **params: Any) -> None:
        """Call a method that loads a page, and return when it is complete."""
        self._loaded.discard(session)
        self.call(method, session, **params)
        while session not in self._loaded:
            self._note(self._received())

    def page(self, url: str, width: int = 1280, height: int = 900, *, dark: bool = False) -> Page:
        """Open a page in front of the others, which are hidden."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        page = Page(self, session)
        page.resize(width, height, dark=dark)
        page.go(url)
        return page


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def go(self, url: str) -> None:
        self._browser.load("Page.navigate", self._session, url=url)

    def reload(self) -> None:
        self._browser.load("Page.reload", self._session)

    def resize(self, width: int, height: int, *, dark: bool) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        """The value of an expression in the page, of a promise when it is kept."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Return when a condition holds in the page."""
        look = f"const look = () => ({condition}) ? done(true) : setTimeout(look, 20)"
        self.value(f"new Promise((done) => {{ {look}; look(); }})")

    def text(self, selector: str = "body") -> str:
        found = self.value(f"document.querySelector({json.dumps(selector)}).innerText")
        assert isinstance(found, str)
        return found

    def picture(self, path: Path, *, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser(*options: str) -> Iterator[Browser]:
    """A Chromium without network but loopback."""
    assert BROWSER is not None
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        command = [
            *("sh", "-c", f'exec "$@" 3</proc/self/fd/{their_in} 4>/proc/self/fd/{their_out}', "sh"),
            BROWSER,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
            "--host-resolver-rules=MAP evil.example 127.0.0.1 , MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
            *options,
            "about:blank",
        ]
        process = subprocess.Popen(
            command,
            pass_fds=(their_in, their_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        try:
            running = Browser(our_out, our_in)
            yield running
            running.call("Browser.close")
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            os.close(our_out)
            os.close(our_in)
