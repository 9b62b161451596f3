"""Audits in virtual time: healthy runs have no finding, and each fault of a server is named."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audited_runs import audited
from timing_samples import write_sample
from virtual_runs import EVERYTHING, LISTS, NOWHERE, Lived, live, scenario_of

from loadsim.audit.audit import Auditor
from loadsim.audit.audit_file import open_audit_file
from loadsim.audit.expected import ExpectedMail, InitialMail, MailEvent
from loadsim.audit.judged import HeldCopy, Judged, judge
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.model.draws import draw
from loadsim.model.partition import Assignment
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, DRAFTS, INBOX, PUBLIC, SENT_ITEMS, Flag, MessageRef
from loadsim.protocols.in_memory import InMemoryDriver, InMemoryMailbox
from loadsim.protocols.in_memory_mail import MailInMemory
from loadsim.scenario.workload import Workload
from loadsim.timinglog.reader import read_log

BUSY = EVERYTHING | {
    "new_mail": {"per_day": 16, "recipients": 2, "list_chance": "30%"},
    "process_inbox": {"per_day": 16},
    "browse": {"per_day": 16},
    "schedule": {"per_day": 6},
    "after_browsing": {"reply": "15%", "forward": "15%", "move": "20%", "copy": "20%", "delete": "20%"},
}
USERS = 3


def run(place: Path, seed: int = 1, profile: dict[str, Any] = BUSY, **options: Any) -> Lived:
    times = {"day_length": "300s", "ramp_up": "1s", "warm_up": "0s", "window": "300s", "seed": seed}
    scenario = scenario_of(place, (profile, USERS), run=times, **LISTS)
    return live(scenario, place, service_s=0.05, header={"users": USERS, "engine_users": USERS}, **options)


@pytest.mark.parametrize(("one_copy", "lost"), [(True, False), (False, True)])
def test_a_message_copied_and_moved_to_a_folder_is_there_once_over_jmap(one_copy: bool, lost: bool) -> None:
    expected = ExpectedMail(1, [InitialMail("i" + "a" * 16, INBOX, True)], one_copy)
    message = "i" + "a" * 16
    events = [("copied", "Folder 01"), ("moved", "Folder 01"), ("left", "Folder 01"), ("moved", "Folder 02")]
    for event, folder in events[:2]:
        expected.replay([MailEvent(event, message, folder, 1)])
    found = [HeldCopy(message, "Folder 01", frozenset({"\\seen"}), 1)]
    assert bool(judge(expected, found).faults) == lost
    expected.replay([MailEvent(event, message, folder, 1) for event, folder in events[2:]])
    moved = [found[0]._replace(folder="Folder 02")]
    assert bool(judge(expected, moved).faults) == lost


@pytest.mark.parametrize("empties", [True, False])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_healthy_run_has_no_finding(tmp_path: Path, seed: int, empties: bool) -> None:
    lived = run(tmp_path, seed, BUSY | {"empty_deleted_items_on_log_off": empties})
    faults, totals = audited(lived, tmp_path)
    assert (faults, totals.unknown, totals.unjudged) == ([], 0, 0)
    assert totals.mailboxes == USERS and totals.messages > 60
    recorded = {mail["event"] for mail in lived.tape.mails}
    assert recorded >= {"left", "answered", "forwarded", "moved", "copied", "deleted", "saved"}


@pytest.mark.nightly(part="runs")
def test_200_healthy_runs_have_no_finding(tmp_path: Path) -> None:
    found = Counter[str]()
    for seed in range(1, 201):
        (tmp_path / str(seed)).mkdir()
        faults, totals = audited(run(tmp_path / str(seed), seed), tmp_path / str(seed))
        found.update([fault.code.id for _, fault in faults], unknown=totals.unknown)
    assert found.total() == 0


@pytest.mark.parametrize("failure", [ServerRefused("NO"), ServerLost("reset"), ServerSilent("no answer")])
def test_failed_commands_are_unsure_and_no_fault(tmp_path: Path, failure: TaskFailed) -> None:
    """Commands that fail at random have no effect; what is recorded of them says that it is not known."""

    def fault(user: int, name: str, number: int) -> Exception | None:
        acts = name not in ("IMAP AUTHENTICATE", "IMAP CAPABILITY", "SMTP CONNECT", "SMTP EHLO")
        return failure if acts and draw(1, user, "fault", number) < 0.08 else None

    lived = run(tmp_path, fault=fault)
    faults, _ = audited(lived, tmp_path)
    assert faults == []
    assert lived.mails("unsure")


class Unanswered(InMemoryMailbox):
    """A mailbox that does what it is asked for, and breaks some of the connections instead of an answer."""

    async def _break(self, act: Callable[..., Any], *about: Any) -> Any:
        answer = await act(*about)
        if draw(2, self._account.number, "unanswered", self.dialogue.commands) < 0.1:
            raise ServerLost("reset")
        return answer

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        await self._break(super().move, refs, folder)

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        await self._break(super().copy, refs, folder)

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        return await self._break(super().append, folder, message, flags)  # type: ignore[no-any-return]

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        await self._break(super().flag, refs, flag, on)

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        await self._break(super().expunge, refs)


@pytest.mark.parametrize("seed", range(1, 4))
def test_unanswered_commands_with_an_effect_are_no_fault(tmp_path: Path, seed: int) -> None:
    def wrap(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type = Unanswered
        return driver

    lived = run(tmp_path, seed, wrap=wrap)
    faults, totals = audited(lived, tmp_path)
    assert (faults, totals.unjudged) == ([], 0)
    assert totals.unknown > 0
    assert {mail["folder"] for mail in lived.mails("unsure")} >= {INBOX, SENT_ITEMS, DELETED_ITEMS, CALENDAR}


class Lying(InMemoryMailbox):
    """A mailbox that does wrong once its user has begun to work."""

    @property
    def begun(self) -> bool:
        return self.dialogue.commands > 30


class MovesNothing(Lying):
    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        await self._run_on("IMAP UID MOVE", refs, 60, 100)


class AppendsNothing(Lying):
    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        await self._command("IMAP APPEND", len(message) + 60, 60)
        return None


class DropsFlags(Lying):
    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        await self._run_on("IMAP UID STORE", refs)


class DeliversFlagged(Lying):
    """As read, or as a draft that somebody has flagged."""

    def receive(self, mail: MailInMemory) -> None:
        super().receive(mail)
        flags: Any = {Flag.SEEN} if self._account.number == 1 else {"\\Flagged", "\\Draft"}
        self._inbox.messages[self._inbox.next_uid - 1].flags = frozenset(flags)  # type: ignore[union-attr]


class CopiesWithoutFlags(Lying):
    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        for message in await self._run_on("IMAP UID COPY", refs, 60, 100):
            self.folder(folder).add(message.mail, frozenset())  # type: ignore[attr-defined]


class ExpungesOneMore(Lying):
    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        await super().expunge(refs)
        sent = self.folder(SENT_ITEMS).messages
        if sent:
            del sent[min(sent)]


class ExpungesNothing(Lying):
    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        await self._run_on("IMAP UID STORE", refs)


class DeliversTwice(Lying):
    def receive(self, mail: MailInMemory) -> None:
        super().receive(mail)
        super().receive(mail)


class DeliversNothing(Lying):
    def receive(self, mail: MailInMemory) -> None:
        if not self.begun:
            super().receive(mail)


class DeliversToOthers(Lying):
    """A message for another goes to a user who may have one already: it is lost, and doubled."""

    def receive(self, mail: MailInMemory) -> None:
        self._system.mailboxes[1 if self._account.number != 1 else 2]._inbox.add(mail, frozenset())


class LosesAll(Lying):
    """It also stores no mail any more: the state after an unsynced disk has lost its power."""

    async def log_off(self) -> None:
        await super().log_off()
        for folder in self._folders.values():
            folder.messages.clear()


def loses(command: str, failure: TaskFailed) -> type[Lying]:
    """A mailbox that loses the messages of its first five commands of a name, and says that these have failed."""

    class Loses(Lying):
        lost = 0

        async def _lose(self, refs: Sequence[MessageRef]) -> None:
            for message in await self._run_on(command, refs):
                del message.folder.messages[message.uid]
                Loses.lost += 1
            raise failure

    async def instead(self: Loses, refs: Sequence[MessageRef], *rest: Any) -> None:
        if self.begun and Loses.lost < 5:
            await self._lose(refs)
        await getattr(InMemoryMailbox, name)(self, refs, *rest)

    name = {"UID MOVE": "move", "UID COPY": "copy", "UID STORE": "flag"}[command]
    setattr(Loses, name, instead)
    return Loses


@pytest.mark.parametrize("failure", [ServerRefused("NO"), ServerLost("reset")])
@pytest.mark.parametrize("command", ["UID MOVE", "UID COPY", "UID STORE"])
def test_mail_lost_by_a_failing_command_is_found(tmp_path: Path, command: str, failure: TaskFailed) -> None:
    server = loses(command, failure)

    def wrap(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type = server
        return driver

    faults, _ = audited(run(tmp_path, wrap=wrap), tmp_path)
    assert [fault.code for _, fault in faults] == [Code.MAIL_LOST] * server.lost  # type: ignore[attr-defined]
    assert server.lost >= 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("server", "codes", "folders"),
    [
        (MovesNothing, {Code.MAIL_MISFILED}, {INBOX, "Folder 01", "Folder 02", "Folder 03"}),
        (AppendsNothing, {Code.MAIL_LOST}, {SENT_ITEMS, CALENDAR}),
        (DropsFlags, {Code.FLAG_LOST}, None),
        (DeliversFlagged, {Code.FLAG_UNEXPECTED}, None),
        (CopiesWithoutFlags, {Code.FLAG_LOST}, {"Folder 01", "Folder 02", "Folder 03"}),
        (ExpungesOneMore, {Code.MAIL_LOST}, {SENT_ITEMS}),
        (ExpungesNothing, {Code.MAIL_UNEXPECTED}, {DELETED_ITEMS, CALENDAR}),
        (DeliversTwice, {Code.MAIL_DUPLICATED}, None),
        (DeliversNothing, {Code.MAIL_LOST}, {INBOX}),
        (DeliversToOthers, {Code.MAIL_MISDELIVERED, Code.MAIL_LOST, Code.MAIL_DUPLICATED}, None),
        (LosesAll, {Code.MAIL_LOST}, None),
    ],
)
def test_each_server_fault_has_its_code(
    tmp_path: Path, server: type[InMemoryMailbox], codes: set[Code], folders: set[str] | None
) -> None:
    def wrap(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type = server
        return driver

    faults, _ = audited(run(tmp_path, wrap=wrap), tmp_path)
    found = Counter(fault.code.id for _, fault in faults)
    assert found.keys() == {code.id for code in codes}
    if folders is not None:
        assert {fault.folder for _, fault in faults} <= folders


START = [InitialMail("ia", INBOX, seen=False), InitialMail("ib", "Folder 01", seen=True)]


def judged(events: Sequence[tuple[str, str, str]], found: Iterable[tuple[str, str, str]]) -> list[tuple[Any, ...]]:
    """The faults of a mailbox; of what is found: id, folder, and letters of the flags, `!` for a body that differs."""
    altered = {True: Code.MAIL_ALTERED, False: None}
    mailbox = ExpectedMail(1, START)
    mailbox.replay(MailEvent(*event, sender=2) for event in events)
    names = {"S": "\\seen", "A": "\\answered", "F": "$forwarded", "D": "\\draft", "X": "\\deleted"}
    messages = [
        HeldCopy(
            *(message, folder, frozenset(names[each] for each in flags if each != "!"), 2), fault=altered["!" in flags]
        )
        for message, folder, flags in found
    ]
    return [(fault.code, fault.message, fault.folder, fault.wanted) for fault in judge(mailbox, messages).faults]


KEPT = [("ia", INBOX, ""), ("ib", "Folder 01", "S")]
N1 = [("accepted", "n1", "individual"), ("seen", "n1", INBOX), ("read", "n1", INBOX)]
UNSURE_MOVE = [("unsure", "n1", INBOX), ("unsure", "n1", "Folder 02")]
UNSURE_REMOVAL = [("left", "n1", INBOX), ("unsure", "n1", INBOX)]
UNSURE_EXPUNGE = [("left", "n1", DELETED_ITEMS), ("unsure", "n1", DELETED_ITEMS)]


@pytest.mark.parametrize(
    ("events", "found", "faults"),
    [
        ([], KEPT, []),
        ([], KEPT[:1], [(Code.MAIL_LOST, "ib", "Folder 01", "")]),
        ([], [*KEPT, KEPT[1]], [(Code.MAIL_DUPLICATED, "ib", "Folder 01", "")]),
        ([], [KEPT[0], ("ib", "Folder 01", "S!")], [(Code.MAIL_ALTERED, "ib", "Folder 01", "")]),
        ([], [KEPT[0], ("ib", "Folder 02", "S")], [(Code.MAIL_MISFILED, "ib", "Folder 02", "Folder 01")]),
        ([], [KEPT[0], ("ib", "Folder 01", "")], [(Code.FLAG_LOST, "ib", "Folder 01", Flag.SEEN)]),
        ([], [*KEPT, ("iz", INBOX, "")], [(Code.MAIL_UNEXPECTED, "iz", INBOX, "")]),
        (N1[:1], KEPT, [(Code.MAIL_LOST, "n1", INBOX, "")]),
        (N1, [*KEPT, ("n1", INBOX, "S")], []),
        (N1, [*KEPT, ("n1", INBOX, "")], [(Code.FLAG_LOST, "n1", INBOX, Flag.SEEN)]),
        # Flags that were never set; a copy may have those of another copy.
        ([], [("ia", INBOX, "SA"), KEPT[1]],
         [(Code.FLAG_UNEXPECTED, "ia", INBOX, Flag.SEEN), (Code.FLAG_UNEXPECTED, "ia", INBOX, Flag.ANSWERED)]),
        (N1[:2], [*KEPT, ("n1", INBOX, "D")], [(Code.FLAG_UNEXPECTED, "n1", INBOX, "\\Draft")]),
        ([*N1[:2], ("copied", "n1", "Folder 02"), N1[2]], [*KEPT, ("n1", INBOX, "S"), ("n1", "Folder 02", "S")], []),
        # A move takes the flags along, a copy leaves the message.
        ([*N1, ("moved", "n1", "Folder 02")], [*KEPT, ("n1", "Folder 02", "S")], []),
        ([*N1, ("moved", "n1", "Folder 02")], [*KEPT, ("n1", "Folder 02", "")],
         [(Code.FLAG_LOST, "n1", "Folder 02", Flag.SEEN)]),
        ([*N1, ("copied", "n1", "Folder 02")], [*KEPT, ("n1", "Folder 02", "S"), ("n1", INBOX, "S")], []),
        # `left` names the source.
        ([("left", "ib", "Folder 01"), ("moved", "ib", "Folder 02")], [KEPT[0], ("ib", "Folder 02", "S")], []),
        # Emptied Deleted Items stay empty, also if there is a copy elsewhere.
        ([*N1, ("deleted", "n1", DELETED_ITEMS), ("expunged", "n1", DELETED_ITEMS)], KEPT, []),
        (
            [*N1, ("copied", "n1", "Folder 02"), ("deleted", "n1", DELETED_ITEMS), ("expunged", "n1", DELETED_ITEMS)],
            [*KEPT, ("n1", "Folder 02", "S"), ("n1", DELETED_ITEMS, "S")],
            [(Code.MAIL_UNEXPECTED, "n1", DELETED_ITEMS, "")],
        ),
        # What an EXPUNGE was to remove, or a MOVE: marked, and still there. Marked mail that must be there is lost.
        ([*N1, ("deleted", "n1", DELETED_ITEMS), ("expunged", "n1", DELETED_ITEMS)],
         [*KEPT, ("n1", DELETED_ITEMS, "SX")], [(Code.MAIL_UNEXPECTED, "n1", DELETED_ITEMS, "")]),
        ([*N1, ("moved", "n1", "Folder 02")], [*KEPT, ("n1", "Folder 02", "S"), ("n1", INBOX, "SX")],
         [(Code.MAIL_UNEXPECTED, "n1", INBOX, "")]),
        (N1, [*KEPT, ("n1", INBOX, "SX")], [(Code.MAIL_LOST, "n1", INBOX, "")]),
        ([*N1, ("deleted", "n1", DELETED_ITEMS), *UNSURE_EXPUNGE], [*KEPT, ("n1", DELETED_ITEMS, "SX")], []),
        ([("saved", "s1", CALENDAR), ("saved", "s2", CALENDAR)], [*KEPT, ("s2", CALENDAR, "S"), ("s1", CALENDAR, "X")],
         [(Code.MAIL_UNEXPECTED, "s1", CALENDAR, "")]),
        # A draft is flagged as such, also if it has been sent.
        ([("saved", "n1", DRAFTS), ("saved", "n1", SENT_ITEMS)], [*KEPT, ("n1", DRAFTS, "SD"), ("n1", SENT_ITEMS, "S")],
         []),
        ([("saved", "n1", DRAFTS)], [*KEPT, ("n1", DRAFTS, "S")], [(Code.FLAG_LOST, "n1", DRAFTS, Flag.DRAFT)]),
        ([("saved", "n1", DRAFTS)], KEPT, [(Code.MAIL_LOST, "n1", DRAFTS, "")]),
        # A copy that the server has made, and that its user has removed again.
        ([*N1, ("seen", "n1", INBOX), ("deleted", "n1", DELETED_ITEMS)],
         [*KEPT, ("n1", INBOX, "S"), ("n1", DELETED_ITEMS, "S")], [(Code.MAIL_DUPLICATED, "n1", INBOX, "")]),
        ([*N1, ("seen", "n1", INBOX)], [*KEPT, ("n1", INBOX, "S")], [(Code.MAIL_DUPLICATED, "n1", INBOX, "")]),
        # One that the server has put elsewhere, where its user has found it.
        ([N1[0], ("left", "n1", "Folder 01"), ("moved", "n1", "Folder 02")], [*KEPT, ("n1", "Folder 02", "")],
         [(Code.MAIL_MISFILED, "n1", "Folder 01", INBOX)]),
        # After a move that has failed, the message is in the source or in the target, and nowhere else.
        ([*N1, *UNSURE_MOVE], KEPT, [(Code.MAIL_LOST, "n1", INBOX, "")]),
        ([*N1, *UNSURE_MOVE], [*KEPT, ("n1", INBOX, "")], []),
        ([*N1, *UNSURE_MOVE], [*KEPT, ("n1", "Folder 02", "")], []),
        ([*N1, *UNSURE_MOVE], [*KEPT, ("n1", INBOX, ""), ("n1", "Folder 02", "")], []),
        ([*N1, *UNSURE_MOVE], [*KEPT, ("n1", "Folder 03", "S")], [(Code.MAIL_MISFILED, "n1", "Folder 03", INBOX)]),
        ([*N1, *UNSURE_MOVE, ("left", "n1", "Folder 02"), ("moved", "n1", "Folder 03")], KEPT,
         [(Code.MAIL_LOST, "n1", "Folder 03", "")]),
        # A flag that was refused moves nothing; a copy that was refused leaves the message.
        ([*N1, ("unsure", "n1", INBOX)], KEPT, [(Code.MAIL_LOST, "n1", INBOX, "")]),
        ([*N1, ("copied", "n1", "Folder 02"), ("unsure", "n1", "Folder 02")], [*KEPT, ("n1", "Folder 02", "S")],
         [(Code.MAIL_LOST, "n1", INBOX, "")]),
        ([*N1, ("unsure", "n1", "Folder 02")], [*KEPT, ("n1", INBOX, ""), ("n1", "Folder 02", "")], []),
        # Removed for good, or perhaps: also from where a move may have put it.
        ([*N1, ("deleted", "n1", DELETED_ITEMS), *UNSURE_EXPUNGE], KEPT, []),
        ([*N1, ("deleted", "n1", DELETED_ITEMS), *UNSURE_EXPUNGE], [*KEPT, ("n1", DELETED_ITEMS, "S")], []),
        ([*N1, ("unsure", "n1", INBOX), ("unsure", "n1", DELETED_ITEMS), ("expunged", "n1", DELETED_ITEMS)], KEPT, []),
        ([*N1, ("unsure", "n1", INBOX), ("unsure", "n1", DELETED_ITEMS), *UNSURE_EXPUNGE], KEPT, []),
        # From the Inbox, too, as over POP3.
        ([*N1, *UNSURE_REMOVAL], KEPT, []),
        ([*N1, *UNSURE_REMOVAL], [*KEPT, ("n1", INBOX, "")], []),
        ([*N1, *UNSURE_REMOVAL], [*KEPT, ("n1", "Folder 02", "")], [(Code.MAIL_UNEXPECTED, "n1", "Folder 02", "")]),
        ([*N1, ("expunged", "n1", INBOX)], KEPT, []),
        ([*N1, ("expunged", "n1", INBOX)], [*KEPT, ("n1", INBOX, "")], [(Code.MAIL_UNEXPECTED, "n1", INBOX, "")]),
        # A message whose sending has failed need not be there; one that was seen must be.
        ([("unsure", "n1", INBOX)], KEPT, []),
        ([("unsure", "n1", INBOX)], [*KEPT, ("n1", INBOX, "")], []),
        ([("seen", "n1", INBOX), ("moved", "n1", "Folder 02"), ("unsure", "n1", INBOX)], KEPT,
         [(Code.MAIL_LOST, "n1", "Folder 02", "")]),
        ([("unsure", "n1", INBOX), ("seen", "n1", INBOX)], KEPT, [(Code.MAIL_LOST, "n1", INBOX, "")]),
        ([*N1, ("unsure", "n1", "Folder 02")], [*KEPT, ("n1", INBOX, "!")], [(Code.MAIL_ALTERED, "n1", INBOX, "")]),
        # The calendar has the last schedule; if a change has failed since, the old one, the new one, or both.
        ([("saved", "s1", CALENDAR), ("saved", "s2", CALENDAR)], [*KEPT, ("s2", CALENDAR, "S")], []),
        ([("saved", "s1", CALENDAR), ("saved", "s2", CALENDAR)], [*KEPT, ("s1", CALENDAR, "S")],
         [(Code.MAIL_UNEXPECTED, "s1", CALENDAR, ""), (Code.MAIL_LOST, "s2", CALENDAR, "")]),
        ([("saved", "s1", CALENDAR), ("unsure", "s2", CALENDAR)], KEPT, [(Code.MAIL_LOST, "s1", CALENDAR, "")]),
        ([("saved", "s1", CALENDAR), ("unsure", "s2", CALENDAR)], [*KEPT, ("s2", CALENDAR, "")], []),
        ([("saved", "s0", CALENDAR), ("saved", "s1", CALENDAR), ("unsure", "s2", CALENDAR)],
         [*KEPT, ("s1", CALENDAR, "S"), ("s0", CALENDAR, "S")], [(Code.MAIL_UNEXPECTED, "s0", CALENDAR, "")]),
        ([("unsure", "s1", CALENDAR), ("unsure", "s2", CALENDAR)], KEPT, []),
        ([("unsure", "s1", CALENDAR), ("saved", "s2", CALENDAR)], KEPT, [(Code.MAIL_LOST, "s2", CALENDAR, "")]),
    ],
)  # fmt: skip
def test_each_action_implies_where_mail_must_be(events: list[Any], found: list[Any], faults: list[Any]) -> None:
    assert judged(events, found) == faults


@pytest.mark.parametrize("folder", [SENT_ITEMS, "Folder 01"])
@pytest.mark.parametrize("saved", [False, True])
def test_a_server_may_save_sent_mail_that_its_user_did_not_save(folder: str, saved: bool) -> None:
    """MAPI does so, and the end of a run may come before SAVE SENT. The user may also be on the list."""
    mailbox = ExpectedMail(1, START)
    mailbox.replay([MailEvent("accepted", "n1", "list", 1), *([MailEvent("saved", "n1", SENT_ITEMS, 1)] * saved)])
    places = (INBOX, folder, *([SENT_ITEMS] * saved))
    there = [HeldCopy("n1", at, frozenset({"\\seen"} if at == SENT_ITEMS else ()), 1) for at in places]
    start = [HeldCopy(one.message, one.folder, frozenset({"\\seen"} if one.seen else ()), 2) for one in START]
    faults = judge(mailbox, [*start, *there]).faults
    assert [fault.code for fault in faults] == [Code.MAIL_DUPLICATED] * (saved or folder != SENT_ITEMS)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_server_may_save_one_copy_of_sent_mail(copies: int) -> None:
    mailbox = ExpectedMail(1, START)
    mailbox.replay([MailEvent("accepted", "n1", "individual", 1)])
    there = [HeldCopy("n1", at, frozenset(), 1) for at in (INBOX, *[SENT_ITEMS] * copies)]
    faults = [fault.folder for fault in judge(mailbox, there).faults if fault.message == "n1"]
    assert faults == [SENT_ITEMS] * (copies - 1)


def test_without_a_known_start_state_only_mail_of_the_run_is_judged() -> None:
    mailbox = ExpectedMail(1, None)
    mailbox.replay([MailEvent("deleted", "ia", DELETED_ITEMS, 2), MailEvent("accepted", "n1", "list", 2)])
    there = HeldCopy("ib", INBOX, frozenset(), sender=2)
    assert [fault.message for fault in judge(mailbox, [there]).faults] == ["n1"]


def test_incomplete_records_allow_judging_bodies_only() -> None:
    """One that cannot be read is as good as lost."""
    for code in (Code.MAIL_ALTERED, Code.LINE_ENDS, Code.MAIL_LOST):
        mailbox = ExpectedMail(1, START)
        there = HeldCopy("ib", "Folder 01", frozenset(), sender=2, fault=code)
        result = judge(mailbox, [there], complete=False)
        assert [fault.code for fault in result.faults] == [code]
        assert not result.complete


def test_users_with_incomplete_records_are_not_judged(tmp_path: Path) -> None:
    """Those of a log that is damaged, missing or without an end; the others are."""
    lived = run(tmp_path)
    (source,) = lived.log.sources
    one, others = (
        replace(source, engine=name, users=len(assignment), assignment=assignment)
        for name, assignment in (("0", Assignment(3, 1, 1, 2)), ("1", Assignment(3, 1, 2, 4)))
    )
    for mailbox in lived.driver.mailboxes.values():
        mailbox.folder(SENT_ITEMS).messages.clear()
    for sources, unjudged in (
        ([one, others], 0),
        ([one, replace(others, is_damaged=True)], 2),
        ([replace(one, is_damaged=True), others], 1),
        ([replace(one, facts=one.facts._replace(ended=None)), others], 1),
        ([one], 2),
        ([replace(source, is_damaged=True)], 3),
        ([replace(source, users=2)], 3),  # of which it is not known who they are
    ):
        log = replace(lived.log, sources=tuple(sources))
        faults, totals = audited(lived, tmp_path, log)
        assert totals.unjudged == unjudged
        assert len({user for user, _ in faults}) == 3 - unjudged


def test_mail_of_senders_with_lost_records_is_not_judged(tmp_path: Path) -> None:
    """It is no mail whose place a failed command made unknown: a lost client is no fault of the server."""
    there = HeldCopy("n1", INBOX, frozenset(), sender=1)
    for at, events in enumerate(([], [MailEvent("seen", "n1", INBOX, 1)])):
        expected = ExpectedMail(2, None)
        expected.replay(events)
        with open_audit_file(tmp_path / f"{at}.sqlite", read_log(write_sample(tmp_path / f"{at}.tlog"))) as file:
            file.take(2, judge(expected, [there]))
            assert file.settle([3]).unknown == 0
            assert file.counts() == {Code.MAIL_UNEXPECTED: 1}
            assert file.settle([1]).unknown == 0
            assert file.counts() == {}


def test_mail_of_the_start_state_of_another_user_is_misdelivered(tmp_path: Path) -> None:
    expected = ExpectedMail(2, START)
    there = [HeldCopy(one.message, one.folder, frozenset({"\\seen"} if one.seen else ()), 2) for one in START]
    with open_audit_file(tmp_path / "a.sqlite", read_log(write_sample(tmp_path / "a.tlog"))) as file:
        file.take(2, judge(expected, [*there, HeldCopy("iz", "Folder 01", frozenset(), sender=1)]))
        assert file.settle([]).unknown == 0
        assert file.counts() == {Code.MAIL_MISDELIVERED: 1}


def test_an_interrupted_audit_goes_on_unless_there_are_more_records(tmp_path: Path) -> None:
    """As after `loadsim cluster collect`: what was judged without them may be wrong."""
    mail = {"message": "n1", "user": 2, "sender": 1, "folder": "individual", "event": "accepted", "at_ns": 0}
    path = tmp_path / "audit.sqlite"
    resumed = []
    for records in (1, 1, 2):
        write_sample(tmp_path / f"{len(resumed)}.tlog", [], [mail] * records)
        with open_audit_file(path, read_log(tmp_path / f"{len(resumed)}.tlog")) as file:
            resumed.append(file.is_read(2))
            assert len(list(file.events(2))) == records
            file.take(2, Judged(1))
            assert file.is_read(2) and not file.is_read(1)
    assert resumed == [False, True, False]


def test_flags_that_a_folder_never_keeps_are_not_judged() -> None:
    """It may last for the session that has set it."""
    never = frozenset({"\\seen", "\\draft"})
    kept = [
        HeldCopy("ia", INBOX, frozenset({"\\draft"}), sender=2, never_kept=never),
        HeldCopy("ib", "Folder 01", frozenset(), sender=2, never_kept=never),
    ]
    assert judge(ExpectedMail(1, START), kept).faults == ()


def test_an_audit_interrupted_at_the_public_folder_has_not_read_its_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, the next audit would leave out the folder, and find no lost posts."""
    scenario = scenario_of(tmp_path, (BUSY, USERS), folders={"public": "Notices"})
    topology = tuple(replace(group, protocol="imap") for group in scenario.topology)
    log = read_log(write_sample(tmp_path / "a.tlog"))
    accounts = [scenario.account(user) for user in range(1, USERS + 1)]

    async def read_mailbox(*about: Any) -> Any:
        if about[-1] == [PUBLIC]:
            raise asyncio.CancelledError
        return [], Counter()

    async def visit(accounts: Any, services: Any, work: Any, progress: Any) -> list[None]:
        return [await work(account, None) for account in accounts]

    monkeypatch.setattr("loadsim.audit.audit.read_mailbox", read_mailbox)
    monkeypatch.setattr("loadsim.audit.audit.visit", visit)
    with open_audit_file(tmp_path / "audit.sqlite", log) as file:
        auditor = Auditor(Workload(replace(scenario, topology=topology)), log, file)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(auditor.read_all(accounts, NOWHERE, lambda *_: None))
        assert not file.is_read(1)
