"""The records of a timing log as fixed-width numpy types.

Instants are whole microseconds: in a file, from the log's own epoch; once read, from the run's common start (LOGONs
come before it). Names (task, profile, protocol, error, folder, command) are indices into the log's string table, whose
entry 0 is the empty string. All numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadsim.model.records import CLOCKS, EVENTS, OUTCOMES
from loadsim.timinglog import container

Records = NDArray[np.void]
"""An array of records of one kind."""

NEVER = np.iinfo(np.int64).min
"""The start of a skipped task, and the end of an unfinished one."""

OUTCOME = {name: code for code, name in enumerate(OUTCOMES)}
CLOCK = {name: code for code, name in enumerate(CLOCKS)}

TASK = np.dtype(
    [
        ("scheduled_us", "<i8"),  # when it was due
        ("started_us", "<i8"),  # its first byte, or the start of its connection
        ("ended_us", "<i8"),  # its last answer
        ("late_busy_s", "<f4"),  # from the due time to the start: the user was still busy (server) ...
        ("late_down_s", "<f4"),  # ... the session was down (server) ...
        ("late_generator_s", "<f4"),  # ... the generator was late ...
        ("late_between_s", "<f4"),  # ... of which it was between two commands of this task ...
        ("late_own_s", "<f4"),  # ... or before it began, not counting earlier tasks of the same activity; both together
        ("user", "<u4"),
        ("bytes", "<u4"),  # of all its commands, in both directions
        ("task", "<u2"),
        ("profile", "<u2"),
        ("protocol", "<u2"),
        ("error", "<u2"),
        ("outcome", "u1"),
        ("clock", "u1"),  # what tells when it ended
    ]
)
"""One task of one user."""

EVENT = {name: code for code, name in enumerate(EVENTS)}

MAIL = np.dtype(
    [
        ("at_us", "<i8"),
        ("message", "S20"),  # the message's id
        ("user", "<u4"),  # whose mailbox
        ("sender", "<u4"),
        ("folder", "<u2"),
        ("event", "u1"),
    ]
)
"""One event of a message in a mailbox."""

COMMAND = np.dtype(
    [
        ("started_us", "<i8"),
        ("took_us", "<u4"),  # saturates at 71 minutes, far above any command's time limit
        ("user", "<u4"),
        ("sent_bytes", "<u4"),
        ("received_bytes", "<u4"),
        ("command", "<u2"),
        ("outcome", "u1"),
    ]
)
"""One protocol command, which is a part of a task."""

GIVEN_UP = "given up"
"""The end of an engine that the run did without: the rest of its users' work is lost."""

MAKERS = ("client", "engine", "run")
"""Fields that identify a record's maker. Each engine of a run writes one log."""


def _named(record: np.dtype[np.void]) -> np.dtype[np.void]:
    return np.dtype([*record.descr, *((name, "<u2") for name in MAKERS)])


NAMED_TASK, NAMED_MAIL, NAMED_COMMAND = _named(TASK), _named(MAIL), _named(COMMAND)
"""The records with their makers, which are indices into the string table like the other names."""

INSTANTS = ("scheduled_us", "started_us", "ended_us", "at_us")
NAMES = ("task", "profile", "protocol", "error", "folder", "command", *MAKERS)
"""The fields, across all records, that are instants, and those that are indices of names."""


@dataclass(frozen=True, slots=True)
class RecordKind:
    """A kind of record: its block kind's number, and its type in a file (`plain`) and with makers (`named`)."""

    number: int
    plain: np.dtype[np.void]
    named: np.dtype[np.void]


KINDS: Mapping[str, RecordKind] = {
    "tasks": RecordKind(container.TASKS, TASK, NAMED_TASK),
    "mails": RecordKind(container.MAILS, MAIL, NAMED_MAIL),
    "commands": RecordKind(container.COMMANDS, COMMAND, NAMED_COMMAND),
}
"""All kinds of records by name."""
