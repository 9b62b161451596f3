"""Users' tasks, in terms of mail; none of them measures anything or sees a clock.

A task's time covers `fetch` and `act`, which talk to the server. Between the two, `compose` makes the message: this is
the generator's work, and does not count in any task's time. docs/reference/protocols.md has each task's requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from loadsim.errors import MailMissing, ServerRefused
from loadsim.model import terms
from loadsim.model.content.compose import Answered, Attachment, least_bytes
from loadsim.model.message_tag import (
    INITIAL_RUN,
    RECEIPT,
    MessageTag,
    answer_id,
    new_mail_id,
    post_id,
    receipt_id,
    run_named,
)
from loadsim.model.ports import (
    CALENDAR,
    DELETED_ITEMS,
    INBOX,
    OF_ALL_USERS,
    PUBLIC,
    SENT_ITEMS,
    Flag,
    Header,
    Part,
    SearchKey,
    Structure,
)
from loadsim.model.terms import RETURN_RECEIPT, TRACK_RECEIPT
from loadsim.scenario.workload import NEW_MAIL, Addressing
from loadsim.users.first_sync import first_sync
from loadsim.users.inbox import Unread
from loadsim.users.mail import Sought, UserMail
from loadsim.users.showing import show_message, show_part

AFTER_READING = "after reading"
"""The occasion on which users decide about new mail; browsed mail has its own occasions."""

NO_ENTRY = "unknown recipient SEARCH"
"""The failure's kind if a user has no entry in the address book."""

SCREENFUL = 50
"""The number of headers on one screen of a message list."""


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of task.

    `compose` takes the result of `fetch`, and `act` the result of `compose`. If `submits`, `act` talks to the
    submission service or the address book, and its failure does not affect the mailbox session. If it is `public`, this
    depends on where the public folder is.
    """

    name: str
    act: Callable[[UserMail, Any], Awaitable[Any]]
    compose: Callable[[UserMail, Any], Any] | None = None
    fetch: Callable[[UserMail, Any], Awaitable[Any]] | None = None
    submits: bool = False
    public: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A message that a user has read: its header, tag and structure.

    A message is read once when it is new, but may be browsed many times; `occasion` tells the answers apart.
    """

    header: Header
    tag: MessageTag
    structure: Structure
    occasion: str = AFTER_READING


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to submit: its bytes, its id, the addresses to name, and the users it will reach.

    `individuals` are the users addressed directly; lists reach the others. `answers` is the message that it replies to
    or forwards, and the flag to set on it. With `envelope_id`, the user requests a delivery receipt.
    """

    message: bytes
    id: str
    addresses: list[str]
    reached: set[int]
    individuals: tuple[int, ...]
    answers: tuple[Header, Flag] | None = None
    envelope_id: str | None = None


async def log_on(user: UserMail, _: None) -> bool:
    """Open the mailbox and list the newest screenful or, if a session was lost, all new mail. Return True.

    Users who first log on after the common start list the whole Inbox: more than a screenful may be new. Raises
    `ServerRefused` once if folders or mail of the start state are missing.
    """
    mail = user.mailbox
    newest = None if user.host.start_ns else SCREENFUL
    await mail.log_on()
    folders = await mail.folders()
    headers = await (mail.arrived() if user.was_on else mail.headers(INBOX, newest))
    if user.maildrop and not user.was_on:  # without flags, the program knows what it has fetched before
        read = {header.ref: header for header in user.at_start(headers)}
        headers = [read.get(header.ref, header) for header in headers]
    await user.take_in(headers, announced=None)
    await user.watch()
    user.find_folders(folders)
    if not user.was_on:
        user.stored.look(INBOX, headers, newest, mail.messages, user.at_start(headers), mail.keeps)
    return True


async def sync(user: UserMail, unannounced: bool) -> None:
    """List the messages that the server has announced; if `unannounced`, list all, and count any not announced."""
    announced = user.inbox.announced
    headers = await user.mailbox.arrived(unannounced)
    new = await user.take_in(headers, announced=None if unannounced else announced)
    if unannounced and user.poll_s is None:  # with `poll_s`, the user may not have looked since the mail arrived
        user.host.counts.unannounced += max(0, new - announced)
    await user.watch()


async def read(user: UserMail, header: Header) -> Structure:
    """Fetch the structure and text of a message in the Inbox, and flag it as seen."""
    structure = await show_message(user, header)
    await _flag(user, header, Flag.SEEN)
    return structure


_FLAGGED = {Flag.SEEN: "read", Flag.ANSWERED: "answered", Flag.FORWARDED: "forwarded"}


async def _flag(user: UserMail, header: Header, flag: Flag) -> None:
    folder = user.stored.place(header)
    with user.unless_sure([header], folder):
        await user.mailbox.flag([header.ref], flag)
    if not user.mailbox.keeps(flag):
        return
    user.inbox.flagged(header, flag)
    user.record_received(_FLAGGED[flag], header, folder)


async def load_attachment(user: UserMail, wanted: tuple[Header, Part]) -> None:
    header, part = wanted
    await show_part(user, header, part, least_bytes(header.tag)[1])
    await _back(user)


async def _back(user: UserMail) -> None:
    """Reopen the Inbox, where every task begins. The time counts towards the task that left it."""
    await user.mailbox.open(INBOX)


def compose_new(user: UserMail, index: int) -> Outgoing:
    to = user.workload.addressing(user.number, user.profile, NEW_MAIL, index)
    kind, size_bytes = user.workload.message_kind(user.number, user.profile, "new.kind", index)
    return _compose(user, new_mail_id(user.number, index), kind, to, size_bytes=size_bytes)


def compose_reply(user: UserMail, about: Read) -> Outgoing:
    """Return a reply to the sender; if that is the user (mail that came back from a list), to the first recipient."""
    return _compose_answer(user, about, "reply", Addressing(_people(user, about)[:1], None))


def compose_reply_all(user: UserMail, about: Read) -> Outgoing:
    """Return a reply to the sender and the individual recipients, but never to a list.

    If replies went to lists, each reply would cause more than one other, and mail would multiply without end.
    """
    return _compose_answer(user, about, "reply_all", Addressing(_people(user, about), None))


def _people(user: UserMail, about: Read) -> tuple[int, ...]:
    """Return a message's sender and individual recipients without duplicates, and without the user.

    Raises `ServerRefused` if there are none: the server may have changed the headers.
    """
    sender = user.workload.correspondent(user.number, about.tag.sender)
    everyone = dict.fromkeys((sender, *user.individuals(about.header.to)))
    everyone.pop(user.number, None)
    if not everyone:
        raise ServerRefused("no addressee to answer")
    return tuple(everyone)


async def fetch_attachment(user: UserMail, about: Read) -> tuple[Read, Attachment | None]:
    """Fetch the attachment of a message to forward, as mail programs must before they can send it."""
    if not about.structure.attachments:
        return about, None
    part = about.structure.attachments[0]
    encoded = await show_part(user, about.header, part, least_bytes(about.tag)[1])
    return about, Attachment.of(part, encoded)


def compose_forward(user: UserMail, fetched: tuple[Read, Attachment | None]) -> Outgoing:
    """Return the message with its attachment, addressed like new mail."""
    about, carried = fetched
    to = user.workload.addressing(user.number, user.profile, "forward", about.tag.id)
    return _compose_answer(user, about, "forward", to, carried)


def compose_receipt(user: UserMail, about: Read) -> Outgoing:
    """Return a read receipt."""
    tag = about.tag
    to = Addressing((tag.sender,), None)
    return _compose(user, receipt_id(user.number, tag.id), "receipt", to, Answered.of(about.header, "read_receipt"))


def _compose_answer(
    user: UserMail, about: Read, how: str, to: Addressing, attachment: Attachment | None = None
) -> Outgoing:
    occasion = "" if about.occasion == AFTER_READING else f" {about.occasion}"
    message_id = answer_id(user.number, about.tag.id, how + occasion)
    header = about.header
    kind = about.tag.kind if how == "forward" else "ups1K"
    flag = Flag.FORWARDED if how == "forward" else Flag.ANSWERED
    return _compose(user, message_id, kind, to, Answered.of(header, how), attachment, (header, flag))


def _compose(
    user: UserMail,
    message_id: str,
    kind: str,
    to: Addressing,
    answered: Answered | None = None,
    attachment: Attachment | None = None,
    answers: tuple[Header, Flag] | None = None,
    size_bytes: int | None = None,
) -> Outgoing:
    load = user.workload
    addresses = load.addresses(to)
    message = user.contents.compose(
        run=user.run_id,
        sender=user.number,
        sender_address=user.account.address,
        to=addresses,
        id=message_id,
        kind=kind,
        sent_us=user.host.wall_clock_us(),
        domain=user.domain,
        answers=answered,
        attachment=attachment,
        size_bytes=size_bytes,
        requests_receipt=load.requests(user.number, "read", message_id),
    )
    envelope_id = f"{message_id}.{user.run_id}" if load.requests(user.number, "delivery", message_id) else None
    return Outgoing(message, message_id, addresses, load.recipients(to), to.users, answers, envelope_id)


async def resolve(user: UserMail, addresses: Sequence[str]) -> None:
    """Look up recipients. Raises `ServerRefused` if a user has no entry; an address book may lack lists."""
    assert user.directory is not None
    unknown = await user.directory.resolve(addresses)
    if any(user.individuals(unknown)):
        raise ServerRefused(NO_ENTRY, unknown[0])


async def submit(user: UserMail, outgoing: Outgoing) -> Outgoing:
    """Submit a message. A read receipt has the null return path (RFC 8098 section 3)."""
    sender = "" if outgoing.id.startswith(RECEIPT) else user.account.address
    send, envelope_id, offered = user.submission.send, outgoing.envelope_id, False
    with user.unless_submitted(outgoing.id, outgoing.reached):
        if envelope_id is None:
            await send(sender, outgoing.addresses, outgoing.message)
        else:
            offered = await send(sender, outgoing.addresses, outgoing.message, envelope_id)
    if envelope_id is not None:
        user.receipts.requested(envelope_id, user.observer.answered_ns or user.now(), offered)
    user.record_accepted(outgoing.id, outgoing.reached, outgoing.individuals)
    return outgoing


async def track_receipt(user: UserMail, report: Unread) -> None:
    await user.receipts.track(user.mailbox, report)


async def save_sent(user: UserMail, outgoing: Outgoing) -> None:
    """Append a copy to Sent Items, and flag the message that was replied to or forwarded."""
    with user.unless_stored(outgoing.id, SENT_ITEMS):
        await user.mailbox.append(SENT_ITEMS, outgoing.message, [Flag.SEEN])
    user.record_sent("saved", outgoing.id, SENT_ITEMS)
    if outgoing.answers is not None:
        await _flag(user, *outgoing.answers)
        await _back(user)


async def move(user: UserMail, header: Header) -> None:
    folder = user.random_folder("move", header)
    await _move(user, "moved", [header], folder)


async def copy(user: UserMail, header: Header) -> None:
    header, folder = user.inbox.known(header), user.random_folder("copy", header)
    user.stored.tries([header], folder)
    with user.must_be_whole(header), user.unless_sure([header], folder):
        await user.mailbox.copy([header.ref], folder)
    user.record_stored("copied", [header], folder)
    await _back(user)


async def delete(user: UserMail, header: Header) -> None:
    await _delete(user, [header])


async def evict(user: UserMail, headers: list[Header]) -> None:
    await _delete(user, headers)


async def _delete(user: UserMail, headers: list[Header]) -> None:
    """Move messages to Deleted Items; in a maildrop, remove them."""
    if not user.maildrop:
        await _move(user, "deleted", headers, DELETED_ITEMS)
        return
    headers = list(map(user.inbox.known, headers))
    with _leaving(user, headers, INBOX, expunges=True):
        await user.mailbox.expunge([header.ref for header in headers])
    for header in headers:
        user.record_received("expunged", header, INBOX)


async def _move(user: UserMail, event: str, headers: list[Header], folder: str) -> None:
    headers = list(map(user.inbox.known, headers))
    user.stored.tries(headers, folder)
    left = user.stored.place(headers[0])
    with _leaving(user, headers, left, folder):
        await user.mailbox.move([header.ref for header in headers], folder)
    user.record_stored(event, headers, folder, left)
    await _back(user)


@contextmanager
def _leaving(user: UserMail, headers: list[Header], *folders: str, expunges: bool = False) -> Iterator[None]:
    """If the block fails, forget messages in their old folder, since a retry would fail for all of them."""
    user.inbox.gone(headers)
    try:
        with user.must_be_whole(headers[0]), user.unless_sure(headers, *folders, expunges=expunges):
            yield
    except BaseException:
        user.inbox.may_stay(headers)
        raise
    finally:
        user.stored.leaves(headers)


async def browse(user: UserMail, index: int) -> tuple[Header, Structure] | None:
    """Browse: open a random folder, list its newest screenful, read one of its messages, and reopen the Inbox.

    Return None if other activities have chosen all of the folder's messages. Source: BORES 4.0: "select one folder at
    random and read one message".
    """
    if not user.folders:
        raise ServerRefused("no folder to browse")
    folder = user.folders[user.workload.choose(user.number, "browse.folder", index, len(user.folders))]
    shown = await user.mailbox.headers(folder, SCREENFUL)
    first = user.workload.choose(user.number, "browse.message", index, len(shown))
    candidates = (shown[(first + further) % len(shown)] for further in range(len(shown)))
    user.stored.look(folder, shown, SCREENFUL, user.mailbox.messages, (), user.mailbox.keeps)
    header = user.stored.choose(filter(user.inbox.knows, candidates), folder)  # leaves out foreign mail
    structure = None
    if header is not None:
        try:
            structure = await show_message(user, header)
        except BaseException:
            user.stored.release(header)
            raise
    elif len(shown) < SCREENFUL and user.stored.holds(folder) and not any(map(user.inbox.knows, shown)):
        raise MailMissing("no message to browse", folder)
    await _back(user)
    return (header, structure) if header is not None and structure is not None else None


def compose_post(user: UserMail, index: int) -> Outgoing:
    """Return the user's `index`th post, which is addressed to themselves: the folder has no address."""
    kind, size_bytes = user.workload.message_kind(user.number, user.profile, "post.kind", index)
    return _compose(user, post_id(user.number, index), kind, Addressing((user.number,), None), size_bytes=size_bytes)


async def post(user: UserMail, outgoing: Outgoing) -> None:
    with user.unless_stored(outgoing.id, PUBLIC, (OF_ALL_USERS,)):
        await user.public.post(outgoing.message)
    user.record_post(outgoing.id)


async def browse_public(user: UserMail, index: int) -> None:
    """List the newest screenful of the public folder, read one of loadsim's messages there, and return to the Inbox.

    Raises `MailMissing` if the folder is empty, but the start state or the user has put mail there. It leaves all
    flags: a start state could not reset those of every user.
    """
    shown = await user.public.newest(SCREENFUL)
    own = [each for each in shown if run_named(each.message_id, user.domain) in (user.run_id, INITIAL_RUN)]
    if own:
        header = own[user.workload.choose(user.number, "browse public.message", index, len(own))]
        user.stored.choose([header], PUBLIC)
        try:
            await show_message(user, await user.public.with_tag(header))
        finally:
            user.stored.release(header)
    elif not shown and (user.posts or (user.stored.is_known and user.workload.start_state(OF_ALL_USERS)[PUBLIC])):
        raise MailMissing("no message to browse", PUBLIC)
    await user.public.leave()


async def search(user: UserMail, sought: Sought) -> None:
    """Search the Inbox for a message that is there, list the newest messages found, and read the one sought.

    Raises `ServerRefused` if the server does not find it, or finds messages without the words.
    """
    await find(user, sought)
    await show_message(user, sought.header)


async def find(user: UserMail, sought: Sought) -> None:
    """Search the Inbox for a message, and list the newest messages found. Raises `ServerRefused` as `search` does.

    A message that another program of the user has moved meanwhile need not be found.
    """
    header, key, words = sought
    found = await user.mailbox.search(INBOX, key, words, SCREENFUL)
    if len(found) < SCREENFUL and all(hit.ref != header.ref for hit in found) and user.inbox.holds(header):
        raise ServerRefused("SEARCH does not find a message", f"by {key}")
    own = [hit for hit in found if hit.tag]  # others' may have the words in a name, or in a charset of their own
    told = {SearchKey.SENDER: [hit.sender for hit in own], SearchKey.SUBJECT: [hit.subject for hit in own]}
    if any(words.lower() not in text.lower() for text in told.get(key, ())):
        raise ServerRefused("SEARCH finds other messages", f"by {key}")


def make_schedule(user: UserMail, index: int) -> tuple[str, bytes]:
    """Return the schedule after the user's `index`th change: its id and its file."""
    schedule_id = f"s{user.number}.{index}"
    return schedule_id, user.contents.schedule(
        run=user.run_id,
        user=user.number,
        address=user.account.address,
        id=schedule_id,
        size_bytes=user.workload.schedule_bytes(user.number, user.profile, index),
        sent_us=user.host.wall_clock_us(),
        domain=user.domain,
    )


async def schedule(user: UserMail, made: tuple[str, bytes]) -> None:
    schedule_id, file = made
    with user.unless_stored(schedule_id, CALENDAR):
        await user.calendar.replace(file)
    user.record_schedule(schedule_id)


async def log_off(user: UserMail, _: None) -> None:
    """Check the mail put into folders, empty Deleted Items if the profile says so, and log off.

    Only loadsim's messages are deleted. Finally, raises `ServerRefused` if a folder or any of its mail is missing.
    """
    mail = user.mailbox
    lack: ServerRefused | None = None
    if user.stored.is_known:
        try:
            user.find_folders(await mail.folders())
        except ServerRefused as failure:
            lack = failure
    empties = user.profile.empty_deleted_items_on_log_off and not user.maildrop
    looks: dict[str, int | None] = dict.fromkeys(user.stored.unlooked, SCREENFUL)
    if empties:
        looks.pop(DELETED_ITEMS, None)
        looks[DELETED_ITEMS] = None
    if user.stored.is_known:
        looks[INBOX] = 1
    for folder, newest in looks.items():
        headers: Sequence[Header] = ()
        try:
            headers = await mail.headers(folder, newest)
            known = map(user.inbox.known, headers) if folder == INBOX else ()
            user.stored.look(folder, headers, newest, mail.messages, known, mail.keeps)
        except ServerRefused as failure:
            lack = lack or failure
        own = [header for header in headers if header.tag] if newest is None else []
        if own:
            with user.unless_sure(own, folder, expunges=True):
                await mail.expunge([header.ref for header in own])
            for header in own:
                user.record_received("expunged", header, folder)
    await user.submission.close()
    if user.directory is not None:
        await user.directory.close()
    await user.public.close()
    await mail.log_off()
    if lack is not None:
        raise lack


LOGON = Task("LOGON", log_on)
FIRST_SYNC = Task("FIRST SYNC", first_sync)
SYNC = Task("SYNC", sync)
READ = Task("READ", read)
LOAD_ATTACHMENT = Task("LOAD ATTACHMENT", load_attachment)
RESOLVE = Task(terms.RESOLVE, resolve, submits=True)
SEND = Task("SEND", submit, compose_new, submits=True)
REPLY = Task("REPLY", submit, compose_reply, submits=True)
REPLY_ALL = Task("REPLY ALL", submit, compose_reply_all, submits=True)
FORWARD = Task("FORWARD", submit, compose_forward, fetch_attachment, submits=True)
SAVE_SENT = Task("SAVE SENT", save_sent)
MOVE = Task("MOVE", move)
COPY = Task("COPY", copy)
DELETE = Task("DELETE", delete)
DELETE_UNREAD = Task("DELETE UNREAD", delete)
BROWSE = Task("BROWSE", browse)
SEARCH = Task("SEARCH", search)
SCHEDULE = Task("SCHEDULE", schedule, make_schedule)
EVICT = Task("EVICT", evict)
TRACK = Task(TRACK_RECEIPT, track_receipt)
RETURN = Task(RETURN_RECEIPT, submit, compose_receipt, submits=True)
POST = Task("POST", post, compose_post, public=True)
BROWSE_PUBLIC = Task("BROWSE PUBLIC", browse_public, public=True)
LOGOFF = Task("LOGOFF", log_off)

TASKS = {task.name: task for task in [*globals().values()] if isinstance(task, Task)}
"""All the tasks above, by name."""
