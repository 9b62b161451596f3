"""The `postfix` probe: the queue of a Postfix on this machine, and the deliveries in its log.

The queue is what `postqueue -j` lists (postqueue(1)); the deliveries are the log lines of its delivery agents, read as
bounce(8) and pflogsumm do.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from loadsim.analysis.probes.statistics import ALWAYS_ALLOWED_S
from loadsim.errors import ConfigError
from loadsim.model.ports import Probe, Services
from loadsim.monitor.bounded_command import found_command, output_chunks, output_of
from loadsim.monitor.counter_rates import RisingCounters
from loadsim.monitor.log_tail import LogTail
from loadsim.monitor.probe_values import text_of

HELD = "hold"
"""The queue of messages that an administrator has put on hold."""

QUEUES = ("incoming", "active", "deferred", HELD, "maildrop")

LONGEST_LISTING_S = 30.0
PAUSE_S = ALWAYS_ALLOWED_S / 2
"""The pause after a listing: the queue is listed every third second.

Starting `postqueue` accounts for most of the probe's cost. If the pause grew with the listing, long queues would be
sampled less often than short ones: means would come out too small, and an overloaded server's queue would not be
measured.
"""

LONGEST_MESSAGE_BYTES = 16 << 20
"""The longest line of a listing, as for a message with 100,000 recipients, each with a reason."""
MOST_LISTING_BYTES = 1 << 30
MOST_LOG_BYTES = 16 << 20
"""The most new log bytes in a sample: about 10,000 deliveries."""

LOG_COUNTERS = ("queued", "sent", "deferred", "bounced")
MOST_PROCESSES = 10_000
"""The most cleanup processes whose last message is remembered."""

_TIME = rb"(?:[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d\S*|\d{4}-\d\d-\d\d[T ]\S+)"
# PRI and version as in RFC 5424, the time that `docker logs -t` adds, time, host.
_HEAD = rb"^(?:(?:<\d+>)?1 +)?(?:\d{4}-\S+ +)?" + _TIME + rb" +\S+ +"
_SYSLOG = re.compile(_HEAD, re.MULTILINE)
_PROCESS = rb"[\[ ]+\d+(?:\]:| +\S+ +-) +"  # RFC 5424: PROCID, MSGID, and no structured data
_ADDRESS = rb'<(?:"(?:[^"\\\n]|\\[^\n])*"|[^">\n])*>'


def open_probe(services: Services, config_directory: object = None, log: object = None) -> Probe:
    """Return a function that lists the queue, and reads new lines from the file `log`. Raises `ConfigError`."""
    options: tuple[str, ...] = ()
    if config_directory is not None:
        options = ("-c", text_of("config_directory", config_directory, "the directory of Postfix's main.cf"))
    listing = QueueListing((found_command("postqueue"), *options, "-j"))
    syslog_name = _syslog_name((found_command("postconf"), *options))
    rates = None if log is None else LogRates(Path(text_of("log", log, "the path of Postfix's log")), syslog_name)
    return sample_of(listing, rates)


def sample_of(listing: QueueListing, rates: LogRates | None) -> Probe:
    """Return a function that samples queue and log.

    If a listing fails, the log is not read: the next sample has the rates since the last sample that had any.
    """
    return lambda: listing.sample() | (rates.sample() if rates else {})


def _syslog_name(postconf: Sequence[str]) -> str:
    """Return an instance's name in its log. Raises `ConfigError` if its configuration cannot be read."""
    try:
        name = output_of([*postconf, "-x", "-h", "syslog_name"], LONGEST_LISTING_S, 1 << 16).decode().strip()
    except (OSError, ValueError):
        raise ConfigError("config_directory: expected a main.cf that postconf can read, found that it failed") from None
    if not re.fullmatch(r"[!-~]{1,100}", name):
        raise ConfigError(f"config_directory: expected a syslog_name without blanks, found {name!r:.60}")
    return name


class QueueListing:
    """Lists the queue with a command, and returns no figures during the pause that follows."""

    def __init__(self, command: Sequence[str], pause_s: float = PAUSE_S) -> None:
        self._command = command
        self._pause_s = pause_s
        self._due_s = 0.0

    def sample(self) -> dict[str, float]:
        """Return the figures; none during the pause. Raises `OSError` and `ValueError`."""
        if time.monotonic() < self._due_s:
            return {}
        try:
            with closing(output_chunks(self._command, LONGEST_LISTING_S, MOST_LISTING_BYTES)) as output:
                return queue_figures(lines_of(output), time.time())
        finally:
            self._due_s = time.monotonic() + self._pause_s


def queue_figures(lines: Iterable[bytes], now_s: float) -> dict[str, float]:
    """Return the figures of a listing at the wall-clock instant `now_s`. Raises `ValueError` for any other format."""
    messages, recipients, size_bytes, oldest_s = dict.fromkeys(QUEUES, 0), 0, 0, 0.0
    to_send = 0
    for line in lines:
        try:
            entry = json.loads(line.decode("utf-8", "replace"))
            arrived_s, entry_bytes, to = entry["arrival_time"], entry["message_size"], entry["recipients"]
            messages[entry["queue_name"]] += 1
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ValueError("expected messages as postqueue -j prints them, found something else") from None
        if type(arrived_s) is not int or type(entry_bytes) is not int or not isinstance(to, list):
            raise ValueError("expected time, size and recipients as postqueue -j prints them, found something else")
        recipients += len(to)
        size_bytes += entry_bytes
        if entry["queue_name"] == HELD:
            continue  # it waits for an administrator
        to_send += len(to)
        oldest_s = max(oldest_s, now_s - arrived_s)
    return {f"{queue}_messages": count for queue, count in messages.items()} | {
        "send_queue_messages": sum(count for queue, count in messages.items() if queue != HELD),
        "send_queue_recipients": to_send,
        "recipients": recipients,
        "queue_bytes": size_bytes,
        "oldest_message_s": oldest_s,
    }


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the non-blank lines of an output. Raises `ValueError` for one that is too long."""
    parts: list[bytes] = []
    length = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        length += len(first)
        if length > LONGEST_MESSAGE_BYTES:
            raise ValueError(f"expected lines of at most {LONGEST_MESSAGE_BYTES} bytes, found a longer one")
        if others:
            yield from filter(None, (b"".join(parts), *others[:-1]))
            parts, length = [others[-1]], len(others[-1])
    if last := b"".join(parts):
        yield last


class LogRates:
    """Rates of the messages and deliveries in a log, from its current end on."""

    def __init__(self, path: Path, syslog_name: str) -> None:
        self._tail = LogTail(path, "log", MOST_LOG_BYTES)
        self._counter = LogCounter(syslog_name)
        self._totals: Counter[str] = Counter(dict.fromkeys(LOG_COUNTERS, 0))
        self._counters = RisingCounters()
        self._unread = 0

    def sample(self) -> dict[str, float]:
        lines = self._tail.new_lines()
        at_s = time.monotonic()
        try:
            self._totals.update(self._counter.counts(lines))
        except ValueError:
            self._unread += 1
            raise
        rates = self._counters.rates(self._totals, at_s, (self._tail.skips, self._unread))
        return {f"{name}_per_s": rate for name, rate in rates.items()}


class LogCounter:
    """Counts the messages and deliveries of one instance in lines of a syslog (RFC 3164, with any time, or RFC 5424).

    `queued` counts messages for which cleanup(8) logs a `message-id=`; it may log several for one message. `sent`,
    `deferred` and `bounced` count the `status=` of delivery agents, one per recipient and attempt.
    """

    def __init__(self, syslog_name: str) -> None:
        agent = re.escape(syslog_name.encode()) + rb"(?:/[^/\s\[]+)*/"
        self._agent = re.compile(agent + rb"[a-z]+")
        self._own = re.compile(_HEAD + agent + rb"[a-z]+" + _PROCESS, re.MULTILINE)
        self._pattern = re.compile(
            _HEAD + agent + rb"(?:cleanup(" + _PROCESS + rb")([0-9A-Za-z]+): message-id=|"
            rb"[a-z]+" + _PROCESS + rb"[0-9A-Za-z]+: to=" + _ADDRESS + rb", (?:orig_to=" + _ADDRESS + rb", )?"
            rb"(?:[a-z_]+=[^,\n]*, )*?status=(sent|deferred|bounced) )",
            re.MULTILINE,
        )
        self._last_messages: dict[bytes, bytes] = {}  # the last message of each cleanup process

    def counts(self, lines: bytes) -> Counter[str]:
        """Return the counts of complete lines.

        Raises `ValueError` if they are not from a syslog, or if agents' names are not where a syslog has programs'
        names.
        """
        is_read = self._own.search(lines) or (_SYSLOG.search(lines) and not self._agent.search(lines))
        if lines.strip() and not is_read:
            raise ValueError("expected lines of a syslog, with time, host and program, found others")
        counts: Counter[str] = Counter()
        for process, message, status in self._pattern.findall(lines):
            if status:
                counts[status.decode()] += 1
            elif self._last_messages.get(process) != message:
                if len(self._last_messages) >= MOST_PROCESSES:
                    self._last_messages.clear()
                self._last_messages[process] = message
                counts["queued"] += 1
        return counts
