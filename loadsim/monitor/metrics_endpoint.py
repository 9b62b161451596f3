"""HTTP endpoints with metrics in the text format of Prometheus or OpenMetrics: fetched with limits, and read."""

from __future__ import annotations

import http.client
import re
import ssl
from contextlib import closing
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from loadsim.errors import ConfigError
from loadsim.model.host_port import is_loopback
from loadsim.monitor.probe_values import text_of
from loadsim.passwords import from_file

MOST_BYTES = 4 << 20

LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"'
_LABEL = re.compile(rf"{LABEL}[ \t]*(,[ \t]*|(?=\}}))")
Labels = frozenset[tuple[str, str]]
"""Names and values of labels."""
NO_LABELS: Labels = frozenset()

_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def samples_of(name: str, page: str, labels: Labels = NO_LABELS) -> list[tuple[dict[str, str], str]]:
    """Return labels and value of each sample of a metric that has these labels, in the order of the page.

    The page is in the text format 0.0.4 or that of OpenMetrics 1.0. Raises `ValueError` for a line in another.
    """
    lines = re.findall(rf"^[ \t]*{re.escape(name)}(?=[{{ \t])([^\n]*)", page, re.MULTILINE)
    # Reading the labels of 50,000 samples takes 0.3 s, and this a tenth of it.
    for _, value in labels:
        quoted = '"' + value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
        lines = [line for line in lines if quoted in line]
    return [found for line in lines if labels <= (found := _sample(name, line))[0].items()]


def _sample(name: str, line: str) -> tuple[dict[str, str], str]:
    rest = line.lstrip(" \t")
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        labels, end = labels_at(rest, 1)
        if rest[end : end + 1] != "}":
            raise ValueError(f"expected the samples of {name} in the text format, found a line in another")
        rest = rest[end + 1 :]
    value, *_ = [*rest.split(maxsplit=1), ""]  # a time and an exemplar may follow
    return labels, value


def labels_at(text: str, at: int) -> tuple[dict[str, str], int]:
    """Return the labels from this position on, which is behind the brace, and the position behind the last one."""
    at += len(text) - at - len(text[at:].lstrip(" \t"))
    labels: dict[str, str] = {}
    while label := _LABEL.match(text, at):
        labels[label[1]] = re.sub(r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), label[2])
        at = label.end()
    return labels, at


class MetricsEndpoint:
    """The address of metrics. It is asked directly: without the environment's proxies, and without redirections.

    `url` is http or https, and has no password; with https, the certificate is verified against the authorities of the
    system or those in `ca_file`. The line in `token_file` is sent as bearer token (RFC 6750 section 2.1).
    """

    def __init__(self, url: object, limit_s: float, token_file: object = None, ca_file: object = None) -> None:
        """Check the settings, and that the files can be read. Raises `ConfigError`."""
        parts = _parts(text_of("url", url, "an address such as http://127.0.0.1:9900/metrics"))
        self._limit_s = limit_s
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = _context(ca_file) if parts.scheme == "https" else None
        self._token_path = None if token_file is None else Path(text_of("token_file", token_file, "the path of a file"))
        if self._token_path is not None and self._tls is None and not is_loopback(self._host):
            raise ConfigError("token_file: expected an address with https, found http to another machine")
        self._token()

    def page(self) -> str:
        """Return the text of the endpoint. Raises `OSError` or `ConfigError`, which show nothing of a token or answer.

        The time limit is that of the connection, and of each wait for more of the answer.
        """
        token = self._token()
        headers = {"Accept": "text/plain", "Connection": "close", "User-Agent": "loadsim"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        try:
            with closing(self._connection()) as connection:
                connection.request("GET", self._target, headers=headers)
                with connection.getresponse() as response:
                    if response.status != http.HTTPStatus.OK:
                        raise OSError(f"expected HTTP status 200, found {response.status}")
                    content = response.read(MOST_BYTES + 1)
                    if len(content) > MOST_BYTES:
                        raise OSError(f"expected at most {MOST_BYTES >> 20} MiB, found more")
                    if response.length or not content.endswith(b"\n"):
                        raise OSError("expected a whole page, which ends with a line, found a part of it")
        except TimeoutError:
            raise TimeoutError(f"expected an answer within {self._limit_s:g} s, found none, or a part of it") from None
        except http.client.HTTPException as error:
            raise OSError(
                f"expected an answer in HTTP, found another or a part of it ({type(error).__name__})"
            ) from None
        return content.decode("utf-8", "replace")

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._limit_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._limit_s, context=self._tls)

    def _token(self) -> str | None:
        """Return the token in its file, which may change; None without a file. Raises `ConfigError`."""
        if self._token_path is None:
            return None
        token = from_file(self._token_path, "token_file")
        if not token.isascii():
            raise ConfigError("token_file: expected ASCII characters, found others")
        return token


def _parts(url: str) -> SplitResult:
    """Return the parts of an address. Raises `ConfigError`, which does not show it: it may have a password."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not re.fullmatch("[!-~]+", url):
        raise ConfigError("url: expected an address such as http://127.0.0.1:9900/metrics, found something else")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("url: expected an address without user and password, found one with them: use token_file")
    return parts


def _context(ca_file: object) -> ssl.SSLContext:
    path = None if ca_file is None else text_of("ca_file", ca_file, "the path of a file")
    try:
        return ssl.create_default_context(cafile=path)
    except OSError:
        raise ConfigError("ca_file: expected a file with certificates, found none that can be read") from None
