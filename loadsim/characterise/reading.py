"""Reading logs: each line goes to the parser of its program, or is counted as another's or as unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadsim.characterise.dovecot import DovecotLog
from loadsim.characterise.exchange import ExchangeLog
from loadsim.characterise.files import MailLog, examine, in_order
from loadsim.characterise.postfix import DAEMONS, PostfixLog
from loadsim.characterise.shapes import UnknownLines
from loadsim.characterise.traffic import Traffic
from loadsim.errors import ConfigError

MOST_REPEATS = 10_000

_SYSLOG = re.compile(r"(\S+) ([\w./-]+)(?:\[(\d+)\])?: (?:\[ID \d+ [\w.]+\] )?(.*)")  # Solaris has ids
_RFC5424 = re.compile(r"(\S+) (\S+) (\S+) \S+ (?:-|\[.*?\])(?: (?:\xef\xbb\xbf)?(.*))?$")
_REPEATED = re.compile(r"message repeated (\d{1,9}) times: \[ ?(.*)\]$")


@dataclass(slots=True)
class LogReading:
    """The result of reading: the traffic, the lines by use, and the first and last time."""

    traffic: Traffic = field(default_factory=Traffic)
    unknown: UnknownLines = field(default_factory=UnknownLines)
    files: int = 0
    size_bytes: int = 0
    lines: int = 0
    foreign: int = 0
    first: int | None = None
    last: int = 0
    yearless: bool = False


def read_logs(paths: Sequence[Path], progress: Callable[[float], object] = lambda _: None) -> LogReading:
    """Read logs of Postfix, Dovecot and Exchange. Raises `ConfigError` if one cannot be read, or has no mail."""
    files = examine(paths)
    reading = LogReading(files=len(files), size_bytes=sum(file.size_bytes for file in files))
    traffic, unknown = reading.traffic, reading.unknown
    postfix, dovecot, exchange = PostfixLog(traffic), DovecotLog(traffic), ExchangeLog(traffic)
    hour = traffic.hour(0)
    hour_ends = 0
    for file, (when, text, structured) in in_order(files, progress):
        reading.lines += 1
        if file.is_exchange:
            if not exchange.line(str(file.path), when, text):
                unknown.add(text)
            elif when is not None:
                traffic.software["Exchange"] += 1
        elif when is None:
            if text.strip():
                unknown.add(text)
            continue
        else:
            _syslog(reading, postfix, dovecot, when, text, structured)
        if when is not None:
            if not hour_ends - 3600 <= when < hour_ends:
                hour, hour_ends = traffic.hour(when), (when // 3600 + 1) * 3600
            hour.lines += 1
            reading.first = when if reading.first is None else min(reading.first, when)
            reading.last = max(reading.last, when)
    postfix.end()
    exchange.end()
    traffic.hours.pop(0, None)
    traffic.settle()
    reading.yearless = any(file.yearless for file in files)
    _check(files, reading)
    return reading


def _syslog(
    reading: LogReading, postfix: PostfixLog, dovecot: DovecotLog, when: int, text: str, structured: bool
) -> None:
    """Take a line of syslog, or of Dovecot's own log, which has neither host nor program."""
    traffic = reading.traffic
    found = (_RFC5424 if structured else _SYSLOG).match(text)
    if found is None or (not structured and found[1].endswith(":")):
        known, software = dovecot.line(when, text), "Dovecot"
    else:
        host, program, process, message = found[1], found[2], found[3] or "", found[4] or ""
        daemon = program.rpartition("/")[2]
        is_postfix = "/" in program and daemon in DAEMONS  # others, such as postfix/policy-spf, have no figures
        if not is_postfix and not program.startswith("dovecot"):
            reading.foreign += 1
            return
        times, software = 1, "Postfix" if is_postfix else "Dovecot"
        if message.startswith("message repeated ") and (repeated := _REPEATED.match(message)):
            times, message = min(int(repeated[1]), MOST_REPEATS), repeated[2]
        known = True
        for _ in range(times):
            known = postfix.line(when, host, daemon, process, message) if is_postfix else dovecot.line(when, message)
    if known:
        traffic.software[software] += 1
    else:
        reading.unknown.add(text)


def _check(files: Sequence[MailLog], reading: LogReading) -> None:
    names = str(files[0].path) if len(files) == 1 else f"{len(files)} logs"
    mailboxes = reading.traffic.mailboxes.values()
    if any(mailbox.sent or mailbox.received for mailbox in mailboxes):
        return
    found = f"{reading.lines:,} lines, {reading.foreign:,} of other programs, {reading.unknown.lines:,} unknown"
    if any(mailbox.log_ons for mailbox in mailboxes):
        raise ConfigError(f"{names}: expected mail, found log-ons only: add the log of the same days of Postfix")
    shapes = reading.unknown.most_common(1)
    also = f", such as {shapes[0][0]!r}" if shapes else ""
    raise ConfigError(
        f"{names}: expected mail delivered to mailboxes, or sent by their users, found none in {found}{also}"
    )
