"""Findings of a check of a server: what was found, whether a scenario can run with it, and what to change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from loadsim.errors import ServerLost, ServerRefused, TaskFailed

CAN_RUN = "This scenario can run on this server."


class Severity(StrEnum):
    """The weight of a finding: `LACKS` keeps the scenario from running, `NOTE` is worth knowing."""

    OK = "ok"
    NOTE = "note"
    LACKS = "lacks"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact about a subject; for `LACKS`, with the change that is needed."""

    subject: str
    found: str
    severity: Severity = Severity.OK
    advice: str = ""


@dataclass(frozen=True, slots=True)
class TaskFinding:
    """A task with a driver: the commands that it used, and the longest time that it took; or why it failed.

    `driver` is the driver's name with that of the mail program (`Group.module`).
    """

    driver: str
    task: str
    commands: tuple[str, ...]
    seconds: float
    failure: Finding | None = None


@dataclass(frozen=True, slots=True)
class ServerReport:
    """Everything that a check found. `accounts` are the log-on names of the accounts that it used.

    `monitors` is about those of the scenario.
    """

    accounts: tuple[str, ...]
    server: tuple[Finding, ...]
    tasks: tuple[TaskFinding, ...]
    mail: tuple[Finding, ...]
    seconds: float = 0.0
    leftovers: tuple[str, ...] = field(default=())
    monitors: tuple[Finding, ...] = ()

    @property
    def lacks(self) -> Sequence[Finding]:
        """The findings that keep the scenario from running, once each."""
        failures = [task.failure for task in self.tasks if task.failure is not None]
        found = [*self.server, *failures, *self.mail, *self.monitors]
        return [*dict.fromkeys(each for each in found if each.severity is Severity.LACKS)]

    @property
    def can_run(self) -> bool:
        return not self.lacks

    @property
    def verdict(self) -> str:
        """Return one sentence: the scenario can run, or what to change first."""
        if self.can_run:
            return CAN_RUN
        first, more = self.lacks[0], len({each.advice for each in self.lacks}) - 1
        others = f" ({more} more to change, below)" if more else ""
        return f"This scenario cannot run on this server: {first.advice}{others}."


def refused_recipient(failure: TaskFailed) -> bool:
    """Return whether a server refused a recipient for good: 550 to 559 after RCPT."""
    return isinstance(failure, ServerRefused) and failure.kind.startswith("55") and failure.kind.endswith(" RCPT")


def lacking(
    subject: str, failure: TaskFailed, *, sender: str = "", recipient: str = "", to_list: bool = False
) -> Finding:
    """Return the finding for a failure of a task, with the setting to change."""
    advice = advice_on(failure, sender, recipient, to_list) or f"the server answered: {failure}"
    return Finding(subject, str(failure), Severity.LACKS, advice)


NO_LIST = (
    "create the list {recipient} (loadsim topology export writes all lists), or set lists.count: 0 to send to none"
)

_QUOTA = "a mailbox is full: raise its quota, or empty it"
_TOO_BIG = "raise the largest message size of the server, or send smaller kinds of messages in the profile"
_RECIPIENTS = "raise the server's limit of recipients for each message"
_SEND_AS = "let the account send as {sender}, or set accounts.user and domain to what it may use"
_GREYLISTED = "exempt this machine's address, if the server greylists it"
_ANY_MAIL = "MAIL RCPT LIST DATA"

_TABLE = (
    ("ALREADYEXISTS", "", "rename or delete what the server has under this name"),
    ("CORRUPTION", "", "repair the mailbox on the server"),
    ("INUSE", "", "end the other session that locks the mailbox"),
    ("LIMIT", "", "raise the server's limit of connections or messages, which it names: {line}"),
    ("NONEXISTENT TRYCREATE", "", "create the folder, or let the server create it at log-on (autocreate)"),
    ("NOPERM", "", "give the account the access right that it lacks"),
    ("NOPERM", "CREATE", "let accounts create folders, or set folders.prefix to the namespace where they may"),
    ("OVERQUOTA 2.2", "", _QUOTA),
    ("552", "RCPT LIST", _QUOTA),
    ("PRIVACYREQUIRED 7.10 7.11 523 538", "", "the server requires TLS: set server.{service}.tls"),
    ("530", "", "the server requires TLS or a log-on: set server.{service}.tls or server.{service}.auth"),
    ("SERVERBUG UNAVAILABLE 3.2 4.5 421", "", "the server is not available: its log says why"),
    ("TOOBIG 2.3 3.4", "", _TOO_BIG),
    ("552", "MAIL", _TOO_BIG),
    ("3.1 452", "", "free storage on the server, which is full"),
    ("5.3", "", _RECIPIENTS),
    ("452", "RCPT LIST", _RECIPIENTS),
    (
        "1.1 1.2 1.6 1.10",
        "RCPT",
        "the server must accept mail for {recipient}: create the account, or set domain to that of the accounts",
    ),
    ("1.1 1.2 1.6 1.10", "LIST", NO_LIST),
    ("550 551 553", "RCPT LIST", "the server must accept mail for {recipient}"),
    ("2.1", "RCPT LIST", "enable the account {recipient}, which the server has disabled"),
    ("1.7 1.8", "", _SEND_AS),
    ("553", "MAIL", _SEND_AS),
    ("4.7.1", _ANY_MAIL, _GREYLISTED),
    ("450", "RCPT LIST", _GREYLISTED),
    ("7", _ANY_MAIL, "the server forbids it: let accounts send as their own addresses, and to the domain {domain}"),
)
"""Codes, the commands at which they have this meaning ("": any; LIST: RCPT of a list), and the advice.

Codes are IMAP's (RFC 5530 section 3, RFC 4469, RFC 7889, RFC 9051 section 7.1), SMTP's enhanced ones (RFC 3463 section
3, RFC 7505, IANA's registry), whole, by subject and detail, or by subject, and SMTP's (RFC 5321 section 4.2, RFC 3207,
RFC 4954, RFC 5248). Texts decide nothing: an answer without an entry is quoted."""

_ADVICE = {
    (code, command): advice
    for codes, commands, advice in _TABLE
    for code in codes.split()
    for command in commands.split() or [""]
}

_CODE = re.compile(r"(?:NO|BAD) \[([^]]+)\]|(\d{3})\b")
_ENHANCED = re.compile(r"[245]\d\d[ -]([245]\.((\d{1,3})\.[1-9]\d{0,2}))\b")
"""An enhanced code, unless its detail is 0, which is undefined (RFC 3463 section 3.1)."""


def advice_on(failure: TaskFailed, sender: str = "", recipient: str = "", to_list: bool = False) -> str:
    """Return the setting to change after a failure; "" if its code is not known."""
    kind, line = failure.kind, failure.line
    if failure.outcome == "generator":
        return f"this machine failed: {failure}"
    code, enhanced = _CODE.match(kind), _ENHANCED.match(line)
    of_imap, of_smtp = code.groups() if code else (None, None)
    command = kind.rpartition(" ")[2]
    if to_list and command == "RCPT":
        command = "LIST"
    codes = [of_imap, *(enhanced.groups() if enhanced else ()), of_smtp]
    keys = [(str(each), at) for each in codes for at in (command, "")]
    advice = next((_ADVICE[key] for key in keys if key in _ADVICE), "")
    if not advice and isinstance(failure, ServerLost) and not line:
        advice = "find in the server's log why it ended the connection ({failure})"
    return advice.format(
        failure=failure,
        line=line,
        recipient=recipient or "the scenario's addresses",
        domain=recipient.rpartition("@")[2] or "of the scenario",
        sender=sender or "its address",
        service="smtp" if of_smtp else "imap",
    )
