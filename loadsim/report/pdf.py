"""A page as PDF, printed by a Chromium that is installed: without a network, in a profile that is removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from loadsim.errors import ConfigError, printable

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""The programs that print a page, the first one on the PATH."""

LONGEST_S = 120.0
"""Printing is given up after this time; a report of a run takes 2 s."""

ENDING_S, POLL_S = 2.0, 0.01
"""The longest wait for killed helpers, and the interval of looks."""

LONGEST_PARENT = 40
"""The longest path of a directory for temporary files, in characters: Chromium makes a socket 62 characters below it,
and the path of a socket has at most 107 (unix(7))."""

HEADLESS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pdf-header-footer",
)

OFFLINE = (
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://127.0.0.1:9",
)
"""No name is resolved, and every connection goes to a port of this machine where nothing listens (discard, RFC 863)."""

FATAL = ":FATAL:"
"""Marks the line in which Chromium states why it ended; warnings may follow."""

NO_SANDBOX = "--no-sandbox"
"""Chromium refuses a sandbox to root, and finds none in most containers. The page has no script that could use it."""


def find_browser(option: str) -> str:
    """Return the path of a browser. Raises `ConfigError` if none is installed; `option` asked for the PDF."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise ConfigError(
        f"{option}: expected a browser that prints PDF on the PATH, found none of {', '.join(BROWSERS)};"
        " install Chromium (Debian: apt install chromium), or print the HTML report"
    )


def to_pdf(page: str, option: str, longest_s: float = LONGEST_S) -> bytes:
    """Return an HTML page as PDF. Raises `ConfigError` without a browser, or if it makes no PDF in time."""
    browser = find_browser(option)
    parent = gettempdir()
    if len(parent) > LONGEST_PARENT:
        parent = "/tmp"  # noqa: S108 - a directory of a random name is made there, for this user only
    with TemporaryDirectory(prefix="loadsim-", dir=parent) as place:
        written, printed = Path(place, "page.html"), Path(place, "page.pdf")
        written.write_text(page, encoding="utf-8")
        sandboxes: list[tuple[str, ...]] = [(), (NO_SANDBOX,)] if os.geteuid() else [(NO_SANDBOX,)]
        why = ""
        for sandbox in sandboxes:
            command = [
                browser,
                *HEADLESS,
                *OFFLINE,
                *sandbox,
                f"--user-data-dir={Path(place, 'profile')}",
                f"--print-to-pdf={printed}",
                written.as_uri(),
            ]
            why = _run(command, Path(place), longest_s)
            if printed.is_file() and (pdf := printed.read_bytes()).startswith(b"%PDF-"):
                return pdf
    raise ConfigError(f"{option}: expected a PDF from {browser}, found none: {printable(why)}")


def _run(command: list[str], place: Path, longest_s: float) -> str:
    """Run a browser with its files below `place`, and return the last line of its errors."""
    log = place / "errors.txt"
    own = {name: str(place) for name in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")}
    with log.open("wb") as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - a program of the user's PATH
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **own},
                cwd=place,
                start_new_session=True,
            )
        except OSError as failure:
            return failure.strerror or "it does not start"
        try:
            process.wait(longest_s)
        except subprocess.TimeoutExpired:
            return f"it did not end within {longest_s:g} s"
        finally:  # also after Ctrl-C
            _end(process)
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    lines = [line for line in lines if FATAL in line] or lines
    return lines[-1] if lines else f"exit status {process.returncode}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a browser and its helpers, which are its process group, and wait until they write no more files."""
    given_up_s = time.monotonic() + ENDING_S
    with suppress(ProcessLookupError):
        while time.monotonic() < given_up_s:
            os.killpg(process.pid, signal.SIGKILL)
            process.poll()
            time.sleep(POLL_S)
    process.wait()
