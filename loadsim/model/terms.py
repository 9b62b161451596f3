"""Terms that scenarios, timing logs and `score.json` share: run modes, tasks, the most users."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple


class Window(NamedTuple):
    """The part of a run that counts: from `begin_s` to before `end_s`, in seconds from the common start."""

    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


CANONICAL, STRESS = "canonical", "stress"
"""The modes of a run: an open model, with tasks due by the plan and a score; or a closed loop, with a throughput.

Logs of different modes are never merged.
"""

Acknowledgements = Literal["at once", "delayed"]
"""When a client acknowledges what the server sends: at once, or as its system does. A server may wait for it."""

LOGON, FIRST_SYNC, LOGOFF = WITHOUT_WINDOW = ("LOGON", "FIRST SYNC", "LOGOFF")
"""Tasks that are naturally due before or after the window, so they are reported without a window or rate."""

INJECT = "INJECT"
"""The task of outside senders: they submit a message. It counts among the tasks of the first group's driver."""

RESOLVE = "RESOLVE"
"""The task of finding a new message's recipients in the address book, if the server has one (`server.ldap`)."""

TRACK_RECEIPT, RETURN_RECEIPT = RECEIPT_TASKS = ("TRACK RECEIPT", "RETURN RECEIPT")
"""The tasks of mail programs with receipts: looking into a delivery report, and returning a read receipt."""

POST, BROWSE_PUBLIC = PUBLIC_TASKS = ("POST", "BROWSE PUBLIC")
"""The tasks in the public folder, which all users share."""

UNSCORED = (
    *(LOGON, FIRST_SYNC, "SYNC", "LOAD ATTACHMENT", RESOLVE, "SAVE SENT", "EVICT"),
    *(*RECEIPT_TASKS, *PUBLIC_TASKS, INJECT, LOGOFF),
)
"""Tasks that have no weight unless the scenario gives them one."""

ASSISTANT_TASKS = ("ASSISTANT SEARCH", "ASSISTANT READ", "ASSISTANT DRAFT", "ASSISTANT SEND")
"""The tasks of assistants, which have no weight."""

SENDING = frozenset(("SEND", "REPLY", "REPLY ALL", "FORWARD", RETURN_RECEIPT, "ASSISTANT SEND", INJECT))
"""Tasks that submit mail."""

POP3, LDAP, NNTP, CALDAV = "pop3", "ldap", "nntp", "caldav"

IN_MAILBOX = "mailbox"
CALENDARS = (IN_MAILBOX, CALDAV)
"""Where users keep their calendars."""

APART = (LDAP, NNTP, CALDAV, "outside")
"""The services apart from users' mailboxes, which no driver needs."""

SERVICES = ("imap", "smtp", "mapi", "jmap", POP3, *APART)
"""The mail-server services, by their keys in `server`."""

PROTOCOLS = ("IMAP", "SMTP", "MAPI", "JMAP", "POP3", "LDAP", "NNTP", "CALDAV", "LMTP")
"""The protocols, with which commands' names begin."""

OVER_HTTP = ("mapi", "jmap")
"""The services that replace IMAP and SMTP; their drivers have the same names, and wait over a second connection."""

CHECKING = ("imap", "jmap")
"""The drivers that check the server against its earlier responses."""

ONE_COPY = frozenset({"jmap"})
"""The drivers over which a message has at most one copy in a folder, as a JMAP Email does (RFC 8621 section 4)."""

JMAP_POLL = "JMAP poll"
"""The command by which users of a JMAP server that does not push ask for changes."""

MOST_USERS = 10_000_000
"""The most users in a scenario; each takes memory."""

FIGURE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""The name of a probe's figure, which ends with its unit."""

MONITOR_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""A monitor's name, which follows an @ in the names of its probes."""

RECEIVED, SAVED, COPIED, SCHEDULES, EMPTIED = STORED = ("received", "saved", "copied", "schedules", "emptied")
"""Why mailboxes grow and, last, shrink; a new schedule replaces the previous one."""

OutageCause = Literal["command", "drop", "hand"]
"""The cause of an outage: the scenario's command, loadsim itself, or someone at the server."""

FaultOnPurpose = Literal[
    "mail-altered", "line-ends", "mail-duplicated", "mail-misfiled", "flag-lost", "flag-unexpected", "mail-unexpected"
]
"""Faults in mail that a server may cause on purpose, by code: none loses mail, or gives it to others."""
