"""The crimes of servers: how a server does wrong, as functions of the command that it is given and of the instant.

Instants are seconds from the common start. Each crime with a length begins at the same one, so that a longer one does
everything that a shorter one does, and more.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from loadsim.errors import ServerLost, ServerRefused, TaskFailed
from loadsim.model.draws import draw
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, INBOX, SENT_ITEMS, Flag, Header, MessageRef, Part, Structure
from loadsim.protocols.in_memory import InMemoryDriver, InMemoryMailbox, Post
from loadsim.protocols.in_memory_mail import MailInMemory

BEGIN_S = 100.0
"""When a crime with a length begins."""

LENGTHS_S = (5.0, 15.0, 25.0, 60.0)

REFUSED_SHARE = 0.48
"""Of the commands that end one kind of task: fewer than half, so that medians do not tell."""

EVERY = 10
"""Of messages and users, the one that a crime is done to."""

UNSERVED = 7
"""The only user without usable service."""

LATE_S = 60.0
"""Delay of such a message."""

DAY_S = 240.0
"""The end of the day, by the clock of the loop, a few seconds before that of the users."""

SLOW_UNTIL_S = 80.0
SLOW_S = 2.0
"""A slow start: how much longer each command takes until then, log-ons before the common start included."""

THROTTLED_FROM_S = 60.0
THROTTLED_S = 1.5
"""A server that throttles: how much longer each command takes from then on."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its user, the task in which it is given, how many the user gave before, and when it begins."""

    user: int
    task: str | None
    name: str
    number: int
    at_s: float


def _never(_: Command) -> TaskFailed | None:
    return None


def _everybody(_: int) -> bool:
    return True


def _a_tenth(user: int) -> bool:
    return user % EVERY == 0


def _as_drawn(_: float, service_s: float) -> float:
    return service_s


@dataclass(frozen=True, slots=True)
class Crime:
    """One crime. `name` says which, `length_s` for how long, where that makes a difference.

    `fails` says how a command fails, `takes_s` how long one takes that begins at an instant and has a service time, of
    the users whom it `affects`. With `breaks`, their sessions break at the crime's begin. `post` delivers what the
    server has accepted. `strikes` is done once, at the begin. `mailbox_type` makes the mailboxes.
    """

    name: str
    length_s: float | None = None
    fails: Callable[[Command], TaskFailed | None] = _never
    takes_s: Callable[[float, float], float] = _as_drawn
    affects: Callable[[int], bool] = _everybody
    breaks: bool = False
    post: Callable[[InMemoryDriver], Post] | None = None
    strikes: Callable[[InMemoryDriver], None] | None = None
    mailbox_type: type[InMemoryMailbox] | None = None

    @property
    def title(self) -> str:
        """Name and length."""
        return self.name if self.length_s is None else f"{self.name}, {self.length_s:g} s"


# --- outages and stalls -----------------------------------------------------------------------------------------


def _during(length_s: float, at_s: float) -> bool:
    return BEGIN_S <= at_s < BEGIN_S + length_s


def refused(length_s: float) -> Crime:
    """Connections are refused, at once, and those that there were are gone."""
    during = partial(_during, length_s)
    return Crime(
        REFUSED,
        length_s,
        fails=lambda command: ServerLost("connection refused") if during(command.at_s) else None,
        takes_s=lambda at_s, service_s: 0.0 if during(at_s) else service_s,
        breaks=True,
    )


def dropped(length_s: float) -> Crime:
    """Connections are accepted and dropped, after what a command takes, and those that there were are gone."""
    during = partial(_during, length_s)

    def fails(command: Command) -> TaskFailed | None:
        accepted = command.name == "SMTP CONNECT"  # that of IMAP has no name of its own here
        return ServerLost("connection lost") if during(command.at_s) and not accepted else None

    return Crime(DROPPED, length_s, fails, breaks=True)


def silence(length_s: float) -> Crime:
    """Never answer what would be answered in this time; sessions that are idle stay."""
    return Crime(SILENCE, length_s, takes_s=partial(_held_back, length_s, math.inf))


def stall(length_s: float) -> Crime:
    """Answer at the end of this time, all at once, what would be answered in it."""
    return Crime(STALL, length_s, takes_s=partial(_held_back, length_s, BEGIN_S + length_s))


def _held_back(length_s: float, until_s: float, at_s: float, service_s: float) -> float:
    in_it = at_s < BEGIN_S + length_s and at_s + service_s >= BEGIN_S
    return max(service_s, until_s - at_s) if in_it else service_s


def of_a_tenth(length_s: float) -> Crime:
    """Connections of a tenth of the users are dropped."""
    return replace(dropped(length_s), name=f"{DROPPED}, of a tenth of the users", affects=_a_tenth)


def of_submission(length_s: float) -> Crime:
    """Messages cannot be submitted; mailboxes are as they were."""

    def fails(command: Command) -> TaskFailed | None:
        chosen = _during(length_s, command.at_s) and command.name.startswith("SMTP")
        return ServerLost("connection refused") if chosen else None

    return Crime(f"{REFUSED}, submission only", length_s, fails)


REFUSED = "outage, connections refused"
DROPPED = "outage, connections dropped"
SILENCE = "outage, silence"
STALL = "stall"
LASTING = {REFUSED: refused, DROPPED: dropped, SILENCE: silence, STALL: stall}
"""Crimes with a length, by name."""


# --- refusals ---------------------------------------------------------------------------------------------------


def half_refused(task: str, last: str) -> Crime:
    """Nearly half of one kind of task is refused, with the task's command `last`."""

    def fails(command: Command) -> TaskFailed | None:
        if (command.task, command.name) != (task, last):
            return None
        unlucky = draw(1, command.user, "crime", command.number) < REFUSED_SHARE
        return ServerRefused(f"NO {last}") if unlucky else None

    return Crime(f"{REFUSED_SHARE:.0%} of {task} refused".replace("%", " %"), fails=fails)


def _no_log_on(command: Command) -> TaskFailed | None:
    return ServerRefused("NO AUTHENTICATE") if command.name == "IMAP AUTHENTICATE" else None


def answers_no(name: str, from_s: float) -> Crime:
    """From an instant on, the answer to everything is NO, and comes at once."""
    return Crime(
        name,
        fails=lambda command: ServerRefused("NO") if command.at_s >= from_s else None,
        takes_s=lambda at_s, service_s: 0.0 if at_s >= from_s else service_s,
    )


# --- mail -------------------------------------------------------------------------------------------------------


def every_tenth(driver: InMemoryDriver, chosen: Callable[[InMemoryDriver, MailInMemory, Sequence[int]], None]) -> Post:
    """Deliver messages at once, but every tenth as `chosen` does."""
    accepted = 0

    def post(mail: MailInMemory, users: Sequence[int]) -> None:
        nonlocal accepted
        accepted += 1
        if accepted % EVERY:
            driver.arrive(mail, users)
        else:
            chosen(driver, mail, users)

    return post


def _lose(_: InMemoryDriver, __: MailInMemory, ___: Sequence[int]) -> None:
    """The server has accepted it, and that was all."""


def _duplicate(driver: InMemoryDriver, mail: MailInMemory, users: Sequence[int]) -> None:
    driver.arrive(mail, users)
    driver.arrive(mail, users)


class Hiding(InMemoryMailbox):
    """A session that has the Inbox open never learns of what is put there by `hide`, until it opens the Inbox again."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._hidden: dict[int, Any] = {}

    def hide(self, mail: MailInMemory) -> None:
        opened, self._open = self._open, None
        self.receive(mail)
        self._open = opened
        if opened == INBOX:
            self._announced_uid = uid = self._inbox.next_uid - 1
            self._hidden[uid] = self._inbox.messages.pop(uid)

    async def _select(self, folder: str) -> None:
        await super()._select(folder)
        _restore(self, INBOX, dict(sorted((self._inbox.messages | self._hidden).items())))
        self._hidden.clear()


def hide(driver: InMemoryDriver, mail: MailInMemory, users: Sequence[int]) -> None:
    """Do so with the mailboxes of these users."""
    for user in users:
        cast(Hiding, driver.mailboxes[user]).hide(mail)


def _deliver_read(driver: InMemoryDriver) -> Post:
    """Deliver every fiftieth message as if its recipients had read it."""
    accepted = 0

    def post(mail: MailInMemory, users: Sequence[int]) -> None:
        nonlocal accepted
        accepted += 1
        driver.arrive(mail, users)
        if accepted % 50 == 0:
            for inbox in (driver.mailboxes[user].folder(INBOX) for user in users):
                cast(Any, inbox.messages[inbox.next_uid - 1]).flags = frozenset({Flag.SEEN})

    return post


def leaving_out_senders(driver: InMemoryDriver) -> Post:
    """Deliver messages at once, but none to its sender, as some servers' lists do."""

    def post(mail: MailInMemory, users: Sequence[int]) -> None:
        driver.arrive(mail, [user for user in users if mail.tag is None or user != mail.tag.sender])

    return post


def _delay(driver: InMemoryDriver, mail: MailInMemory, users: Sequence[int]) -> None:
    asyncio.get_running_loop().call_later(LATE_S, driver.arrive, mail, users)


def _late_for_one(driver: InMemoryDriver) -> Post:
    """One user's mail arrives at `DAY_S`, when it was accepted before."""

    def post(mail: MailInMemory, users: Sequence[int]) -> None:
        loop = asyncio.get_running_loop()
        driver.arrive(mail, [user for user in users if user != UNSERVED])
        if UNSERVED in users:
            loop.call_at(max(loop.time(), DAY_S), driver.arrive, mail, [UNSERVED])

    return post


SILENT_END = "silent from the end of the day on"
LEFT_OUT = "lists leave out the sender"


# --- stored mail ------------------------------------------------------------------------------------------------


def _wipe(folders: Callable[[InMemoryDriver, int], Sequence[str]], driver: InMemoryDriver) -> None:
    """All messages of these folders are gone."""
    for user, mailbox in driver.mailboxes.items():
        for name in folders(driver, user):
            mailbox.folder(name).messages.clear()


def _wipe_read(driver: InMemoryDriver) -> None:
    """All read messages of the Inboxes are gone."""
    for mailbox in driver.mailboxes.values():
        messages = mailbox.folder(INBOX).messages
        for uid in [uid for uid, message in messages.items() if message is not None and Flag.SEEN in message.flags]:
            del messages[uid]


def _double(driver: InMemoryDriver) -> None:
    """Of each of the users' own folders, the first half is gone, and the second is there twice."""
    for user, mailbox in driver.mailboxes.items():
        for folder in map(mailbox.folder, _own(driver, user)):
            uids = list(folder.messages)
            for gone, uid in zip(uids, uids[len(uids) // 2 :], strict=False):
                mailbox.header(folder, uid)  # a message of the start state is made at its first use
                message = folder.messages[uid]
                assert message is not None
                folder.add(message.mail, message.flags)
                del folder.messages[gone]


def _own(driver: InMemoryDriver, user: int) -> Sequence[str]:
    return driver.workload.own_folders(user)


def _sent(_: InMemoryDriver, __: int) -> Sequence[str]:
    return (SENT_ITEMS,)


class _WithoutAFolder(InMemoryMailbox):
    """The first of the user's own folders is not there, and not listed."""

    def folder(self, name: str) -> Any:
        if name == "Folder 01":
            raise ServerRefused("NO SELECT", f"no folder {name}")
        return super().folder(name)

    async def folders(self) -> Sequence[str]:
        return [name for name in await super().folders() if name != "Folder 01"]


class _LosingAFolder(InMemoryMailbox):
    """A mailbox of one user that loses a folder, from `BEGIN_S` on."""

    def _is_lost(self, name: str) -> bool:
        is_late = self._observer.now() >= BEGIN_S * 1e9
        return name == "Folder 01" and is_late and self._account.number == UNSERVED

    def folder(self, name: str) -> Any:
        if self._is_lost(name):
            raise ServerRefused("NO SELECT", f"no folder {name}")
        return super().folder(name)

    async def folders(self) -> Sequence[str]:
        return [name for name in await super().folders() if not self._is_lost(name)]


class _LookingEmpty(InMemoryMailbox):
    """Until the end of the day, the first own folder of a tenth of the users is shown without messages."""

    def _looks_empty(self, name: str | None) -> bool:
        return name == "Folder 01" and _a_tenth(self._account.number) and self._observer.now() < DAY_S * 1e9

    @property
    def messages(self) -> int:
        return 0 if self._looks_empty(self._open) else super().messages

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        shown = await super().headers(folder, newest)
        return () if self._looks_empty(folder) else shown


class _ListingOwn(InMemoryMailbox):
    async def folders(self) -> Sequence[str]:
        return [name for name in await super().folders() if name not in (SENT_ITEMS, DELETED_ITEMS, CALENDAR)]


class _WithoutParts(InMemoryMailbox):
    async def structure(self, ref: MessageRef) -> Structure:
        await super().structure(ref)
        return Structure(None)


class _Truncating(InMemoryMailbox):
    async def part(self, ref: MessageRef, part: Part) -> bytes:
        data = await super().part(ref, part)
        return data[: len(data) // 2]


class _TruncatingFiles(_Truncating):
    async def part(self, ref: MessageRef, part: Part) -> bytes:
        return await (InMemoryMailbox if part.content_type.startswith("text/") else _Truncating).part(self, ref, part)


class _Altering(InMemoryMailbox):
    """Every part has other bytes, of the same number."""

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        return (await super().part(ref, part))[::-1]


class _TruncatingSent(InMemoryMailbox):
    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        stored: Any = await super().append(folder, message, flags)
        stored.mail = stored.mail._replace(size_bytes=len(message) // 2)
        return cast(MessageRef, stored)


class _Unflagging(InMemoryMailbox):
    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        kept = [message.flags for message in cast("Sequence[Any]", refs)]
        await super().flag(refs, flag, on)
        for message, flags in zip(cast("Sequence[Any]", refs), kept, strict=True):
            message.flags = flags


class _Moving(InMemoryMailbox):
    """MOVE removes messages, and puts them nowhere."""

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        kept = dict(self.folder(folder).messages)
        await super().move(refs, folder)
        _restore(self, folder, kept)


class _LosingBeforeMove(InMemoryMailbox):
    """Every tenth user's message is gone when they move their tenth."""

    _moves = 0

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        self._moves += 1
        if self._moves == EVERY and _a_tenth(self._account.number):
            for message in cast("Sequence[Any]", refs):
                del message.folder.messages[message.uid]
        await super().move(refs, folder)


class _Appending(InMemoryMailbox):
    """APPEND does nothing."""

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        kept = dict(self.folder(folder).messages)
        await super().append(folder, message, flags)
        _restore(self, folder, kept)
        return None


class _AppendingMail(_Appending):
    """APPEND to the calendar does nothing."""

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        return await (_Appending if folder == CALENDAR else InMemoryMailbox).append(self, folder, message, flags)


class _HidingSent(_Appending):
    """APPEND to Sent Items does nothing, and the folder cannot be opened."""

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        return await (_Appending if folder == SENT_ITEMS else InMemoryMailbox).append(self, folder, message, flags)

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        if folder == SENT_ITEMS:
            raise ServerRefused("NO SELECT")
        return await super().headers(folder, newest)


class _Doubling(InMemoryMailbox):
    """APPEND stores each message twice."""

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        await super().append(folder, message, flags)
        return await super().append(folder, message, flags)


def _restore(mailbox: InMemoryMailbox, folder: str, messages: Mapping[int, Any]) -> None:
    mailbox.folder(folder).messages.clear()
    mailbox.folder(folder).messages.update(messages)


# --- all of them ------------------------------------------------------------------------------------------------

NONE = Crime("none: a healthy server")

CRIMES: Sequence[Crime] = (
    NONE,
    *(make(length_s) for name, make in LASTING.items() if name != DROPPED for length_s in LENGTHS_S),
    of_a_tenth(60.0),
    of_submission(25.0),
    half_refused("SEND", "SMTP DATA"),
    half_refused("MOVE", "IMAP UID MOVE"),
    half_refused("LOAD ATTACHMENT", "IMAP UID FETCH"),
    Crime("every tenth message lost", post=lambda driver: every_tenth(driver, _lose)),
    Crime("every tenth message duplicated", post=lambda driver: every_tenth(driver, _duplicate)),
    Crime("every tenth message not announced", post=lambda driver: every_tenth(driver, hide), mailbox_type=Hiding),
    Crime(LEFT_OUT, post=leaving_out_senders),
    Crime("every tenth message 60 s late", post=lambda driver: every_tenth(driver, _delay)),
    Crime("every fiftieth message flagged as read", post=_deliver_read),
    Crime("all mail of the users' own folders wiped", strikes=partial(_wipe, _own)),
    Crime("all mail of Sent Items wiped", strikes=partial(_wipe, _sent)),
    Crime("all read mail of the Inboxes wiped", strikes=_wipe_read),
    Crime("a folder missing", mailbox_type=_WithoutAFolder),
    Crime("one user of 40: a folder vanishes", mailbox_type=_LosingAFolder),
    Crime("a folder looks empty to a tenth of the users, in the day", mailbox_type=_LookingEmpty),
    Crime("Sent Items, Deleted Items and Calendar not listed", mailbox_type=_ListingOwn),
    Crime("structures without parts", mailbox_type=_WithoutParts),
    Crime("bodies truncated", mailbox_type=_Truncating),
    Crime("attachments truncated", mailbox_type=_TruncatingFiles),
    Crime("bodies with other bytes", mailbox_type=_Altering),
    Crime("Sent Items truncated", mailbox_type=_TruncatingSent),
    Crime("flags not kept", mailbox_type=_Unflagging),
    Crime("MOVE puts messages nowhere", mailbox_type=_Moving),
    Crime("a message of each tenth user gone before its MOVE", mailbox_type=_LosingBeforeMove),
    Crime("APPEND without effect", mailbox_type=_Appending),
    Crime("APPEND to Sent Items without effect, SELECT refused", mailbox_type=_HidingSent),
    Crime(SILENT_END, takes_s=lambda at_s, service_s: math.inf if at_s >= DAY_S else service_s),
    Crime("half of the own folders lost, half doubled", strikes=_double),
    Crime("APPEND to the calendar without effect", mailbox_type=_AppendingMail),
    Crime("APPEND stores twice", mailbox_type=_Doubling),
    Crime("one user of 40: mail at the end of the day", post=_late_for_one),
    Crime("log-ons refused for a tenth of the users", fails=_no_log_on, affects=_a_tenth),
    Crime(
        "one user of 40: 20 s more for each command",
        takes_s=lambda _, service_s: service_s + 20.0,
        affects=lambda user: user == UNSERVED,
    ),
    answers_no("NO to everything", -math.inf),
    answers_no("NO to everything in the second half", 120.0),
    Crime(
        "slow start: 2 s more for each command, for 80 s",
        takes_s=lambda at_s, service_s: service_s + (SLOW_S if at_s < SLOW_UNTIL_S else 0.0),
    ),
    Crime(
        "throttles after a minute: 1.5 s more for each command",
        takes_s=lambda at_s, service_s: service_s + (THROTTLED_S if at_s >= THROTTLED_FROM_S else 0.0),
    ),
)


ACCEPTED: Mapping[str, str] = {
    "stall, 5 s": "no user waits more than 5 s longer, as `response_p95_ms` allows",
    LEFT_OUT: "a list may do so: these copies are not expected",
    "48 % of LOAD ATTACHMENT refused": "the task is not scored, and fewer than 1 % of all tasks fail",
}
"""Crimes that pass, by their titles, and why they may."""

UNSEEN = (SILENT_END,)
"""Crimes after which only an audit can tell that stored mail is there."""
