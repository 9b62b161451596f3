"""Records of tasks, mail and commands, shared by load and measurement; their outcomes and events.

Engines make them, timing logs store them, analysis reads them. They are plain tuples: making and reading one takes half
as long as a named tuple, and a fraction of the time of a dataclass.
"""

from __future__ import annotations

GENERATOR = "generator"
"""The outcome of a task in which the generator itself failed; it says nothing about the server."""

OUTCOMES = ("ok", "refused", "lost", "timeout", "unfinished", "skipped", GENERATOR)
"""Outcomes of tasks. `unfinished` and `skipped`: the task was running, or had not started, when the run ended."""

FAILURES = ("refused", "lost", "timeout")
"""The outcomes of tasks that started, but failed because of the server or the network."""

WITH_KIND = (*FAILURES, GENERATOR)
"""The outcomes whose records state a kind of error."""

PROCESS_INBOX_SPAN, NO_SESSION, DELIVERY_RECEIPT = "PROCESS INBOX", "NO SESSION", "DELIVERY RECEIPT"
SPANS = (PROCESS_INBOX_SPAN, NO_SESSION, DELIVERY_RECEIPT)
"""Names of task records that span several tasks and are not counted as tasks.

PROCESS INBOX is the processing of an Inbox as a whole, from its due time to the end of its last task. NO SESSION is a
period in which a user had no session. DELIVERY RECEIPT lasts from the acceptance of a message to the arrival of its
receipt, which is unfinished if it did not arrive, and skipped if the server does not offer receipts.
"""

NO_CLOCK, KERNEL, BOUND, LOOP = "", "kernel", "bound", "loop"
CLOCKS = (NO_CLOCK, KERNEL, BOUND, LOOP)
"""Clocks that tell when a task's last answer arrived: none, the kernel's note, the note of later bytes, the event loop.

The second is exact, the third at most a read too late, the fourth late whenever the loop is (`protocols.transport`).
"""

Arrival = tuple[int, str]
"""When an answer arrived, in nanoseconds of the run's clock, and which of `CLOCKS` tells."""

EVENTS = (
    *("accepted", "seen", "found", "read", "moved", "copied", "deleted", "saved", "expunged", "missing", "doubled"),
    *("left", "answered", "forwarded", "unsure", "unlisted", "altered"),
)
"""Events in the life of a message, for one recipient.

accepted: the server took it for this recipient; seen: announced to the recipient's session; found: not announced, but
listed after a log-on or at the end of the drain; moved, copied and deleted (to Deleted Items): to `folder`; saved: a
copy was put into `folder`; expunged: removed from `folder` for good; missing: it should be in `folder`, but it, or a
part or flag of it, is not; doubled: `folder` has a second copy; left: it leaves `folder`, which is not the Inbox, with
the event that follows; answered, forwarded: has this flag in `folder`; unsure: a command that puts it into `folder`, or
changes it there, failed or was not answered; after `left`, one that expunges it; unlisted: was put into `folder`, which
its user has not listed since; altered: a part fetched from `folder` differs from what was sent.
"""

INDIVIDUALLY, BY_LIST = "individual", "list"
"""The `folder` of an accepted message: its recipient was addressed as an individual, or only through a list."""

TaskFields = tuple[
    str, int, str, str, int, int | None, int | None, float, float, float, float, float, str, str, int, str
]
"""One task of one user: task, user, profile, protocol; when it was due, started and ended; five times of lateness in
seconds; outcome, one of `OUTCOMES`; kind of failure or "", bytes moved, and which of `CLOCKS` tells its end.

Instants are nanoseconds of the run's clock; None means "never happened". Lateness runs from the due time to the start,
split by cause: the user was still busy (server), the session was down (server), the generator was late. The fourth is
the part of the third that fell between the task's commands: the start is put off by as much, so that from start to end
some command was always under way. The fifth is the third without what arose in earlier tasks of the same activity.
"""

MailFields = tuple[str, str, int, int, int, str]
"""Something that happened to a message (one of `EVENTS`): event, message, user of the mailbox, sender, instant, folder.

A post's user is 0 (`ports.OF_ALL_USERS`), as the public folder is all users'.
The folder is `INDIVIDUALLY` or `BY_LIST` for an accepted message, whose folder is not known yet.
"""

CommandFields = tuple[str, int, int, int, str, int, int]
"""A protocol command that has ended: command, user, when it started and ended, outcome, bytes sent and received."""
