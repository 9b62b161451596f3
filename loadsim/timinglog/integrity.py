"""The check of a timing log: it reads everything, and reports what is cut off or damaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loadsim.timinglog.container import VERSION
from loadsim.timinglog.file import open_log
from loadsim.timinglog.reader import log_of


@dataclass(frozen=True, slots=True)
class LogCheck:
    """The contents of a file of `size` bytes: its whole `blocks`, and the number of records by kind.

    `span_s` is the first and the last instant in the heads of its blocks of records, in seconds from the common start;
    None without records. The bytes from `damaged_at` on are unreadable, unless it is None. `missing` describes all that
    is unreadable, in the logs that were merged into this one, too. `ended`: every engine reached the end of the run.
    """

    path: Path
    version: int
    blocks: int
    counts: Mapping[str, int]
    span_s: tuple[float, float] | None
    size: int
    damaged_at: int | None
    missing: tuple[str, ...]
    ended: bool

    @property
    def whole(self) -> bool:
        return self.ended and not self.missing


def check_log(path: Path) -> LogCheck:
    """Read a log from end to end. Raises `LogError` if it is no timing log of this format."""
    file = open_log(path)
    log = log_of(file)
    indices = [index for index in file.indices.values() if index.count]
    first_us = min((index.first_us for index in indices), default=0) - file.origin_us
    last_us = max((index.last_us for index in indices), default=0) - file.origin_us
    return LogCheck(
        path=path,
        version=VERSION,
        blocks=file.blocks,
        counts={kind: index.count for kind, index in file.indices.items()},
        span_s=(first_us / 1e6, last_us / 1e6) if indices else None,
        size=file.size,
        damaged_at=file.end if file.damage else None,
        missing=log.damages,
        ended=all(source.ended for source in log.sources),
    )
