"""FIRST SYNC in virtual time: what a new program copies, checks and does again, on a server without and with faults."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from virtual_runs import Lived, assert_one_at_a_time, chosen, live, quiet, scenario_of

from loadsim.engine.engine import Engine
from loadsim.errors import ServerLost, ServerRefused
from loadsim.model.ports import (
    ALL_TASKS,
    DELETED_ITEMS,
    INBOX,
    SENT_ITEMS,
    Account,
    Flag,
    Header,
    MessageRef,
    Observer,
    Part,
    Session,
    Structure,
)
from loadsim.protocols.in_memory import InMemoryDriver, InMemoryMailbox
from loadsim.users import first_sync

FOLDERS, EACH, IN_INBOX, DELETED = 3, 5, 7, 2
START = {"inbox": IN_INBOX, "deleted_items": DELETED, "folders": FOLDERS, "messages_per_folder": EACH}
MESSAGES = IN_INBOX + DELETED + FOLDERS * EACH
HABITS = quiet(start_state=START, new_mail={"per_day": 60}, browse={"per_day": 60}, process_inbox={"per_day": 60})
COMMAND = "IMAP UID FETCH"


class Copied(InMemoryMailbox):
    """The in-memory mailbox of a program that copies it: at most three messages fit into memory at once."""

    listed: list[tuple[str, int]]  # folder and number of headers, by batch
    fetched: Counter[str]  # by folder
    whole: tuple[MessageRef, ...] = ()

    async def batches(self, folder: str, size: int) -> AsyncGenerator[Sequence[Header], None]:
        await self.open(folder)
        uids = list(self.folder(folder).messages)
        while uids:
            batch = [self.header(self.folder(folder), uid) for uid in reversed(uids[-size:])]
            await self._command(COMMAND, 100, 600 * len(batch))
            self.listed.append((folder, len(batch)))
            yield batch
            del uids[-size:]

    async def fetch_whole(self, headers: Sequence[Header]) -> int:
        self.whole = tuple(header.ref for header in headers[:3])
        messages = await self._run_on(COMMAND, self.whole, 50, sum(header.size_bytes for header in headers[:3]))
        self.fetched.update(message.folder.name for message in messages)
        return len(messages)

    async def structure(self, ref: MessageRef) -> Structure:
        return ref.mail.structure if ref in self.whole else await super().structure(ref)  # type: ignore[attr-defined, no-any-return]

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        return b"." * part.size_bytes if ref in self.whole else await super().part(ref, part)


@dataclass
class Copying:
    """The in-memory mail system, for programs that copy their mailbox; `change` each mailbox at first."""

    inner: InMemoryDriver
    change: Callable[[Copied], None] = lambda _: None
    name: str = "fake/new"
    supported_tasks: frozenset[str] = ALL_TASKS
    mailboxes: list[Copied] = field(default_factory=list)

    def session(self, account: Account, observer: Observer) -> Session:
        self.inner.mailbox_type = Copied
        session = self.inner.session(account, observer)
        assert isinstance(session.mailbox, Copied)
        session.mailbox.listed, session.mailbox.fetched = [], Counter()
        self.change(session.mailbox)
        self.mailboxes.append(session.mailbox)
        return replace(session, copied=session.mailbox)


def lived_by(place: Path, bodies: object = "all", users: int = 2, **options: Any) -> tuple[Lived, list[Copied]]:
    """A run of users with a program that copies so many bodies; and their mailboxes."""
    change = options.pop("change", lambda _: None)
    program = {"name": "new", "header_cache": "FLAGS", "message": "BODY.PEEK[]", "first_sync": {"bodies": bodies}}
    (place / "new.yaml").write_text(yaml.safe_dump(program), encoding="utf-8")
    group = {"profile": str(place / "profile0.yaml"), "users": users, "protocol": "fake"}
    topology = [{**group, "program": str(place / "new.yaml")}]
    keys = options.pop("keys", {})
    scenario = scenario_of(place, (HABITS, users), topology=topology, **keys)
    made: list[Copying] = []

    def wrap(driver: InMemoryDriver) -> Copying:
        made.append(Copying(driver, change))
        return made[0]

    lived = live(scenario, place, wrap=wrap, **options)
    assert lived.failure is None, lived.failure
    return lived, made[0].mailboxes


@pytest.mark.parametrize(("bodies", "fetched"), [("all", MESSAGES), ("none", 0), (2, 2 + DELETED + FOLDERS * 2)])
def test_a_new_program_copies_the_whole_start_state(tmp_path: Path, bodies: object, fetched: int) -> None:
    """All headers, and the stated bodies, after LOGON and before anything else; all is whole."""
    lived, mailboxes = lived_by(tmp_path, bodies)
    for user, mailbox in enumerate(mailboxes, start=1):
        assert sum(count for _, count in mailbox.listed) == MESSAGES
        assert mailbox.fetched.total() == fetched
        assert [task["task"] for task in lived.tasks(user=user)][:2] == ["LOGON", "FIRST SYNC"]
        (sync,) = lived.tasks("FIRST SYNC", user)
        assert sync["outcome"] == "ok"
        assert sync["scheduled_ns"] == lived.tasks("LOGON", user)[0]["ended_ns"]
        assert sync["ended_ns"] <= lived.engine.start_ns  # as the common start waits
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    assert {task["task"] for task in lived.tape.tasks} > {"SEND", "READ", "BROWSE"}
    assert not lived.mails("missing") and not lived.mails("altered")
    assert_one_at_a_time(lived)


def test_folders_are_listed_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_sync, "BATCH", 3)
    lived, mailboxes = lived_by(tmp_path, 4)
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    for mailbox in mailboxes:
        assert [count for folder, count in mailbox.listed if folder == INBOX] == [3, 3, 1]
        assert mailbox.fetched[INBOX] == 4


def test_a_lost_first_sync_goes_on_where_it_was(tmp_path: Path) -> None:
    """Folders that were done are not copied again, the one under way is; all activities come later."""
    lived, mailboxes = lived_by(tmp_path, fault=chosen({(1, COMMAND, 7): ServerLost("down")}))
    tasks = [(task["task"], task["outcome"]) for task in lived.tasks(user=1)][:4]
    assert tasks == [("LOGON", "ok"), ("FIRST SYNC", "lost"), ("LOGON", "ok"), ("FIRST SYNC", "ok")]
    times = Counter(folder for folder, _ in mailboxes[0].listed)
    assert sorted(times.values()) == [1, 1, 1, 1, 2]
    assert times[INBOX] == 1
    assert lived.outcomes("FIRST SYNC").count("ok") == 2
    assert not lived.mails("missing")


def test_a_refused_folder_is_left_out(tmp_path: Path) -> None:
    """The task is refused once, and the other folders are copied."""
    lived, mailboxes = lived_by(tmp_path, fault=chosen({(1, COMMAND, 0): ServerRefused("NO FETCH")}))
    assert sorted(lived.outcomes("FIRST SYNC")) == ["ok", "refused"]
    assert mailboxes[0].fetched.total() == MESSAGES - IN_INBOX
    assert {task["outcome"] for task in lived.tape.tasks if task["task"] != "FIRST SYNC"} == {"ok"}


def test_missing_mail_is_found(tmp_path: Path) -> None:
    """A message of the middle of a folder, which no other task would look for by name."""

    def lose(mailbox: Copied) -> None:
        del mailbox.folder(DELETED_ITEMS).messages[1]

    lived, _ = lived_by(tmp_path, change=lose)
    assert lived.outcomes("FIRST SYNC") == ["refused"] * 2
    assert {mail["folder"] for mail in lived.mails("missing")} == {DELETED_ITEMS}
    assert len(lived.mails("missing")) == 2
    assert all("unknown" not in mail["message"] for mail in lived.mails("missing"))


def test_mail_of_others_is_listed_and_left_alone(tmp_path: Path) -> None:
    """Its body is not fetched, and nothing is said about it."""

    def plant(mailbox: Copied) -> None:
        mailbox.header(mailbox.folder(INBOX), 1)
        known = mailbox.folder(INBOX).messages[1]
        assert known is not None
        mailbox.folder(INBOX).add(known.mail._replace(tag=None, subject="private"), known.flags)

    lived, mailboxes = lived_by(tmp_path, change=plant)
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    assert all(sum(count for _, count in mailbox.listed) == MESSAGES + 1 for mailbox in mailboxes)
    assert all(mailbox.fetched.total() == MESSAGES for mailbox in mailboxes)
    assert not lived.mails("missing") and not lived.mails("altered")


def test_mail_that_comes_meanwhile_is_not_missing(tmp_path: Path) -> None:
    """An assistant saves what it sends while Sent Items are copied; LOGOFF finds it there."""
    engines: list[Engine] = []

    async def during(engine: Engine, _: InMemoryDriver) -> None:
        engines.append(engine)

    def save(mailbox: Copied) -> None:
        batches = mailbox.batches

        async def meanwhile(folder: str, size: int) -> AsyncGenerator[Sequence[Header], None]:
            async for batch in batches(folder, size):
                yield batch
            if folder == SENT_ITEMS:
                user = engines[0].users[mailbox.dialogue.user - 1].mail
                saved = mailbox._system.initial(user.account, INBOX, 0)
                assert saved.tag is not None
                tag = saved.tag._replace(run="run-1", id="sent")
                mailbox.folder(SENT_ITEMS).add(saved._replace(tag=tag), frozenset([Flag.SEEN]))
                user.record_sent("saved", tag.id, SENT_ITEMS)

        mailbox.batches = meanwhile  # type: ignore[method-assign]

    lived, _ = lived_by(tmp_path, change=save, during=during)
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    assert not lived.mails("missing") and not lived.mails("unlisted")


def test_unknown_mailboxes_are_copied_as_far_as_they_exist(tmp_path: Path) -> None:
    """With `initialise: never`, the server need not have all the folders."""

    def lack(mailbox: Copied) -> None:
        mailbox._names = mailbox._names[-1:]

    lived, mailboxes = lived_by(tmp_path, change=lack, keys={"initialise": "never"})
    assert lived.outcomes("FIRST SYNC") == ["ok"] * 2
    assert all({folder for folder, _ in mailbox.listed} <= {INBOX, *mailbox._names} for mailbox in mailboxes)


def test_parts_are_not_kept_until_the_end_of_the_task(tmp_path: Path) -> None:
    """When the next messages are fetched, those before have been compared."""
    held: list[int] = []
    engines: list[Engine] = []

    async def during(engine: Engine, _: InMemoryDriver) -> None:
        engines.append(engine)

    def watch(mailbox: Copied) -> None:
        fetch = mailbox.fetch_whole

        async def fetch_whole(headers: Sequence[Header]) -> int:
            held.append(len(engines[0].users[mailbox.dialogue.user - 1].mail.shown))
            return await fetch(headers)

        mailbox.fetch_whole = fetch_whole  # type: ignore[method-assign]

    lived_by(tmp_path, change=watch, during=during)
    assert set(held) == {0}
    assert len(held) > 2 * MESSAGES / 3
