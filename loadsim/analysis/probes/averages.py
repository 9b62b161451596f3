"""The counters of a server whose averages published papers on the sizing of mail servers print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadsim.analysis.probes.resources import by_kind, kind_of


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter: its words with the unit, the pattern of its figure, the factor to that unit, and decimals to show.

    The words may have the text that the pattern caught.
    """

    words: str
    figure: str
    factor: float = 1.0
    digits: int = 1


COUNTERS: Mapping[str, Sequence[Counter]] = {
    "host": (
        Counter("Processor time (% of all cores)", "cpu_busy_share", 100),
        Counter("Processor time (% of the server's cores)", "server_cores_busy_share", 100),
        Counter("Processor time of the server (cores)", "server_cpu_cores", digits=2),
        Counter("Cores of the server taken by others", "server_cores_taken_by_others", digits=2),
        Counter("Processor quota used (%)", "quota_busy_share", 100),
        Counter("Queue of the disk {} (requests)", "disk_(.+)_queue_requests", digits=2),
        Counter("Disk {} busy (% of the time)", "disk_(.+)_busy_share", 100),
        Counter("Memory available (MiB)", "memory_available_bytes", 2**-20, 0),
        Counter("Memory of the server (MiB)", "server_rss_bytes", 2**-20, 0),
    ),
    "postfix": (
        Counter("Length of the send queue (messages)", "send_queue_messages"),
        Counter("Send queue (seconds of the mean throughput)", "send_queue_s"),
        Counter("Deliveries by Postfix (recipients per minute)", "sent_per_s", 60),
    ),
    "dovecot": (
        Counter("IMAP sessions", "imap_sessions"),
        Counter("IMAP commands (per second)", "commands_per_s"),
    ),
}
"""The counters by kind of probe."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A figure of a probe that is a counter: `words` name it with its unit; a figure times `factor` is in that unit.

    It is shown with `digits` decimals.
    """

    probe: str
    figure: str
    words: str
    factor: float
    digits: int


def counted(names: Mapping[str, Sequence[str]]) -> Iterator[Counted]:
    """Yield the counters among the names of figures by probe, in the order of `COUNTERS` and of the probes' names."""
    for probe in by_kind(names, COUNTERS):
        for counter in COUNTERS.get(kind_of(probe), ()):
            for figure in names[probe]:
                if match := re.fullmatch(counter.figure, figure):
                    yield Counted(probe, figure, counter.words.format(*match.groups()), counter.factor, counter.digits)


def delivered_per_min(delivered: float, window_s: float) -> float:
    """Return the messages that users saw, one for each recipient, per minute of a window of this length.

    They were accepted in the window.
    """
    return 60 * delivered / window_s
