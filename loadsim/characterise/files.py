"""The lines of log files, rotated and compressed, in the order of their times."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from calendar import month_abbr, timegm
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from time import gmtime
from typing import BinaryIO, NamedTuple

from loadsim.characterise.shapes import shape
from loadsim.errors import ConfigError
from loadsim.files import open_file

LONGEST_LINE = 1 << 16
"""Longer lines are cut, and the rest is unknown."""

MOST_FILES = 1000
BUFFER_BYTES = 1 << 18
DAY_S = 86_400
_HALF_YEAR_S = 183 * DAY_S
_MONTHS = {name: at for at, name in enumerate(month_abbr)}  # in English: loadsim sets no locale

HEAD = re.compile(
    r"(?:<\d{1,3}>)?(1 )?"
    r"(?:([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d)"
    r"|(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?) (?=\S)"
)
"""The time of a line: RFC 3164, which has no year, or ISO 8601, as RFC 5424, journald and Dovecot write it.

Group 1 is the version of RFC 5424. Offsets from UTC are ignored: hours are those of the server's clock.
"""


class LogLine(NamedTuple):
    """A line: its time, in seconds of the server's clock since 1970, and its text after the time.

    `when` is None if the line has no readable time.
    """

    when: int | None
    text: str
    structured: bool = False


_GZIP, _BZIP2, _XZ, _ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
"""The first bytes of compressed files."""


@dataclass(slots=True)
class MailLog:
    """A log file. `first` is the time of its first line that has one."""

    path: Path
    size_bytes: int
    modified: float
    is_exchange: bool = False
    first: int = 0
    yearless: bool = False
    read_bytes: int = 0
    last: int = field(default=-(1 << 62))

    def lines(self) -> Iterator[str]:
        """Yield the file's lines, without their ends. Raises `ConfigError` if it cannot be read, or is damaged."""
        number = 0
        try:
            with open_file(self.path) as raw, _opened(raw, self.path) as file:
                for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                    if not number & 1023:
                        self.read_bytes = raw.tell()
                    yield line.decode("latin-1").rstrip("\r\n")
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as failure:
            found = getattr(failure, "strerror", None) or "damaged compression, or a file that breaks off"
            line_of = f"line {number + 1}: " if number else ""
            raise ConfigError(f"{self.path}: {line_of}expected a log that can be read, found: {found}") from None
        self.read_bytes = self.size_bytes

    def times(self) -> Callable[[str], LogLine]:
        """Return a function that parses the times of the file's lines, in order."""
        return _Times(self).line


def _opened(raw: BinaryIO, path: Path) -> AbstractContextManager[io.BufferedIOBase | BinaryIO]:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(_GZIP):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw), BUFFER_BYTES)
    if magic.startswith(_BZIP2):
        return bz2.BZ2File(raw)
    if magic.startswith(_XZ):
        return lzma.LZMAFile(raw)
    if magic.startswith(_ZSTD):
        raise ConfigError(f"{path}: expected text, gzip, bzip2 or xz, found zstd: unpack it (zstd -d)")
    return raw


class _Times:
    """Parses the times of a file's lines. It remembers the last one: busy logs have many lines each second.

    A year that is not in the lines is the latest one in which the file's first line precedes the file's last
    modification. It then turns from December to January.
    """

    def __init__(self, file: MailLog) -> None:
        self._file = file
        self._latest = int(file.modified) + 2 * DAY_S  # the server's clock may be in another time zone
        self._year = 0
        self._last_head, self._last_when = "", 0

    def line(self, text: str) -> LogLine:
        head = HEAD.match(text)
        if head is None:
            return LogLine(None, text)
        begun = text[: head.end()]
        if begun != self._last_head:
            _, month, day, clock, date, iso_clock = head.groups()
            try:
                when = _seconds(date, iso_clock) if date else self._without_year(_MONTHS[month], int(day), clock)
            except (ValueError, KeyError):
                return LogLine(None, text)
            self._last_head, self._last_when = begun, when
        return LogLine(self._last_when, text[head.end() :], head[1] is not None)

    def _without_year(self, month: int, day: int, clock: str) -> int:
        file = self._file
        file.yearless = True
        if not self._year:
            year = gmtime(self._latest).tm_year
            while not (valid := _valid(year, month, day)) or _at(year, month, day, clock) > self._latest:
                year -= 1
                if not valid and gmtime(self._latest).tm_year - year > 8:
                    raise ValueError
            self._year = year
            file.last = _at(year, month, day, clock)
        when = _at(self._year, month, day, clock) if _valid(self._year, month, day) else None
        if when is None or when < file.last - _HALF_YEAR_S:  # a new year, also before a leap day
            self._year += 1
            if not _valid(self._year, month, day):
                self._year -= 1
                raise ValueError
            when = _at(self._year, month, day, clock)
        elif when > file.last + _HALF_YEAR_S:  # a line of the old year that came late
            return _at(self._year - 1, month, day, clock)
        if when > self._latest:
            raise ConfigError(
                f"{file.path}: expected lines until the file's last modification ({_date(file.modified)}), found the"
                f" time {_date(when)}: the lines have no year; restore the file's time (touch -d)"
            )
        file.last = max(file.last, when)
        return when


def _date(when: float) -> str:
    now = gmtime(when)
    return f"{now.tm_year}-{now.tm_mon:02}-{now.tm_mday:02}"


def _valid(year: int, month: int, day: int) -> bool:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= day <= (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]


def _at(year: int, month: int, day: int, clock: str) -> int:
    hour, minute, second = int(clock[:2]), int(clock[3:5]), int(clock[6:])
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError(clock)
    return timegm((year, month, day, hour, minute, second))


def _seconds(date: str, clock: str) -> int:
    year, month, day = int(date[:4]), int(date[5:7]), int(date[8:])
    if not 1970 <= year <= 2200 or not 1 <= month <= 12 or not _valid(year, month, day):
        raise ValueError(date)
    return _at(year, month, day, clock)


def examine(paths: Sequence[Path]) -> list[MailLog]:
    """Return the files by the times of their first lines. Raises `ConfigError` for any that is not a log."""
    if len(paths) > MOST_FILES:
        raise ConfigError(f"LOG: expected at most {MOST_FILES:,} files, found {len(paths):,}")
    files: dict[tuple[int, int], MailLog] = {}
    for path in paths:
        try:
            found = path.stat()
        except OSError as failure:
            raise ConfigError(f"{path}: expected a log, found: {failure.strerror}") from None
        files[found.st_dev, found.st_ino] = MailLog(path, found.st_size, found.st_mtime)  # each file once
    return sorted(filter(_examined, files.values()), key=lambda file: file.first)


_SEARCHED = 10_000
"""Lines searched for a first time: a rotated file may begin with torn or foreign lines."""


def _examined(file: MailLog) -> bool:
    """Find the kind of a file, and its first time; return False if it is empty."""
    times, opening = file.times(), None
    for number, text in enumerate(file.lines()):
        opening = text if opening is None else opening
        if number == 0 and text.lstrip("\xef\xbb\xbf").startswith(("#Software: Microsoft Exchange", "#Fields:")):
            file.is_exchange = True
        when = _exchange_time(text) if file.is_exchange else times(text).when
        if when is not None:
            file.first, file.read_bytes = when, 0
            return True
        if number == _SEARCHED:
            break
    if opening is None or file.is_exchange:
        return False
    raise ConfigError(
        f"{file.path}: line 1: expected a line of Postfix or Dovecot that begins with its time, or the header of"
        f" Exchange's message tracking log, found {shape(opening)!r}"
    )


def _exchange_time(text: str) -> int | None:
    head = HEAD.match(f"{text.partition(',')[0]} x")
    try:
        return _seconds(head[5], head[6]) if head and head[5] else None
    except ValueError:
        return None


def in_order(files: Sequence[MailLog], progress: Callable[[float], object]) -> Iterator[tuple[MailLog, LogLine]]:
    """Yield the lines of all files, merged by time; `files` are in the order of their first lines.

    A file is open only from its first time to its last, so that a month of rotated files needs few at once. Lines
    without a readable time follow their predecessors.
    """
    waiting, total_bytes = list(reversed(files)), sum(file.size_bytes for file in files) or 1
    current: list[tuple[int, int, MailLog, LogLine, Iterator[LogLine]]] = []  # a heap by the time of the next line
    yielded = 0
    while waiting or current:
        # 1. Open the next file, if none that is open has an older line.
        if not current or (waiting and waiting[-1].first <= current[0][0]):
            file = waiting.pop()
            file.read_bytes, file.last = 0, -(1 << 62)
            reader = _exchange_lines(file) if file.is_exchange else map(file.times(), file.lines())
            heappush(current, (file.first, -len(waiting), file, next(reader), reader))
            continue
        # 2. Yield the lines of the file with the oldest one, until another file has an older one.
        _, order, file, line, reader = heappop(current)
        until = min(current[0][0] if current else 1 << 62, waiting[-1].first if waiting else 1 << 62)
        yield file, line
        for line in reader:
            if line.when is not None and line.when > until:
                heappush(current, (line.when, order, file, line, reader))
                break
            yield file, line
            yielded += 1
            if not yielded & 0x3FFF:
                progress(sum(each.read_bytes for each in files) / total_bytes)
    progress(1.0)


def _exchange_lines(file: MailLog) -> Iterator[LogLine]:
    for text in file.lines():
        yield LogLine(_exchange_time(text), text)
