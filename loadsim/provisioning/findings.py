"""Findings of a check of a server: what was found, whether a scenario can run with it, and what to change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from loadsim.errors import ServerLost, ServerRefused, TaskFailed

CAN_RUN = "This scenario can run on this server."

_DELAY = re.compile(r"(\d{1,5}) ?(s|sec|seconds?|min|minutes?)\b", re.IGNORECASE)
_ABOUT_GREYLISTING = re.compile(r"gr[ae]y-?list|try again later|4\.7\.1|deferred", re.IGNORECASE)
_ABOUT_QUOTA = re.compile(r"quota|mailbox (?:is )?full|over ?quota|[45]\.2\.2", re.IGNORECASE)
_ABOUT_SENDER = re.compile(r"sender|not owned|send as|sendas|[45]\.7\.1|[45]\.1\.[78]|\bfrom\b", re.IGNORECASE)
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
    return Finding(subject, str(failure), Severity.LACKS, _advice(failure, sender, recipient))


def _advice(failure: TaskFailed, sender: str, recipient: str) -> str:
    kind, line = failure.kind, failure.line
    verb = kind.rpartition(" ")[2]
    if failure.outcome == "generator":
        return f"this machine failed: {failure}"
    if _ABOUT_QUOTA.search(f"{kind} {line}") and "size" not in line.lower():
        return "a mailbox is full: raise its quota, or empty it"
    if _ABOUT_LIMITS.search(line) or "[LIMIT]" in kind:
        return f"raise the server's limit of connections or messages, which it names: {line}"
    if greylisting(failure):
        named = delay_s(line)
        wait = f"; loadsim check --wait {named:.0f} waits as long as the server asks" if named else ""
        return f"exempt this machine's address from greylisting{wait}"
    if kind.startswith(("552 ", "523 ")):
        return "raise the largest message size of the server, or send smaller kinds of messages in the profile"
    if verb == "MAIL" or (kind.startswith(("550 ", "553 ")) and verb != "RCPT" and _ABOUT_SENDER.search(line)):
        return f"let the account send as {sender or 'its address'}, or set accounts.user and domain to what it may use"
    if verb == "RCPT":
        if kind.startswith("553 ") and _ABOUT_SENDER.search(line):
            return f"let the account send as {sender}, or set accounts.user and domain to what it may use"
        if refused_domain(failure):
            domain = recipient.rpartition("@")[2] or "of the scenario"
            return f"set domain to one for which the server accepts mail, or let it accept mail for the domain {domain}"
        return (
            f"the server must accept mail for {recipient or 'the scenario addresses'}: create the account, or set"
            " domain to that of the accounts"
        )
    if "SELECT" in kind and isinstance(failure, ServerRefused):
        return "the account has no Inbox yet: create it, or let the server create it at log-on (autocreate)"
    if "CREATE" in kind:
        return "let accounts create folders, or set folders.prefix to the namespace where they may"
    if isinstance(failure, ServerLost) and not line:
        return f"find in the server's log why it ended the connection ({kind})"
    return f"make the server do this for the scenario's accounts: {failure}"
