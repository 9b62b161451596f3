"""The check of a timing log: it reads everything, and reports what is cut off or damaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loadsim.timinglog.file import LogFile, open_log
from loadsim.timinglog.reader import TimingLog, log_of


@dataclass(frozen=True, slots=True)
class LogCheck:
    """A file that was read from end to end, and its log."""

    file: LogFile
    log: TimingLog

    @property
    def counts(self) -> Mapping[str, int]:
        return {kind: index.count for kind, index in self.file.indices.items()}

    @property
    def span_s(self) -> tuple[float, float] | None:
        """Return the first and the last instant in the heads of blocks, from the common start; None without records."""
        indices = [index for index in self.file.indices.values() if index.count]
        if not indices:
            return None
        first_us, last_us = min(index.first_us for index in indices), max(index.last_us for index in indices)
        return (first_us - self.file.origin_us) / 1e6, (last_us - self.file.origin_us) / 1e6

    @property
    def ended(self) -> bool:
        """Return whether its maker reached the end."""
        return self.log.sources[0].ended


def check_log(path: Path) -> LogCheck:
    """Read a log from end to end. Raises `LogError` if it is no timing log of this format."""
    file = open_log(path)
    return LogCheck(file, log_of(file))
