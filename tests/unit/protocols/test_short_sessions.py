"""Sessions per view: the time of a task, the instant at which mail is seen, and losses, each counted once."""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from imap_script import PATIENCE_S, Ear, Peer, Script, playing
from mailservers import numbered_accounts
from virtual_runs import EVERYTHING, During, Lived, assert_one_at_a_time, live, quiet, scenario_of

from loadsim.engine.engine import Engine
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.mail_program import PER_VIEW, MailProgram
from loadsim.model.ports import ALL_TASKS, INBOX, Account, Endpoint, Flag, Observer, Services, Session
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.imap import open_driver
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.protocols.short_sessions import PerViewMailbox
from loadsim.scenario.workload import PROCESS_INBOX

(ACCOUNT,) = numbered_accounts(1)
COMMAND_S = 0.1
POLL_S = 20.0
SENDS = quiet(new_mail={"per_day": 15, "recipients": 1}, process_inbox={"per_day": 15}, browse={"per_day": 8})


@dataclass
class PerView:
    """The in-memory mail system with sessions per view; each command takes 0.1 s."""

    inner: InMemoryDriver
    poll_s: float = POLL_S
    name: str = "fake"
    supported_tasks: frozenset[str] = ALL_TASKS

    def __post_init__(self) -> None:
        self.inner.pace = lambda *_: COMMAND_S

    def session(self, account: Account, observer: Observer) -> Session:
        session = self.inner.session(account, observer)
        mailbox = PerViewMailbox(session.mailbox)
        return Session(mailbox, session.submission, MailboxCalendar(mailbox), self.poll_s)


def lived_by(place: Path, profile: dict[str, Any], users: int = 3, **options: Any) -> Lived:
    run = options.pop("run", {"day_length": "600s", "ramp_up": "1s", "warm_up": "0s", "window": "600s"})
    wrap = partial(PerView, poll_s=options.pop("poll_s", POLL_S))
    lived = live(scenario_of(place, (profile, users), run=run), place, wrap=wrap, **options)
    assert lived.failure is None, lived.failure
    return lived


def sessions(lived: Lived, user: int) -> list[list[dict[str, Any]]]:
    """Return the commands of each session of a user, from AUTHENTICATE to LOGOUT."""
    found: list[list[dict[str, Any]]] = []
    for command in lived.tape.commands:
        if command["user"] == user and command["command"].startswith("IMAP "):
            if command["command"] == "IMAP AUTHENTICATE":
                found.append([])
            found[-1].append(command)
    return found


def names(session: list[dict[str, Any]]) -> list[str]:
    """Return the names of a session's commands between log-on and log-off."""
    made = [command["command"].removeprefix("IMAP ") for command in session]
    assert made[:2] == ["AUTHENTICATE", "CAPABILITY"]
    assert made[-1] == "LOGOUT"
    return made[2:-1]


@pytest.mark.slow
def test_a_tasks_time_includes_log_on_and_not_log_off(tmp_path: Path) -> None:
    """AUTHENTICATE, CAPABILITY, SELECT and the task's own commands; a task without the mailbox does not log on."""
    lived = lived_by(tmp_path, SENDS)
    took = defaultdict(set)
    for task in lived.tape.tasks:
        if task["started_ns"] is not None:
            took[task["task"]].add(round((task["ended_ns"] - task["started_ns"]) * 1e-9, 3))
    assert took["READ"] == {0.6}  # AUTHENTICATE, CAPABILITY, SELECT, two FETCHes, STORE
    assert took["BROWSE"] == {0.6}  # AUTHENTICATE, CAPABILITY, SELECT, three FETCHes
    assert took["SAVE SENT"] == {0.3}
    assert min(took["SYNC"]) == 0.1  # in the session of the look for mail, or of the task that saw it
    assert took["SYNC"] <= {0.1, 0.2, 0.4}  # after another folder; for mail announced during LOGOUT
    kept = live(lived.scenario, tmp_path, wrap=_paced)
    assert took["SEND"] == {round((one["ended_ns"] - one["started_ns"]) * 1e-9, 3) for one in kept.tasks("SEND")}


def _paced(driver: InMemoryDriver) -> InMemoryDriver:
    driver.pace = lambda *_: COMMAND_S
    return driver


def test_each_view_is_one_session(tmp_path: Path) -> None:
    """All sessions end with LOGOUT, and have the commands of one task or one look, perhaps with SYNC after it."""
    lived = lived_by(tmp_path, SENDS)
    assert_one_at_a_time(lived)
    looks = 0
    for user in (1, 2, 3):
        for session in sessions(lived, user):
            commands = names(session)
            looks += commands in (["SELECT"], ["SELECT", "UID FETCH"])
            # Back to the Inbox for SYNC, or all folders with new mail at the end of the day.
            assert commands.count("SELECT") <= 1 or commands[-1] in ("UID FETCH", "FETCH")
            assert commands.count("UID STORE") <= 1
    assert looks > 3 * 25
    assert lived.engine.counts.sessions_lost == 0
    assert [task["outcome"] for task in lived.tasks("LOGON")] == ["ok"] * 3


@pytest.mark.slow
def test_short_sessions_do_the_work_of_kept_ones(tmp_path: Path) -> None:
    """The work is that of kept sessions, each message arrives once, and the server's time is never the generator's."""
    run = {"day_length": "300s", "ramp_up": "1s", "warm_up": "0s", "window": "300s"}
    lived = lived_by(tmp_path, EVERYTHING, run=run)
    kept = live(scenario_of(tmp_path, (EVERYTHING, 3), run=run), tmp_path)

    def planned(one: Lived) -> list[tuple[Any, ...]]:
        start_ns = one.engine.start_ns
        return sorted(
            (task["user"], task["task"], task["scheduled_ns"] - start_ns)
            for task in one.tape.tasks
            if task["task"] in ("SEND", "BROWSE", "SCHEDULE")
        )

    assert planned(lived) == planned(kept)
    accepted = sorted((mail["message"], mail["user"]) for mail in lived.mails("accepted"))
    arrived = sorted((mail["message"], mail["user"]) for mail in lived.mails("seen") + lived.mails("found"))
    assert accepted == arrived
    assert len(accepted) > 50
    assert lived.engine.outstanding == 0
    read = [(mail["message"], mail["user"]) for mail in lived.mails("read")]
    assert len(read) == len(set(read))
    assert {task["outcome"] for task in lived.tape.tasks} <= {"ok", "skipped"}

    tasks = [task for task in lived.tape.tasks if task["started_ns"] is not None]
    assert max(task["late_generator_s"] for task in tasks) < 1e-6
    assert any(task["late_busy_s"] >= COMMAND_S for task in tasks if task["task"] == "READ")
    for task in tasks:
        late_s = task["late_busy_s"] + task["late_down_s"] + task["late_generator_s"]
        assert late_s == pytest.approx((task["started_ns"] - task["scheduled_ns"]) * 1e-9, abs=1e-6), task


@pytest.mark.slow
def test_mail_is_seen_when_the_user_looks(tmp_path: Path) -> None:
    """Looks come an interval apart, at other instants for each user. The SELECT of a look shows the mail."""
    lived = lived_by(tmp_path, quiet(new_mail={"per_day": 60, "recipients": 1}), users=4)
    phases = set()
    for user in range(1, 5):
        tasks = {task["started_ns"] for task in lived.tasks(user=user)}
        looks = [each for each in sessions(lived, user) if each[0]["started_ns"] not in tasks]
        assert {tuple(names(each)) for each in looks} <= {("SELECT",), ("SELECT", "UID FETCH")}
        begun = [session[0]["started_ns"] for session in looks]
        between = [(later - first) * 1e-9 for first, later in pairwise(begun)]
        assert sum(between) / len(between) == pytest.approx(POLL_S, abs=0.2)  # no drift, though looks take time
        assert max(between) < POLL_S + 3  # a task before it may delay one
        phases.add(round(begun[0] * 1e-9 % POLL_S, 1))
        seen = {mail["at_ns"] for mail in lived.mails("seen", user=user)}
        selected = {one["ended_ns"] for each in sessions(lived, user) for one in each if "SELECT" in one["command"]}
        assert len(seen & selected) > 0.9 * len(seen)
        for at_ns in seen - selected:  # announced to a session
            assert any(each[0]["started_ns"] <= at_ns <= each[-1]["ended_ns"] for each in sessions(lived, user))
    assert len(phases) == 4
    accepted = {(mail["message"], mail["user"]): mail["at_ns"] for mail in lived.mails("accepted")}
    took_s = [(mail["at_ns"] - accepted[mail["message"], mail["user"]]) * 1e-9 for mail in lived.mails("seen")]
    assert len(took_s) > 150
    assert max(took_s) < POLL_S + 4
    assert sum(took_s) / len(took_s) == pytest.approx(POLL_S / 2, rel=0.35)


@pytest.mark.slow
def test_users_look_for_mail_before_processing_the_inbox(tmp_path: Path) -> None:
    """However seldom they look otherwise, they read nearly all the mail that users with kept sessions read."""
    profile = quiet(new_mail={"per_day": 60, "recipients": 1}, process_inbox={"per_day": 40})
    lived = lived_by(tmp_path, profile, poll_s=1e5)
    kept = live(lived.scenario, tmp_path, wrap=_paced)
    read, of_kept = len(lived.mails("read")), len(kept.mails("read"))
    assert read == pytest.approx(of_kept, rel=0.03) and of_kept > 100
    processed = sum(
        activity.kind == PROCESS_INBOX for user in (1, 2, 3) for activity in lived.engine.workload.activities(user)
    )
    looks = 0
    for user in (1, 2, 3):
        tasks = {task["started_ns"] for task in lived.tasks(user=user)}
        looks += sum(each[0]["started_ns"] not in tasks for each in sessions(lived, user))
    assert processed - 3 <= looks <= processed  # an end of the run, and processings that overlap
    accepted = {(mail["message"], mail["user"]): mail["at_ns"] for mail in lived.mails("accepted")}
    for mail in lived.mails("seen"):
        assert mail["at_ns"] >= accepted[mail["message"], mail["user"]]
    assert lived.engine.outstanding == 0


def failing(outcome: TaskFailed, command: str, during: str | None, times: int = 1) -> During:
    """Fail the first commands of this name while user 1 performs this task (None: between tasks), after the start."""

    async def begin(engine: Engine, driver: InMemoryDriver) -> None:
        left = times

        def fault(user: int, name: str, _: int) -> Exception | None:
            nonlocal left
            started = engine.start_ns and engine.now_ns() >= engine.start_ns
            if left and started and user == 1 and name == command and engine.users[0].recorder.performing == during:
                left -= 1
                return outcome
            return None

        driver.fault = fault
        await asyncio.Event().wait()

    return begin


def test_a_failed_log_on_is_its_tasks_failure(tmp_path: Path) -> None:
    """It is recorded once. The user has no session until LOGON succeeds, and reads the message later."""
    lived = lived_by(tmp_path, SENDS, during=failing(ServerLost("no route"), "IMAP AUTHENTICATE", "READ"))
    (lost,) = [task for task in lived.tape.tasks if task["outcome"] != "ok" and task["outcome"] != "skipped"]
    assert (lost["task"], lost["user"], lost["outcome"], lost["error"]) == ("READ", 1, "lost", "no route")
    assert (lived.engine.counts.sessions_lost, lived.engine.counts.sessions_restored) == (1, 1)
    assert len(lived.tasks("LOGON")) == 4
    assert [span["user"] for span in lived.tape.spans if span["task"] == "NO SESSION" and span["scheduled_ns"] > 0][
        -1:
    ] == [1]
    assert lived.engine.outstanding == 0
    read = [mail["message"] for mail in lived.mails("read", user=1)]
    assert len(read) == len(set(read)) > 3


@pytest.mark.slow
def test_every_failure_is_counted_once(tmp_path: Path) -> None:
    """Commands fail all over the first 400 s: each failure is that of one task or one between tasks, none is both."""
    failed: Counter[tuple[str, str, str]] = Counter()  # task or IDLE, outcome, protocol

    async def begin(engine: Engine, driver: InMemoryDriver) -> None:
        given = 0

        def fault(user: int, name: str, _: int) -> Exception | None:
            nonlocal given
            if not engine.start_ns or not engine.start_ns <= engine.now_ns() < engine.start_ns + 400 * 10**9:
                return None
            given += 1
            kinds = {31: ServerLost("gone"), 23: ServerRefused("no"), 59: ServerSilent("silent")}
            failure = next((failure for every, failure in kinds.items() if given % every == 0), None)
            if failure is not None:
                task = engine.users[user - 1].recorder.performing or "IDLE"
                failed[task, failure.outcome, name.partition(" ")[0]] += 1
            return failure

        driver.fault = fault
        await asyncio.Event().wait()

    lived = lived_by(tmp_path, EVERYTHING, during=begin, limit_s=2.0)
    assert len({task for task, _, _ in failed}) > 8 and sum(failed.values()) > 60
    recorded = Counter((task["task"], task["outcome"]) for task in lived.tape.tasks)
    for task, outcome in {(task, outcome) for task, outcome, _ in failed if task != "IDLE"}:
        assert recorded[task, outcome] == failed[task, outcome, "IMAP"] + failed[task, outcome, "SMTP"], (task, outcome)
    between = sum(times for (task, _, _), times in failed.items() if task == "IDLE")
    assert between == sum(lived.snapshots[-1].failures["IDLE"].values())
    lost = sum(
        times
        for (task, outcome, protocol), times in failed.items()
        if protocol == "IMAP" and task != "LOGON" and (outcome != "refused" or task == "IDLE")
    )
    assert (lived.engine.counts.sessions_lost, lived.engine.counts.sessions_restored) == (lost, lost)
    accepted = sorted((mail["message"], mail["user"]) for mail in lived.mails("accepted"))
    assert accepted == sorted((mail["message"], mail["user"]) for mail in lived.mails("seen") + lived.mails("found"))
    assert_one_at_a_time(lived)


@pytest.mark.slow
def test_stress_mode_looks_for_mail_with_growing_pauses(tmp_path: Path) -> None:
    """Tasks that are always due do not keep users from looking; a server that is down is not stormed."""
    run = {"day_length": "120s", "ramp_up": "1s", "warm_up": "0s", "window": "120s", "mode": "stress"}
    lived = lived_by(tmp_path, quiet(new_mail={"per_day": 20}, browse={"per_day": 30}), users=2, run=run)
    looks = [each for each in sessions(lived, 1) if names(each)[:1] == ["SELECT"] and len(names(each)) <= 2]
    assert len(looks) >= 4
    assert lived.mails("seen")

    down = failing(ServerLost("down"), "IMAP AUTHENTICATE", "BROWSE", times=10**6)
    lived = lived_by(tmp_path, quiet(browse={"per_day": 30}), users=2, run=run, during=down)
    tries = lived.tasks("BROWSE", user=1)
    assert {task["outcome"] for task in tries} == {"lost"}
    assert len(tries) - len(lived.tasks("LOGON", user=1)) in (0, 1)  # a pause precedes all LOGONs but the first
    assert len(tries) < 30


def opened(endpoint: Endpoint, ear: Ear, **changes: Any) -> PerViewMailbox:
    program = replace(MailProgram(name="own", idle=False, session=PER_VIEW), **changes)
    services = Services(endpoint, endpoint, PATIENCE_S, program=program)
    mailbox = open_driver(services).session(ACCOUNT, ear).mailbox
    assert isinstance(mailbox, PerViewMailbox)
    return mailbox


def envelope(uid: int, flags: bytes = b"") -> bytes:
    address = b'(("U" NIL "u" "x.test"))'
    fields = b" ".join([address] * 4)
    return (
        b'* 1 FETCH (UID %d FLAGS (%b) RFC822.SIZE 9 ENVELOPE ("d" "s" %b NIL NIL NIL "<m>")'
        b" BODY[HEADER.FIELDS (X-LOADSIM)] {2}\r\n\r\n)" % (uid, flags, fields)
    )


STRUCTURE = b'* 1 FETCH (UID 4 BODYSTRUCTURE ("TEXT" "PLAIN" NIL NIL NIL "7BIT" 6 1))'


async def bye(peer: Peer) -> None:
    await peer.answer(rb"LOGOUT", b"* BYE")
    await peer.end()


def view(*answers: tuple[bytes, tuple[bytes, ...]], exists: int = 1, uid_next: int = 5, validity: int = 7) -> Script:
    """A session with these answers to its commands, from log-on to log-off."""

    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.inbox(exists, uid_next, validity)
        for pattern, lines in answers:
            await peer.answer(pattern, *lines)
        await bye(peer)

    return script


LISTED = (rb"FETCH 1:\* .*", (envelope(4),))


async def test_a_view_has_at_most_one_session() -> None:
    """After a loss in the middle of a view, its other calls fail; the next view logs on again."""

    async def breaking(peer: Peer) -> None:
        await peer.greet()
        await peer.inbox(exists=1, uid_next=5)
        await peer.answer(rb"FETCH 1:\* .*", envelope(4))
        await peer.answer(rb"UID FETCH 4 \(BODYSTRUCTURE\)", STRUCTURE)
        await peer.expect(rb"UID FETCH 4 \(BODY.PEEK\[1\]\)")

    ear = Ear()
    async with playing(breaking, view((rb"UID STORE 4 .*", ()))) as endpoint:
        mailbox = opened(endpoint, ear)
        (header,) = await mailbox.headers(INBOX, 50)
        structure = await mailbox.structure(header.ref)
        assert structure.text is not None
        with pytest.raises(ServerLost):
            await mailbox.part(header.ref, structure.text)
        with pytest.raises(ServerLost):
            await mailbox.structure(header.ref)
        mailbox.abandon()
        with pytest.raises(ServerLost):
            await mailbox.structure(header.ref)
        await mailbox.log_off()  # ends the view; there is no session to end
        await mailbox.open(INBOX)
        await mailbox.flag([header.ref], Flag.SEEN)
        await mailbox.log_off()
    assert not ear.losses


async def test_a_folder_with_new_uids_is_noticed_when_it_is_opened_again() -> None:
    """UIDVALIDITY has changed between two views: the call is refused, and the cache of headers is dropped."""
    flags = (rb"FETCH 1:\* \(UID FLAGS\)", (b"* 1 FETCH (UID 4 FLAGS ())",))
    headers = (rb"UID FETCH 4 \(UID FLAGS RFC822.SIZE ENVELOPE .*", (envelope(4),))
    before = (view(flags, headers), view(flags))
    after = (view(validity=8), view(flags, headers, validity=8), view(validity=8))

    async with playing(*before, *after) as endpoint:
        mailbox = opened(endpoint, Ear(), flags=("UID", "FLAGS"))
        (header,) = await mailbox.headers(INBOX, 50)
        await mailbox.log_off()
        assert await mailbox.headers(INBOX, 50) == [header]  # from the cache, which outlives sessions
        await mailbox.log_off()
        with pytest.raises(ServerRefused, match="UIDVALIDITY changed"):
            await mailbox.headers(INBOX, 50)
        await mailbox.log_off()
        (again,) = await mailbox.headers(INBOX, 50)
        assert again.ref != header.ref
        await mailbox.log_off()
        with pytest.raises(ServerRefused, match="UIDVALIDITY changed"):
            await mailbox.structure(header.ref)
        await mailbox.log_off()


async def test_a_look_announces_mail_once() -> None:
    """New mail since the last session is announced by the SELECT of a look, and only there."""
    third = view((rb"UID FETCH 5:\* .*", (envelope(5), envelope(6))), exists=3, uid_next=7)

    ear = Ear()
    async with playing(view(LISTED), view(), third, view(exists=3, uid_next=7)) as endpoint:
        mailbox = opened(endpoint, ear)
        await mailbox.headers(INBOX, 50)
        await mailbox.log_off()
        await mailbox.watch()
        await mailbox.log_off()
        assert ear.arrivals == []
        await mailbox.watch()
        assert ear.arrivals == [2]
        assert len(await mailbox.arrived()) == 2
        await mailbox.log_off()
        await mailbox.watch()
        await mailbox.log_off()
        assert ear.arrivals == [2]
    assert not ear.losses


async def test_a_cached_message_needs_no_session() -> None:
    """A program with whole messages shows a part of one that it has without a connection."""
    raw = b"Subject: x\r\n\r\ntext\r\n"

    whole = (rb"UID FETCH 4 \(BODY.PEEK\[\]\)", (b"* 1 FETCH (UID 4 BODY[] {%d}\r\n%b)" % (len(raw), raw),))

    async with playing(view(LISTED, whole)) as endpoint:
        mailbox = opened(endpoint, Ear(), message_items=("BODY.PEEK[]",))
        (header,) = await mailbox.headers(INBOX, 50)
        structure = await mailbox.structure(header.ref)
        await mailbox.log_off()
        assert structure.text is not None
        assert await mailbox.part(header.ref, structure.text) == b"text\r\n"
        await mailbox.log_off()
