"""HTTP endpoints with metrics in Prometheus' or OpenMetrics' text format, fetched and parsed within limits."""

from __future__ import annotations

import re
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import SplitResult, urlsplit

from loadsim.errors import ConfigError
from loadsim.monitor.probe_values import text_of

MOST_BYTES = 4 << 20

LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"'
_LABEL = re.compile(rf"{LABEL}[ \t]*(,[ \t]*|(?=\}}))")
Labels = frozenset[tuple[str, str]]
"""Names and values of labels."""

_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def samples_of(name: str, page: str, labels: Labels = frozenset()) -> list[tuple[dict[str, str], str]]:
    """Return the labels and value of each of a metric's samples that have these labels, in the order of the page.

    The page is in text format 0.0.4 or OpenMetrics 1.0. Raises `ValueError` for a line in another format.
    """
    lines = re.findall(rf"^[ \t]*{re.escape(name)}(?=[{{ \t])([^\n]*)", page, re.MULTILINE)
    # Parsing the labels of 50,000 samples takes 0.3 s, this filter a tenth of that.
    for _, value in labels:
        quoted = '"' + value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
        lines = [line for line in lines if quoted in line]
    return [sample for line in lines if labels <= (sample := _sample(name, line))[0].items()]


def _sample(name: str, line: str) -> tuple[dict[str, str], str]:
    rest = line.lstrip(" \t")
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        labels, end = labels_at(rest, 1)
        if rest[end : end + 1] != "}":
            raise ValueError(f"expected the samples of {name} in the text format, found a line in another")
        rest = rest[end + 1 :]
    value, *_ = [*rest.split(maxsplit=1), ""]  # a timestamp and an exemplar may follow
    return labels, value


def labels_at(text: str, at: int) -> tuple[dict[str, str], int]:
    """Return the labels from this position, just after the brace, and the position after the last one."""
    at += len(text) - at - len(text[at:].lstrip(" \t"))
    labels: dict[str, str] = {}
    while label := _LABEL.match(text, at):
        labels[label[1]] = re.sub(r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), label[2])
        at = label.end()
    return labels, at


def address_of(url: object) -> SplitResult:
    """Return an address's parts. Raises `ConfigError`, which does not show the address, as it may have a password."""
    expected = "an address such as http://127.0.0.1:9900/metrics"
    text = text_of("url", url, expected)
    try:
        parts = urlsplit(text)
        good = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not re.fullmatch("[!-~]+", text):
        raise ConfigError(f"url: expected {expected}, found something else")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("url: expected an address without user and password, found one with them")
    return parts


def fetched_page(address: SplitResult, limit_s: float) -> str:
    """Return an endpoint's page. Raises `OSError`, which shows nothing of the answer.

    It is fetched directly, without the environment's proxies and without redirects. The time limit applies to
    connecting and to each wait for more of the answer.
    """
    target = (address.path or "/") + (f"?{address.query}" if address.query else "")
    headers = {"Accept": "text/plain", "Connection": "close", "User-Agent": "loadsim"}
    try:
        with closing(HTTPConnection(address.hostname or "", address.port or 80, timeout=limit_s)) as connection:
            connection.request("GET", target, headers=headers)
            with connection.getresponse() as response:
                if response.status != HTTPStatus.OK:
                    raise OSError(f"expected HTTP status 200, found {response.status}")
                content = response.read(MOST_BYTES + 1)
                if len(content) > MOST_BYTES:
                    raise OSError(f"expected at most {MOST_BYTES >> 20} MiB, found more")
                if response.length or not content.endswith(b"\n"):
                    raise OSError("expected a whole page, which ends with a line, found a part of it")
    except TimeoutError:
        raise TimeoutError(f"expected an answer within {limit_s:g} s, found none, or a part of it") from None
    except HTTPException as error:
        kind = type(error).__name__
        raise OSError(f"expected an answer in HTTP, found another or a part of it ({kind})") from None
    return content.decode("utf-8", "replace")
