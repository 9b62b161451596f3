"""Delivery and read receipts in whole runs: which are requested, which arrive, and what anyone may forge."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from virtual_runs import Lived, live, quiet, scenario_of

from loadsim.analysis.summary import summarise
from loadsim.errors import MailMissing, ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.figures import ReceiptFigures
from loadsim.model.message_tag import RECEIPT, receipt_id
from loadsim.model.ports import ALL_TASKS, Account, MessageRef, Observer, Part, Session, Structure, Submission
from loadsim.protocols.in_memory import InMemoryDriver, InMemoryMailbox
from loadsim.protocols.in_memory_mail import MailInMemory
from loadsim.scenario.workload import Workload

HABITS = quiet(
    new_mail={"per_day": 30, "recipients": 2},
    process_inbox={"per_day": 30},
    after_reading={"reply": "20%", "forward": "20%"},
    receipts={"delivery": "40%", "read": "40%", "returned": "70%"},
)
ONLY_DELIVERY = HABITS | {"receipts": {"delivery": "40%"}}
USERS = 4
AFTER_S = 2.0

STATUS = "Original-Envelope-Id: {id}\r\n\r\nFinal-Recipient: rfc822; a@b.test\r\nAction: {action}\r\n"
DAEMON = "MAILER-DAEMON@mail.test"


class ReportingMailbox(InMemoryMailbox):
    """The delivery status of a report is its subject."""

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        data = await super().part(ref, part)
        return ref.mail.subject.encode() if part.content_type == "message/delivery-status" else data  # type: ignore[attr-defined]


Report = Callable[[str], Sequence[tuple[str, str]]]
"""Returns the From and the status of each report on the message with this envelope ID."""


@dataclass
class Reporting:
    """The in-memory mail system, which offers receipts: it sends its reports `AFTER_S` after the acceptance."""

    inner: InMemoryDriver
    report: Report
    refusal: Callable[[], TaskFailed] | None = None
    mailbox_type: type[InMemoryMailbox] = ReportingMailbox
    name: str = "fake"
    supported_tasks: frozenset[str] = ALL_TASKS
    submitted: list[tuple[str, bytes]] = field(default_factory=list)

    def session(self, account: Account, observer: Observer) -> Session:
        self.inner.mailbox_type = self.mailbox_type
        session = self.inner.session(account, observer)
        return replace(session, submission=Notifying(session.submission, self, account.number))


@dataclass
class Notifying:
    inner: Submission
    system: Reporting
    number: int

    async def send(
        self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None = None
    ) -> bool:
        if not sender and self.system.refusal is not None:
            raise self.system.refusal()
        await self.inner.send(sender, recipients, message)
        self.system.submitted.append((sender, message))
        for of, status in self.system.report(envelope_id) if envelope_id else ():
            parts = (Part("2", "message/delivery-status", len(status)),)
            text = Structure(Part("1", "text/plain", 100), parts)
            mail = MailInMemory(of, ("",), status, "<a@mail.test>", None, 3000, text)
            asyncio.get_running_loop().call_later(AFTER_S, self.system.inner.arrive, mail, (self.number,))
        return True

    async def check(self) -> None:
        await self.inner.check()

    async def close(self) -> None:
        await self.inner.close()


def confirming(envelope_id: str) -> Sequence[tuple[str, str]]:
    return [(DAEMON, STATUS.format(id=envelope_id, action="relayed"))]


def lived_with(
    place: Path,
    report: Report = confirming,
    profile: Any = HABITS,
    mailbox_type: type[InMemoryMailbox] = ReportingMailbox,
    refusal: Callable[[], TaskFailed] | None = None,
) -> tuple[Lived, Reporting]:
    made: list[Reporting] = []

    def wrap(driver: InMemoryDriver) -> Reporting:
        made.append(Reporting(driver, report, refusal, mailbox_type))
        return made[0]

    lived = live(scenario_of(place, (profile, USERS)), place, wrap=wrap)
    assert lived.failure is None, lived.failure
    return lived, made[0]


def requests(lived: Lived, receipt: Any) -> set[str]:
    """The accepted messages that the plan says request a receipt."""
    load = Workload(lived.scenario)
    sent = {(mail["sender"], mail["message"]) for mail in lived.mails("accepted")}
    return {message for user, message in sent if load.requests(user, receipt, message)}


def spans(lived: Lived) -> list[dict[str, Any]]:
    return [span for span in lived.tape.spans if span["task"] == "DELIVERY RECEIPT"]


def receipts(lived: Lived) -> ReceiptFigures:
    found = summarise([lived.log]).figures.receipts
    assert found is not None
    return found


@pytest.mark.slow
def test_delivery_receipts_are_tracked_and_timed(tmp_path: Path) -> None:
    """Each arrives once, is found by its own task, and is no foreign mail."""
    lived, _ = lived_with(tmp_path)
    wanted = requests(lived, "delivery")
    assert len(wanted) > 20
    assert Counter(span["outcome"] for span in spans(lived)) == {"ok": len(wanted)}
    took_ns = [span["ended_ns"] - span["scheduled_ns"] for span in spans(lived)]
    assert min(took_ns) == AFTER_S * 1e9
    assert lived.tape.told["foreign"] == 0
    assert lived.outcomes("TRACK RECEIPT") == ["ok"] * len(wanted)
    figures = receipts(lived)
    assert 0 < figures.planned == figures.requested == figures.arrived <= len(wanted)
    assert figures.took.p50_ms == AFTER_S * 1000


@pytest.mark.slow
def test_a_server_without_dsn_is_asked_for_nothing(tmp_path: Path) -> None:
    """The answer has a finding, and no times."""
    lived = live(scenario_of(tmp_path, (ONLY_DELIVERY, USERS)), tmp_path)
    assert Counter(span["outcome"] for span in spans(lived)) == {"skipped": len(requests(lived, "delivery"))}
    summary = summarise([lived.log])
    figures = receipts(lived)
    assert (figures.requested, figures.arrived, figures.took.p50_ms) == (0, 0, None)
    assert finding(Code.RECEIPTS_NOT_OFFERED, messages=figures.planned) in summary.verdict.warnings
    assert not lived.tasks("TRACK RECEIPT")


@pytest.mark.slow
def test_receipts_that_do_not_arrive_are_a_figure(tmp_path: Path) -> None:
    """The drain waits for them; nothing counts as undelivered or lost."""
    lived, _ = lived_with(tmp_path, lambda _: [], ONLY_DELIVERY)
    wanted = requests(lived, "delivery")
    assert Counter(span["outcome"] for span in spans(lived)) == {"unfinished": len(wanted)}
    summary = summarise([lived.log])
    assert receipts(lived).arrived == 0 and receipts(lived).took.p50_ms == math.inf
    assert summary.figures.delivery.undelivered_at_end == 0
    planned = receipts(lived).planned
    assert finding(Code.RECEIPTS_MISSING, missing=planned, requested=planned) in summary.verdict.warnings
    codes = {one.code for one in (*summary.verdict.warnings, *summary.verdict.defects)}
    assert not codes & {Code.RECEIPTS_NOT_OFFERED, Code.FOREIGN_MAIL}


def status(action: str, suffix: str = "", sender: str = DAEMON) -> Report:
    return lambda envelope_id: [(sender, STATUS.format(id=envelope_id + suffix, action=action))]


FORGED: dict[str, tuple[Report, int]] = {
    "another's": (status("delivered", "x"), 1),
    "failed": (status("failed"), 1),
    "a user's": (status("delivered", sender="user2@loadsim.test"), 1),
    "empty": (lambda _: [(DAEMON, "")], 1),
    "twice": (lambda envelope_id: [*confirming(envelope_id)] * 2, 0),
    "with another": (lambda envelope_id: [*status("delivered", "x")(envelope_id), *confirming(envelope_id)], 1),
}
"""Reports on each message, and how many of them are foreign mail."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGED)
def test_reports_are_receipts_only_of_what_was_requested(tmp_path: Path, name: str) -> None:
    """Anyone can send reports. Those that confirm no request stay foreign mail; a second one counts once."""
    report, foreign = FORGED[name]
    lived, _ = lived_with(tmp_path, report, ONLY_DELIVERY)
    wanted = len(requests(lived, "delivery"))
    arrived = wanted if name in ("twice", "with another") else 0
    assert Counter(span["outcome"] for span in spans(lived))["ok"] == arrived
    assert lived.tape.told["foreign"] == foreign * wanted
    codes = {one.code for one in summarise([lived.log]).verdict.warnings}
    assert (Code.FOREIGN_MAIL in codes) == bool(foreign)


@pytest.mark.slow
def test_read_receipts_are_returned_once_and_accounted_for(tmp_path: Path) -> None:
    """For each message that requests one and is read, by the readers whom the plan names; users do not answer them."""
    lived, system = lived_with(tmp_path)
    load, senders = Workload(lived.scenario), {mail["message"]: mail["sender"] for mail in lived.mails("accepted")}
    due = {
        receipt_id(mail["user"], mail["message"]): (mail["user"], senders[mail["message"]])
        for mail in lived.mails("read")
        if mail["message"] in senders and load.returns_receipt(mail["user"], senders[mail["message"]], mail["message"])
    }
    accepted = {mail["message"]: (mail["sender"], mail["user"]) for mail in lived.mails("accepted")}
    returned = {message: ways for message, ways in accepted.items() if message.startswith(RECEIPT)}
    assert len(returned) > 10
    skipped = len(lived.outcomes("RETURN RECEIPT")) - len(returned)
    assert returned.items() <= due.items() and len(due) <= len(returned) + skipped
    seen = {mail["message"] for event in ("seen", "found") for mail in lived.mails(event)}
    assert returned.keys() <= seen
    assert {mail["message"] for mail in lived.mails("read")} & returned.keys()

    null = [message_from_bytes(message) for sender, message in system.submitted if not sender]
    assert len(null) == len(returned)
    assert {message["Content-Type"].partition(";")[0] for message in null} == {"multipart/report"}
    asking = [message for sender, message in system.submitted if b"\r\nDisposition-Notification-To: " in message]
    assert len(asking) == len(requests(lived, "read"))
    assert not any(message["In-Reply-To"].startswith(f"<{RECEIPT}") for message in null)
    answered = [message_from_bytes(message)["In-Reply-To"] or "" for _, message in system.submitted]
    assert not [one for one in answered if one.startswith(f"<{RECEIPT}")]


class Losing(ReportingMailbox):
    """Each user's session is lost when they first look into a report."""

    lost: set[int] = set()  # noqa: RUF012 - shared by the mailboxes of a run

    async def structure(self, ref: MessageRef) -> Structure:
        if ref.mail.sender == DAEMON and self._account.number not in self.lost:  # type: ignore[attr-defined]
            self.lost.add(self._account.number)
            raise ServerLost("closed")
        return await super().structure(ref)


@pytest.mark.slow
def test_reports_are_tracked_after_a_lost_session(tmp_path: Path) -> None:
    Losing.lost.clear()
    lived, _ = lived_with(tmp_path, profile=ONLY_DELIVERY, mailbox_type=Losing)
    wanted = len(requests(lived, "delivery"))
    assert Counter(lived.outcomes("TRACK RECEIPT")) == {"ok": wanted, "lost": USERS}
    assert Counter(span["outcome"] for span in spans(lived)) == {"ok": wanted}
    assert lived.tape.told["foreign"] == 0


class Refusing(ReportingMailbox):
    """Every report is refused when a user first looks into it."""

    refused: set[tuple[int, MessageRef]] = set()  # noqa: RUF012 - shared by the mailboxes of a run
    failure = partial(ServerRefused, "NO [UNAVAILABLE] UID FETCH")

    async def structure(self, ref: MessageRef) -> Structure:
        key = self._account.number, ref
        if ref.mail.sender == DAEMON and key not in self.refused:  # type: ignore[attr-defined]
            self.refused.add(key)
            raise self.failure()
        return await super().structure(ref)


class Lacking(Refusing):
    failure = partial(MailMissing, "no message")  # type: ignore[assignment]


@pytest.mark.slow
@pytest.mark.parametrize(("mailbox", "times"), [(Refusing, 2), (Lacking, 1)])
def test_a_refused_report_is_tracked_again_unless_it_is_gone(
    tmp_path: Path, mailbox: type[Refusing], times: int
) -> None:
    """The second look is at the next list of mail, which may be that of the drain."""
    Refusing.refused.clear()
    lived, _ = lived_with(tmp_path, profile=ONLY_DELIVERY, mailbox_type=mailbox)
    wanted = len(requests(lived, "delivery"))
    assert Counter(lived.outcomes("TRACK RECEIPT")) == {"refused": wanted} | ({"ok": wanted} if times == 2 else {})
    assert Counter(span["outcome"] for span in spans(lived)) == {"ok" if times == 2 else "unfinished": wanted}


class Poisoned(ReportingMailbox):
    """No session survives a look into a report, from anyone."""

    async def structure(self, ref: MessageRef) -> Structure:
        if ref.mail.sender == DAEMON:  # type: ignore[attr-defined]
            raise ProtocolError("no IMAP", "BODYSTRUCTURE")
        return await super().structure(ref)


@pytest.mark.slow
def test_a_report_that_always_ends_the_session_is_given_up(tmp_path: Path) -> None:
    """Its user goes on with the plan."""
    profile = ONLY_DELIVERY | {"receipts": {"delivery": "5%"}}
    lived, _ = lived_with(tmp_path, profile=profile, mailbox_type=Poisoned)
    wanted = len(requests(lived, "delivery"))
    assert wanted
    assert lived.outcomes("TRACK RECEIPT") == ["lost"] * 2 * wanted
    assert {*lived.outcomes("SEND")} == {"ok"}
    assert lived.tape.told["foreign"] == wanted


NO_NULL_PATH: dict[str, Callable[[], TaskFailed]] = {
    "refused": partial(ServerRefused, "554 RCPT", "554 5.7.1 <>: Sender address rejected"),
    "lost": partial(ServerLost, "lost at MAIL"),
    "timeout": partial(ServerSilent, "no answer to MAIL"),
}


@pytest.mark.slow
@pytest.mark.parametrize("outcome", NO_NULL_PATH)
def test_a_server_without_the_null_return_path_only_loses_read_receipts(tmp_path: Path, outcome: str) -> None:
    """They fail, each once, and a refusal is a finding; users keep their sessions, and the rest of their day."""
    lived, _ = lived_with(tmp_path, refusal=NO_NULL_PATH[outcome])
    returned = lived.outcomes("RETURN RECEIPT")
    assert len(returned) > 10 and {*returned} <= {outcome, "skipped"}
    assert {*lived.outcomes("READ"), *lived.outcomes("REPLY"), *lived.outcomes("SEND")} <= {"ok", "skipped"}
    assert {lived.tape.told[what] for what in ("sessions_lost", "lost_users", "undelivered")} == {0}
    warned = [one for one in summarise([lived.log]).verdict.warnings if one.code is Code.NULL_PATH_REFUSED]
    assert [one.values["answer"] for one in warned] == ["554 RCPT"] * (outcome == "refused")
