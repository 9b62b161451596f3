"""A CalDAV client and server for the scripts in this folder."""

# ruff: noqa: S310, S603  (loopback; the scripts' own commands)

import contextlib
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from email.message import Message

QUERY = """<?xml version="1.0"?>
<C:calendar-query xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav">
<D:prop><C:calendar-data><C:expand start="{0}" end="{1}"/></C:calendar-data></D:prop>
<C:filter><C:comp-filter name="VCALENDAR"><C:comp-filter name="VEVENT"><C:time-range start="{0}" end="{1}"/>
</C:comp-filter></C:comp-filter></C:filter></C:calendar-query>"""


@contextlib.contextmanager
def server(*command: str) -> Iterator[str]:
    """Run a server with {port} in its command, and yield its URL as soon as it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [word.format(port=port) for word in command]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def exchange(method: str, url: str, body: str = "", content: str = "application/xml") -> tuple[Message, str]:
    """Return the header and the body of the answer to a request of anna's."""
    header = {"Content-Type": content, "Depth": "1", "Authorization": "Basic YW5uYTpzZWNyZXQ="}
    request = urllib.request.Request(url, body.encode(), header, method=method)
    with urllib.request.urlopen(request) as answer:
        return answer.headers, answer.read().decode()


def ask(method: str, url: str, body: str = "") -> str:
    return exchange(method, url, body)[1]


def put(calendar: str, uid: str, *events: str) -> tuple[str, Message]:
    """Store a calendar object with these events, whose lines are separated by spaces. Return it, and the answer."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//example.test//EN"]
    for event in events:
        lines += ["BEGIN:VEVENT", f"UID:{uid}", "DTSTAMP:20260101T000000Z", *event.split(), "END:VEVENT"]
    text = "\r\n".join((*lines, "END:VCALENDAR", ""))
    return text, exchange("PUT", f"{calendar}{uid}.ics", text, "text/calendar")[0]


def expand(calendar: str, day: int) -> list[str]:
    """Return the occurrences on a day of March 2026, as the server expands them (RFC 4791, section 9.6.5)."""
    answer = ask("REPORT", calendar, QUERY.format(f"202603{day:02}T000000Z", f"202603{day + 1:02}T000000Z"))
    events = re.findall("BEGIN:VEVENT.*?END:VEVENT", answer, re.DOTALL)
    values = [[re.search(rf"\b{key}[^\s:]*:(\w+)", event)[1] for key in ("UID", "DTSTART")] for event in events]
    return sorted(" ".join(pair) for pair in values)
