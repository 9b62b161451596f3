"""Each task's commands, the recipients of mail, and the tasks that follow from others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import EVERYTHING, LISTS, Lived, assert_one_at_a_time, chosen, live, quiet, recipients, scenario_of

from loadsim.analysis.summary import summarise
from loadsim.errors import ServerRefused
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.severity import Severity
from loadsim.model.message_tag import INITIAL, MessageTag, answer_id
from loadsim.model.ports import ALL_TASKS, INBOX, SENT_ITEMS, Flag, Header, MessageRef, Part, SearchKey
from loadsim.model.terms import ASSISTANT_TASKS, PUBLIC_TASKS, RECEIPT_TASKS
from loadsim.protocols.in_memory import NO_FLAGS, InMemoryDriver, InMemoryMailbox
from loadsim.scenario.profile import load_profile
from loadsim.scenario.workload import PROCESS_INBOX, Workload
from loadsim.users.activities import TASKS, process_inbox
from loadsim.users.inbox import MOST_ANNOUNCEMENTS, Inbox, Unread

LOG_ON = ["IMAP AUTHENTICATE", "IMAP CAPABILITY", "IMAP LIST", "IMAP SELECT"]
FETCH, STORE, SELECT = "IMAP UID FETCH", "IMAP UID STORE", "IMAP SELECT"
SUBMIT = ["SMTP CONNECT", "SMTP EHLO", "SMTP MAIL", "SMTP RCPT", "SMTP DATA"]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    place = tmp_path_factory.mktemp("busy")
    return live(scenario_of(place, (EVERYTHING, 6), day="900s", **LISTS), place)


def once(commands: list[str]) -> list[str]:
    """With RCPT once, however many recipients there were, and one look at a folder, however many were looked at."""
    found = [name for at, name in enumerate(commands) if name != "SMTP RCPT" or commands[at - 1] != name]
    while found[1:5] == [SELECT, "IMAP FETCH"] * 2:
        del found[1:3]
    return found


TABLE: dict[str, list[list[str]]] = {
    "LOGON": [[*LOG_ON, "IMAP FETCH", "IMAP IDLE"]],
    "SYNC": [[FETCH, "IMAP IDLE"]],
    "READ": [[FETCH, FETCH, STORE]],
    "LOAD ATTACHMENT": [[FETCH], [SELECT, FETCH, SELECT]],
    **{name: [SUBMIT] for name in ("SEND", "REPLY", "REPLY ALL")},
    "FORWARD": [SUBMIT, [FETCH, *SUBMIT]],
    "SAVE SENT": [["IMAP APPEND"], ["IMAP APPEND", STORE]],
    "MOVE": [["IMAP UID MOVE"]],
    "COPY": [["IMAP UID COPY"]],
    "DELETE": [["IMAP UID MOVE"]],
    "DELETE UNREAD": [["IMAP UID MOVE"]],
    "SEARCH": [["IMAP UID SEARCH", FETCH, FETCH, FETCH]],
    "BROWSE": [[SELECT, "IMAP FETCH", FETCH, FETCH, SELECT]],
    "SCHEDULE": [[SELECT, "IMAP APPEND", SELECT], ["IMAP APPEND", SELECT, STORE, "IMAP UID EXPUNGE", SELECT]],
    "EVICT": [["IMAP UID MOVE"]],
    "LOGOFF": [["IMAP LIST", SELECT, "IMAP FETCH", STORE, "IMAP UID EXPUNGE", SELECT, "IMAP FETCH", "IMAP LOGOUT"]],
}
"""Document: the design's table of tasks. The first schedule has nothing to replace, but must look.
An attachment of browsed mail lies in another folder."""


def test_the_table_names_every_task() -> None:
    further = {
        *ASSISTANT_TASKS,
        *RECEIPT_TASKS,
        *PUBLIC_TASKS,
        "FIRST SYNC",
        "RESOLVE",
    }  # of other programs and servers
    assert {*TABLE, *further} == set(TASKS) == ALL_TASKS
    assert all(task.name == name for name, task in TASKS.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_each_task_sends_its_commands_in_order(busy: Lived, name: str) -> None:
    """Every task that went well gave one of the rows of its table, and every row came up."""
    done = [once(task["commands"]) for task in busy.tasks(name) if task["outcome"] == "ok"]
    expected = TABLE[name]
    assert done
    assert all(commands in expected for commands in done), Counter(map(tuple, done))
    assert all(commands in done for commands in expected)


def test_on_a_server_without_faults_nothing_fails(busy: Lived) -> None:
    assert {task["outcome"] for task in busy.tape.tasks} == {"ok"}
    assert busy.failure is None
    accepted = {(mail["message"], mail["user"]) for mail in busy.mails("accepted")}
    assert accepted == {(mail["message"], mail["user"]) for mail in busy.mails("seen")}
    assert len(accepted) == len(busy.mails("accepted")) == len(busy.mails("seen"))
    assert busy.engine.outstanding == busy.tape.told["undelivered"] == 0
    assert not busy.mails("found")
    assert not busy.mails("missing") and not busy.mails("doubled")


def test_a_user_does_one_thing_at_a_time(busy: Lived) -> None:
    assert_one_at_a_time(busy)


def test_following_tasks_are_due_regardless_of_service_times(tmp_path: Path) -> None:
    """Tasks of one processing are due at its due time plus the delays before them, compressed.

    Each begins when what was done with the last message has ended, and its own delay is over.
    """
    profile = quiet(
        process_inbox={"per_day": 5, "read_note_delay": {"min": "4s", "average": "4s", "max": "4s"}},
        after_reading={"reply": "50%", "copy": "50%"},
        messages={"ups1K": 0, "ups10Kat": 1},
        load_attachment="100%",
        start_state={"inbox": 8},
    )
    lived = live(scenario_of(tmp_path, (profile, 2), day="15m"), tmp_path)
    delay_ns = 4 * 10**9 // 32  # a day of 8 hours in a quarter of one
    followers = {
        "READ": ("LOAD ATTACHMENT",),
        "LOAD ATTACHMENT": ("REPLY", "COPY"),
        "REPLY": ("SAVE SENT",),
        "SAVE SENT": ("READ",),
        "COPY": ("READ",),
    }
    for user in (1, 2):
        chain = [task for task in lived.tasks(user=user) if task["task"] not in ("LOGON", "SYNC", "LOGOFF")]
        assert len([task for task in chain if task["task"] == "READ"]) >= 8
        for cause, task in list(pairwise(chain))[: 4 * 7]:
            if cause["task"] in ("SAVE SENT", "COPY") and task["started_ns"] - cause["ended_ns"] > 10 * delay_ns:
                break  # the next processing of the Inbox, an activity of its own
            assert task["task"] in followers[cause["task"]]
            delay = delay_ns if task["task"] == "READ" else 0
            assert task["scheduled_ns"] == cause["scheduled_ns"] + delay
            assert task["started_ns"] == cause["ended_ns"] + delay


def test_each_message_has_one_outcome(busy: Lived) -> None:
    """No message is both moved and copied or deleted after it was read; every message is answered once at most."""
    evictions = {(task["user"], task["ended_ns"]) for task in busy.tasks("EVICT")}
    evicted = {mail["message"] for mail in busy.mails("deleted") if (mail["user"], mail["at_ns"]) in evictions}
    acts = Counter(
        (mail["user"], mail["message"])
        for mail in busy.tape.mails
        if mail["event"] in ("moved", "copied", "deleted") and mail["message"] not in evicted
    )
    assert max(acts.values()) == 1
    answers = {mail["message"] for mail in busy.mails("accepted") if mail["message"].startswith("r")}
    for user, message in acts:
        assert not answers & {answer_id(user, message, how) for how in ("reply", "reply_all", "forward")}


@pytest.mark.slow
def test_a_messages_outcome_does_not_depend_on_the_server(tmp_path: Path, busy: Lived) -> None:
    """On a slower server, a population does the same with every message that both runs acted upon."""
    slow = live(scenario_of(tmp_path, (EVERYTHING, 6), day="900s", **LISTS), tmp_path, service_s=0.2)
    compared = 0
    for user in range(1, 7):
        ours, theirs = ((after_reading(lived, user)) for lived in (busy, slow))
        assert {message: act for message, act in theirs.items() if message in ours}.items() <= ours.items()
        compared += len(ours.keys() & theirs.keys())
    assert compared > 100


def after_reading(lived: Lived, user: int) -> dict[str, tuple[str, str]]:
    at = {task["ended_ns"] for task in lived.tasks(user=user) if task["task"] in ("MOVE", "COPY", "DELETE")}
    return {
        mail["message"]: (mail["event"], mail["folder"])
        for mail in lived.tape.mails
        if mail["user"] == user and mail["event"] in ("moved", "copied", "deleted") and mail["at_ns"] in at
    }


@pytest.mark.slow
def test_answers_never_go_to_a_list_or_their_sender(tmp_path: Path) -> None:
    """Reply: the sender, or the first addressee of own mail that a list brought back; all: sender and individuals."""
    profile = quiet(
        new_mail={"per_day": 30, "recipients": 2, "list_chance": "60%"},
        process_inbox={"per_day": 40},
        after_reading={"reply": "20%", "reply_all": "30%"},
    )
    lived = live(scenario_of(tmp_path, (profile, 6), day="600s", **LISTS), tmp_path, service_s=0)
    workload = Workload(lived.scenario)
    sent = recipients(lived)
    people: dict[str, tuple[int, list[int]]] = {}  # message: its sender, the individuals that it names
    checked = Counter[str]()
    for user in range(1, 7):
        for index in range(1000):
            message = f"n{user}.{index}"
            if message not in sent:
                break
            to = workload.addressing(user, workload.profile(user), "new mail", index)
            people[message] = user, list(to.users)
            assert sent[message] == workload.recipients(to)
    for message, (sender, individuals) in list(people.items()):
        for user in sent[message]:
            everyone = [each for each in dict.fromkeys((sender, *individuals)) if each != user]
            for how, expected in (("reply", everyone[:1]), ("reply_all", everyone)):
                reached = sent.get(answer_id(user, message, how))
                if reached is not None:
                    checked[how, sender == user] += 1
                    assert reached == set(expected)
                    assert user not in reached
    assert set(checked) == {("reply", False), ("reply", True), ("reply_all", False), ("reply_all", True)}


def test_each_sent_message_is_saved_once(busy: Lived) -> None:
    """Each message that was accepted lies in its sender's Sent Items, once."""
    saved = Counter(mail["message"] for mail in busy.mails("saved") if mail["folder"] == SENT_ITEMS)
    assert saved == Counter(set(recipients(busy)))


def test_an_answer_flags_the_message_that_it_answers(tmp_path: Path) -> None:
    """As answered or as forwarded once the copy is saved; no other message has a flag except seen."""
    after = {"reply": "30%", "reply_all": "30%", "forward": "30%"}
    profile = quiet(process_inbox={"per_day": 4}, start_state={"inbox": 12}, after_reading=after)
    lived = live(scenario_of(tmp_path, (profile, 3), day="600s"), tmp_path)
    saved = {mail["message"] for mail in lived.mails("saved")}
    flags = {"reply": Flag.ANSWERED, "reply_all": Flag.ANSWERED, "forward": Flag.FORWARDED}
    seen = Counter[str]()
    for user, mailbox in lived.driver.mailboxes.items():
        for message in mailbox.folder(INBOX).messages.values():
            if message is not None and message.mail.tag is not None:
                answers = [how for how in flags if answer_id(user, message.mail.tag.id, how) in saved]
                assert message.flags - {Flag.SEEN} == {flags[how] for how in answers}
                seen.update(answers)
    assert seen.keys() == flags.keys() and seen.total() == len(saved)


def test_an_unreadable_message_is_retried_at_the_next_processing(tmp_path: Path) -> None:
    """Within one processing of the Inbox each message is tried once; it is neither lost nor tried for ever."""
    profile = quiet(process_inbox={"per_day": 6}, start_state={"inbox": 2})
    refusals = {(1, FETCH, number): ServerRefused("NO", "try later") for number in range(3)}
    lived = live(scenario_of(tmp_path, (profile, 2), day="600s"), tmp_path, fault=chosen(refusals))
    activities = Workload(lived.scenario).activities(1)
    times = [activity.due_us for activity in activities if activity.kind == PROCESS_INBOX]
    reads = lived.tasks("READ", user=1)
    assert [task["outcome"] for task in reads] == ["refused", "refused", "refused", "ok", "ok"]
    start = lived.engine.start_ns
    assert [reads[0]["scheduled_ns"], reads[2]["scheduled_ns"], reads[4]["scheduled_ns"]] == [
        start + due_us * 1000 for due_us in times[:3]
    ]
    read = Counter(mail["message"] for mail in lived.mails("read", user=1))
    assert sorted(read.values()) == [1, 1]


def test_eviction_keeps_the_limit_and_unread_mail(tmp_path: Path) -> None:
    """After processing at most `inbox_limit` messages are left, the newest, and what could not be read."""
    profile = quiet(process_inbox={"per_day": 10}, start_state={"inbox": 6}, inbox_limit=2)
    refused = {(1, FETCH, 0): ServerRefused("NO", "try later")}
    lived = live(scenario_of(tmp_path, (profile, 2), day="600s"), tmp_path, fault=chosen(refused))
    workload = Workload(lived.scenario)
    ids = [workload.initial(1, "INBOX", index).id for index in range(6)]
    first, *_ = lived.tasks("EVICT", user=1)
    evicted = [mail["message"] for mail in lived.mails("deleted", user=1) if mail["at_ns"] == first["ended_ns"]]
    assert evicted == ids[1:5]
    assert {task["outcome"] for task in lived.tasks("EVICT")} == {"ok"}
    assert len(lived.tasks("EVICT", user=1)) == 1
    assert ids[0] in [mail["message"] for mail in lived.mails("read", user=1)]


def test_a_refused_eviction_is_not_repeated_endlessly(tmp_path: Path) -> None:
    """Mail that cannot be moved stays in place, and does not stop the eviction of later mail."""
    profile = quiet(process_inbox={"per_day": 20}, start_state={"inbox": 6}, inbox_limit=2)
    refused = {(1, "IMAP UID MOVE", 0): ServerRefused("NO", "no")}
    lived = live(scenario_of(tmp_path, (profile, 2), day="600s"), tmp_path, fault=chosen(refused))
    assert [task["outcome"] for task in lived.tasks("EVICT", user=1)] == ["refused"]


class Lookout:
    """The parts of a user that processing an Inbox looks at."""

    number = 1
    profile = load_profile("loadsim-5.5/medium")

    def __init__(self) -> None:
        self.inbox = Inbox("run-1", 2, None)


def test_an_inbox_is_processed_by_one_activity_at_a_time() -> None:
    """While one is under way, another has nothing to do; when it is given up, what it had not read is unread."""
    user: Any = Lookout()
    user.read_note_delay_ms = lambda _: 0.0
    user.inbox.unread.extend([Unread(header("a"), 0), Unread(header("b"), 7)])
    first = process_inbox(user)
    assert next(first).about.ref == "a"
    assert list(process_inbox(user)) == []
    following = first.send(None)
    assert (following.about.ref, following.since_ns) == ("b", 7)
    first.close()
    assert [each.header.ref for each in user.inbox.unread] == ["a"]
    assert not user.inbox.processing


def header(ref: str, *, run: str = "run-1", sender: int = 2, seen: bool = False, ours: bool = True) -> Header:
    tag = MessageTag(run, sender, ref, "ups1K", 0, "") if ours else None
    return Header(
        ref, frozenset({Flag.SEEN} if seen else ()), 1000, "b@loadsim.test", ("a@loadsim.test",), "s", f"<{ref}>", tag
    )


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.just("announce"), st.integers(1, 5)) | st.tuples(st.just("list"), st.integers(0, 8)), max_size=30
    )
)
def test_each_message_has_the_time_of_its_announcement(events: list[tuple[str, int]]) -> None:
    """Counts with an instant give the stamps that an instant for each message would."""
    inbox = Inbox("run-1", 2, None)
    each: list[int] = []
    for now_ns, (event, messages) in enumerate(events):
        if event == "announce":
            inbox.announce(messages, now_ns)
            each += [now_ns] * messages
        else:
            each = each[max(0, len(each) - messages) :]
            expected, each = each[:messages], each[messages:]
            expected += [now_ns] * (messages - len(expected))
            assert inbox.stamps(messages, inbox.announced, now_ns) == expected
        assert inbox.announced == len(each)


def test_stored_announcements_are_bounded() -> None:
    """One of billions of messages is held as one; beyond `MOST_ANNOUNCEMENTS` none is added, and no stamp too early."""
    inbox = Inbox("run-1", 2, None)
    inbox.announce(4_294_967_295, 1)
    assert len(inbox._announced) == 1
    for at_ns in range(2, 2 * MOST_ANNOUNCEMENTS):
        inbox.announce(1, at_ns)
        assert len(inbox._announced) == min(at_ns, MOST_ANNOUNCEMENTS)
    assert inbox.announced == 4_294_967_295 + 2 * MOST_ANNOUNCEMENTS - 2
    assert inbox.stamps(2, inbox.announced, 9_999_999) == [2 * MOST_ANNOUNCEMENTS - 1] * 2
    inbox.announce(4_294_967_295, 5)
    assert inbox.stamps(1, inbox.announced, 9) == [5]
    assert inbox.announced == 0


def test_foreign_mail_consumes_its_announcement() -> None:
    """Mail that is not ours, of another run, or of a user that does not exist, takes its own stamp with it."""
    inbox = Inbox("run-1", 2, None)
    for at_ns in (10, 20, 30, 40):
        inbox.announce(1, at_ns)
    listed = [header("x", ours=False), header("y", run="initial"), header("z", sender=3), header("a")]
    assert [(each.id, at) for each, at in inbox.take_in(listed, inbox.stamps(4, 4, 99))] == [("a", 40)]
    assert [each.header.ref for each in inbox.unread] == ["y", "a"]


def test_an_inbox_with_new_uids_is_listed_again() -> None:
    """A known copy is not new, and a second or later one is, but stays unread. The old references are void."""
    inbox = Inbox("run-1", 2, None)
    moved, a, b = header("moved"), header("a"), header("b")
    inbox.take_in([moved, a, b, header("x", ours=False)], [1, 1, 1, 1])
    inbox.gone([moved, b])
    inbox.may_stay([b])
    inbox.renumber()
    again = [each._replace(ref=f"new {each.ref}") for each in (a, b, a, header("c"), header("x", ours=False))]
    again[2] = again[2]._replace(ref="new second a")
    assert [(each.id, at) for each, at in inbox.take_in(again, [2, 3, 4, 5, 6])] == [("a", 4), ("c", 5)]
    assert [each.header.ref for each in inbox.unread] == ["new a", "new b", "new c"]
    assert inbox.foreign == {"new x"}
    assert inbox.known(a) == a


def test_mail_without_a_message_id_is_answered(tmp_path: Path) -> None:
    """A Message-ID that breaks the rules fails no task, and does not show up in the events."""
    profile = quiet(process_inbox={"per_day": 4}, start_state={"inbox": 2}, after_reading={"reply": "100%"})

    async def spoil(_: Any, driver: Any) -> None:
        for mailbox in driver.mailboxes.values():
            message = mailbox.header(mailbox.folder("INBOX"), 1).ref
            message.mail = message.mail._replace(message_id="secret nonsense")

    lived = live(scenario_of(tmp_path, (profile, 2), day="600s"), tmp_path, during=spoil)
    assert len(lived.outcomes("REPLY")) >= 4
    assert set(lived.outcomes("REPLY")) == {"ok"}
    assert not lived.said("failure")
    assert "secret" not in str(lived.events)


def test_mail_left_by_a_refused_move_is_not_new() -> None:
    """After a refused move, messages no longer count, and are not new when the Inbox is listed again."""
    inbox = Inbox("run-1", 2, 1)
    old = [header(ref, seen=True) for ref in "abc"]
    inbox.take_in(old, inbox.stamps(3, None, 5))
    inbox.gone(old[:2])
    inbox.may_stay(old[:2])
    assert inbox.take_in(old, inbox.stamps(3, None, 6)) == []
    assert inbox.excess() == []


def test_mail_of_an_earlier_run_is_ignored() -> None:
    """It was still under way when that run ended: neither counted as this run's nor read; the start state's mail is."""
    inbox = Inbox("run-1", 2, None)
    late, own, initial = header("a", run="run-0"), header("b"), header("c", run="initial")
    new = inbox.take_in([late, own, initial], inbox.stamps(3, None, 5))
    assert [tag.id for tag, _ in new] == ["b"]
    assert [each.header.ref for each in inbox.unread] == ["b", "c"]


def test_browsed_mail_may_be_answered_again_and_again(tmp_path: Path) -> None:
    """Each answer to the same message is a message of its own, with an id of its own."""
    profile = quiet(
        browse={"per_day": 40}, after_browsing={"reply": 1}, start_state={"folders": 1, "messages_per_folder": 1}
    )
    lived = live(scenario_of(tmp_path, (profile, 2), day="600s"), tmp_path)
    ids = [mail["message"] for mail in lived.mails("accepted") if mail["sender"] == 1]
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)


def test_browsed_mail_may_be_moved_and_copied_again_and_again(tmp_path: Path) -> None:
    """Folders then have copies, or lose one of two: this is no fault of the server."""
    after = {"move": 0.4, "copy": 0.4}
    start = {"folders": 2, "messages_per_folder": 4}
    profile = quiet(browse={"per_day": 60}, after_browsing=after, start_state=start)
    lived = live(scenario_of(tmp_path, (profile, 3), day="600s"), tmp_path)
    assert len(lived.mails("copied")) > 20
    assert not lived.mails("missing") and not lived.mails("doubled")


def test_a_server_that_is_slow_at_the_end_loses_no_mail(tmp_path: Path) -> None:
    """From the end of the day on, each command takes 50 s: log-offs end before they have looked at all mail."""
    profile = quiet(new_mail={"per_day": 60, "recipients": 1, "list_chance": 0}, process_inbox={"per_day": 60})

    def slow_at_the_end(driver: InMemoryDriver) -> InMemoryDriver:
        driver.pace = lambda _user, _name, at_ns, service_s: 50.0 if at_ns > 600e9 else service_s
        return driver

    lived = live(scenario_of(tmp_path, (profile, 3), ramp_up="0s"), tmp_path, wrap=slow_at_the_end)
    assert lived.mails("unlisted") and not lived.mails("missing")
    answer = summarise([lived.log])
    assert answer.figures.delivery.unlisted == len(lived.mails("unlisted"))
    (found,) = (one for one in answer.verdict.findings if one.code is Code.MAIL_NOT_LISTED)
    assert found.values["messages"] == answer.figures.delivery.unlisted
    assert answer.verdict.validity != "valid"


class _Halving(InMemoryMailbox):
    """States the whole size of a part, and sends half of it."""

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        return (await super().part(ref, part))[: part.size_bytes // 2]


class _Bare(InMemoryMailbox):
    """Sends LF for CRLF."""

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        return (await super().part(ref, part)).replace(b"\r\n", b"\n")


class _BareHalf(_Halving, _Bare):
    """Sends half of it, with LF for CRLF."""


@pytest.mark.parametrize(
    ("mailbox", "kind"), [(_Bare, "FETCH with bare line feeds"), (_BareHalf, "FETCH of a truncated part")]
)
def test_missing_carriage_returns_are_no_truncation(tmp_path: Path, mailbox: type[InMemoryMailbox], kind: str) -> None:
    def wrap(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type = mailbox
        return driver

    new = {"per_day": 20, "recipients": 1, "list_chance": 0}
    lived = live(scenario_of(tmp_path, (quiet(new_mail=new, process_inbox={"per_day": 20}), 2)), tmp_path, wrap=wrap)
    assert {task["error"] for task in lived.tasks("READ") if task["outcome"] != "ok"} == {kind}


class _Altering(InMemoryMailbox):
    """Sends other bytes of the same number."""

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        return (await super().part(ref, part))[::-1]


@pytest.mark.parametrize(
    ("mailbox", "allow", "severity"),
    [(_Altering, (), Severity.MISSED), (_Altering, ("mail-altered",), Severity.WARNING), (InMemoryMailbox, (), None)],
)
def test_altered_content_is_named(
    tmp_path: Path, mailbox: type[InMemoryMailbox], allow: tuple[str, ...], severity: Severity | None
) -> None:
    """Texts and files, new and forwarded; the tasks succeed, as the sizes are right."""

    def wrap(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type = mailbox
        return driver

    new = {"per_day": 40, "recipients": 1, "list_chance": 0}
    kinds = {"ups1K": 1, "upsWDatt": 1}
    profile = quiet(new_mail=new, process_inbox={"per_day": 60}, messages=kinds)
    lived = live(scenario_of(tmp_path, (profile, 3)), tmp_path, wrap=wrap, header={"audit_allow": allow})
    read, seen = (
        [(mail["message"], mail["user"]) for mail in lived.mails(event) if not mail["message"].startswith(INITIAL)]
        for event in ("read", "altered")
    )
    found = [one for one in summarise([lived.log]).verdict.findings if one.code is Code.MAIL_SHOWN_ALTERED]
    if severity is None:
        assert read and not seen and not found
        return
    assert {*seen} == {*read}
    message, user = seen[0]
    first = {"message_id": message, "folder": INBOX, "user": user}
    assert found == [finding(Code.MAIL_SHOWN_ALTERED, "", severity, messages=len(read), **first)]


def test_truncated_initial_mail_of_stated_size_is_named(tmp_path: Path) -> None:
    """Its kind does not say how much there must be, but the server does."""

    def halve(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type = _Halving
        return driver

    sized = scenario_of(tmp_path, (quiet(browse={"per_day": 40}), 2), mailbox={"sizes": {"8K": 1}})
    browsed = live(sized, tmp_path, wrap=halve).tasks("BROWSE")
    assert browsed and all(task["outcome"] == "refused" for task in browsed)
    assert all(task["outcome"] == "ok" for task in live(sized, tmp_path).tasks("BROWSE"))


class _Forgetting(InMemoryMailbox):
    """Stores messages without their flags."""

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        return await super().append(folder, message)

    async def _copy(self, command: str, refs: Sequence[MessageRef], folder: str) -> Sequence[Any]:
        copied = await super()._copy(command, refs, folder)
        for message in [*self.folder(folder).messages.values()][-len(copied) :]:
            assert message is not None
            message.flags = NO_FLAGS
        return copied


@pytest.mark.parametrize(
    ("rows", "event"),
    [
        ({"new_mail": {"per_day": 4}}, "saved"),
        ({"after_reading": {"move": 1}}, "moved"),
        ({"after_reading": {"copy": 1}}, "copied"),
        ({"after_reading": {"delete": 1}}, "deleted"),
    ],
)
def test_flags_lost_in_a_folder_are_noticed_at_log_off(tmp_path: Path, rows: dict[str, Any], event: str) -> None:
    """No other task lists these folders."""

    def forget(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type = _Forgetting
        return driver

    profile = quiet(process_inbox={"per_day": 4}, start_state={"inbox": 12}, **rows)
    lived = live(scenario_of(tmp_path, (profile, 3)), tmp_path, wrap=forget)
    lost, stored = ([(mail["message"], mail["user"]) for mail in lived.mails(name)] for name in ("missing", event))
    assert lost and sorted(lost) == sorted(stored)
    assert {task["error"] for task in lived.tasks("LOGOFF")} == {"flags are not kept"}


@pytest.mark.parametrize("empties", [True, False])
def test_mail_deleted_unread_is_never_read_and_stays_unread(tmp_path: Path, empties: bool) -> None:
    """The server that keeps it unread is not accused of having lost a flag."""
    profile = quiet(
        new_mail={"per_day": 20},
        process_inbox={"per_day": 20, "delete_unread": "100%"},
        start_state={"inbox": 4, "deleted_items": 0},
        empty_deleted_items_on_log_off=empties,
    )
    lived = live(scenario_of(tmp_path, (profile, 3)), tmp_path)
    done = lived.tasks("DELETE UNREAD")
    assert len(done) == len(lived.mails("deleted")) > 12
    assert not lived.tasks("READ") and not lived.mails("read")
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    assert not lived.mails("missing")
    assert len(lived.mails("expunged")) == (len(done) if empties else 0)


class _Searched(InMemoryMailbox):
    """Answers searches by `answer`, and notes what was asked for."""

    asked: list[tuple[SearchKey, str]]
    answer: Callable[[Sequence[Header], Sequence[Header]], Sequence[Header]]

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        found = await super().search(folder, key, words, newest)
        self.asked.append((key, words))
        return type(self).answer(found, await self.headers(folder, None))


@pytest.mark.parametrize("key", [*SearchKey])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda found, listed: found, ""),
        (lambda found, listed: [], "SEARCH does not find a message"),
        (lambda found, listed: [*found, found[0]._replace(tag=None, sender="x", subject="x")], ""),  # not loadsim's
        (lambda found, listed: listed, "SEARCH finds other messages"),
    ],
)
def test_what_a_search_finds_is_checked(
    tmp_path: Path, key: SearchKey, answer: Callable[[Any, Any], Sequence[Header]], error: str
) -> None:
    """Senders and subjects are listed, so they show a message without the words; texts do not."""
    asked: list[tuple[SearchKey, str]] = []
    searched = type("Searched", (_Searched,), {"asked": asked, "answer": staticmethod(answer)})

    def watch(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type = searched
        return driver

    habit = {"per_day": 20, "by": {key.name.lower(): 1}}
    profile = quiet(search=habit, new_mail={"per_day": 20}, start_state={"inbox": 4})
    lived = live(scenario_of(tmp_path, (profile, 3)), tmp_path, wrap=watch)
    done = lived.tasks("SEARCH")
    assert len(done) == len(asked) > 20
    assert {kind for kind, _ in asked} == {key}
    told = {task["error"] for task in done}
    if "other" in error:
        assert told - {""} == (set() if key is SearchKey.TEXT else {error})
    else:
        assert told == {error}


def test_users_with_an_empty_inbox_do_not_search(tmp_path: Path) -> None:
    lived = live(scenario_of(tmp_path, (quiet(search={"per_day": 20}), 3)), tmp_path)
    assert not lived.tasks("SEARCH")
