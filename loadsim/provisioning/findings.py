"""Findings of a check of a server: what was found, whether a scenario can run with it, and what to change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from loadsim.errors import ServerLost, ServerRefused, TaskFailed

CAN_RUN = "This scenario can run on this server."

_DELAY = re.compile(r"(\d{1,5}) ?(s|sec|seconds?|min|minutes?)\b", re.IGNORECASE)
_ABOUT_GREYLISTING = re.compile(r"gr[ae]y-?list|4\.7\.1", re.IGNORECASE)
_ABOUT_QUOTA = re.compile(r"quota|mailbox (?:is )?full|over ?quota|[45]\.2\.2", re.IGNORECASE)
_ABOUT_SENDER = re.compile(r"sender|not owned|send as|sendas", re.IGNORECASE)
_ABOUT_DOMAIN = re.compile(
    r"(?!.*unknown).*\brelay", re.IGNORECASE | re.DOTALL
)  # Postfix: "unknown in relay ... table"
_ABOUT_LIMITS = re.compile(r"too many|maximum number|connection limit|limit exceeded|concurren", re.IGNORECASE)


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


def greylisting(failure: TaskFailed) -> bool:
    """Return whether a refusal may be greylisting: 450 or 451, and not a full mailbox (RFC 6647 section 4)."""
    temporary = failure.kind.startswith(("450 ", "451 "))
    return isinstance(failure, ServerRefused) and temporary and not _ABOUT_QUOTA.search(failure.line)


def refused_recipient(failure: TaskFailed) -> bool:
    """Return whether a server refused a recipient for good: 550 to 559 after RCPT."""
    return isinstance(failure, ServerRefused) and failure.kind.startswith("55") and failure.kind.endswith(" RCPT")


def refused_domain(failure: TaskFailed) -> bool:
    """Return whether a server refused a recipient because it takes no mail for the domain: it would have to relay."""
    return refused_recipient(failure) and bool(_ABOUT_DOMAIN.match(failure.line))


def delay_s(line: str) -> float | None:
    """Return the delay that a server's line names, in seconds; None if it names none."""
    found = _DELAY.search(line)
    if found is None:
        return None
    return int(found[1]) * (60.0 if found[2].lower().startswith("m") else 1.0)


def lacking(subject: str, failure: TaskFailed, *, sender: str = "", recipient: str = "") -> Finding:
    """Return the finding for a failure of a task, with the setting to change."""
    advice = advice_on(failure, sender, recipient) or f"the server answered: {failure}"
    return Finding(subject, str(failure), Severity.LACKS, advice)


_LIMIT = "raise the server's limit of connections or messages, which it names: {line}"
_QUOTA = "a mailbox is full: raise its quota, or empty it"
_SEND_AS = "let the account send as {sender}, or set accounts.user and domain to what it may use"
_TLS = "the server requires TLS: set server.{service}.tls"

_ADVICE = {
    code: advice
    for codes, advice in (
        ("ALREADYEXISTS", "rename or delete what the server has under this name"),
        ("CORRUPTION", "repair the mailbox on the server"),
        ("INUSE", "end the other session that locks the mailbox"),
        ("LIMIT", _LIMIT),
        ("NONEXISTENT, TRYCREATE", "create the folder, or let the server create it at log-on (autocreate)"),
        ("NOPERM CREATE", "let accounts create folders, or set folders.prefix to the namespace where they may"),
        ("NOPERM", "give the account the access right that it lacks"),
        ("OVERQUOTA, 2.2, 552 RCPT", _QUOTA),
        ("PRIVACYREQUIRED, 7.11, 538", _TLS),
        ("SERVERBUG, UNAVAILABLE, 3.2, 4.5, 421", "the server is not available: its log says why"),
        (
            "TOOBIG, 2.3, 3.4, 523, 552",
            "raise the largest message size of the server, or send smaller kinds of messages in the profile",
        ),
        (
            "1.1 RCPT, 1.2 RCPT, 1.6 RCPT, 1.10 RCPT, 550 RCPT, 551 RCPT, 553 RCPT",
            "the server must accept mail for {recipient}: create the account, or set domain to that of the accounts",
        ),
        ("1.7, 1.8, 553 MAIL", _SEND_AS),
        ("2.1 RCPT", "enable the account {recipient}, which the server has disabled"),
        ("3.1, 452", "free storage on the server, which is full"),
        ("5.3", "raise the server's limit of recipients for each message"),
        ("530", "the server requires a log-on: set server.{service}.auth"),
    )
    for code in codes.split(", ")
}
"""Advice by code, with the command where that decides; an answer without an entry is quoted.

Codes are IMAP's (RFC 5530 section 3, RFC 4469, RFC 7889, RFC 9051 section 7.1), the subject and detail of SMTP's
enhanced ones (RFC 3463 section 3, RFC 7505, IANA's registry), and SMTP's (RFC 5321 section 4.2, RFC 3207, RFC 4954)."""

_CODE = re.compile(r"(?:NO|BAD) \[([^]]+)\]|(\d{3})\b")
_ENHANCED = re.compile(r"[245]\d\d[ -][245]\.(\d{1,3}\.\d{1,3})\b")


def advice_on(failure: TaskFailed, sender: str = "", recipient: str = "") -> str:
    """Return the setting to change after a failure; "" if its code is not known."""
    kind, line = failure.kind, failure.line
    if failure.outcome == "generator":
        return f"this machine failed: {failure}"
    code, enhanced = _CODE.match(kind), _ENHANCED.match(line)
    of_imap, of_smtp = code.groups() if code else (None, None)
    verb = kind.rpartition(" ")[2]

    def by(key: str | None) -> str:
        return _ADVICE.get(f"{key} {verb}") or _ADVICE.get(str(key), "")

    advice = by(of_imap) or by(enhanced[1] if enhanced else None) or _by_words(failure) or by(of_smtp)
    if not advice and isinstance(failure, ServerLost) and not line:
        advice = "find in the server's log why it ended the connection ({failure})"
    return advice.format(
        failure=failure,
        line=line,
        recipient=recipient or "the scenario's addresses",
        domain=recipient.rpartition("@")[2] or "of the scenario",
        sender=sender or "its address",
        service="smtp" if of_smtp else "imap",
        delay=delay_s(line),
    )


def _by_words(failure: TaskFailed) -> str:
    """Return the advice for an answer whose code has several meanings; "" if its words do not tell."""
    kind, line = failure.kind, failure.line
    if _ABOUT_QUOTA.search(line) and "size" not in line.lower():
        return _QUOTA
    if _ABOUT_LIMITS.search(line) or "[LIMIT]" in kind:
        return _LIMIT
    if kind.startswith("530 ") and "TLS" in line:
        return _TLS
    if greylisting(failure) and (_ABOUT_GREYLISTING.search(line) or delay_s(line)):
        wait = "; loadsim check --wait {delay:.0f} waits as long as the server asks" if delay_s(line) else ""
        return f"exempt this machine's address from greylisting{wait}"
    if refused_domain(failure):
        return "set domain to one for which the server accepts mail, or let it accept mail for the domain {domain}"
    return _SEND_AS if kind.startswith(("550 ", "553 ", "554 ")) and _ABOUT_SENDER.search(line) else ""
