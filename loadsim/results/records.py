"""The records of a timing log, as fixed-width numpy types; the one place that defines them.

Instants are whole microseconds; in a file they count from the log's own epoch, after reading from the common
start of the run (t = 0; a LOGON lies before it). Names (task, profile, protocol, error, folder, command) are
indices into the log's string table, whose entry 0 is the empty string. All numbers are little-endian.
"""

from __future__ import annotations

import numpy as np

NEVER = np.iinfo(np.int64).min
"""The instant of what did not happen: the start of a skipped task, the end of an unfinished one."""

OUTCOMES = ("ok", "refused", "lost", "timeout", "unfinished", "skipped")
"""How a task ended. The last two: it was still running, or had not started, when the run ended."""

OUTCOME = {name: code for code, name in enumerate(OUTCOMES)}

TASK = np.dtype(
    [
        ("scheduled_us", "<i8"),  # when it was due
        ("started_us", "<i8"),  # its first byte, or the start of its connection
        ("ended_us", "<i8"),  # its last answer
        ("late_busy_s", "<f4"),  # from the due time to the start: the user was still busy (server) ...
        ("late_down_s", "<f4"),  # ... the session was down (server) ...
        ("late_generator_s", "<f4"),  # ... we were late ourselves
        ("user", "<u4"),
        ("sequence", "<u4"),  # counts the records of one engine, in order of completion
        ("bytes", "<u4"),  # sent and received for this task
        ("task", "<u2"),
        ("profile", "<u2"),
        ("protocol", "<u2"),
        ("error", "<u2"),
        ("outcome", "u1"),
    ]
)
"""One task of one user: what somebody waited for."""

EVENTS = ("accepted", "seen", "found", "read", "moved", "copied", "deleted", "saved", "expunged")
"""What can happen to a message for one recipient.

accepted: the server took it for this recipient; seen: announced to the recipient's waiting session;
found: noticed only after a log-on, so without a delivery time; moved, copied and deleted (to Deleted Items): to
`folder`; saved: a copy was put into `folder`; expunged: removed from `folder` for good.
"""

EVENT = {name: code for code, name in enumerate(EVENTS)}

MAIL = np.dtype(
    [
        ("at_us", "<i8"),
        ("message", "S20"),  # the message's id
        ("user", "<u4"),  # whose mailbox
        ("sender", "<u4"),
        ("sequence", "<u4"),
        ("folder", "<u2"),
        ("event", "u1"),
    ]
)
"""What happened to one message in one mailbox."""

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
"""One protocol command: the sub-timing of a task."""
