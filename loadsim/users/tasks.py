"""What each task does, in the words of mail; none of them measures or sees a clock.

A task's time covers `fetch` and `act`: all that the server is asked for. Between the two, `compose` makes what is to be
submitted, which is our own work and in no time. The commands that each task turns into are in docs/reference/tasks.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loadsim.errors import ServerRefused
from loadsim.model.content import Answered, Attachment
from loadsim.model.message_tag import MessageTag, answer_id, new_mail_id
from loadsim.model.ports import DELETED_ITEMS, INBOX, SENT_ITEMS, Flag, Header, Part, Structure
from loadsim.model.workload import NEW_MAIL, Addressing

if TYPE_CHECKING:
    from loadsim.users.user import User

AFTER_READING = "after reading"
"""When a user decides about new mail; browsed mail has occasions of its own."""

SCREENFUL = 50
"""How many headers a message list shows at once."""


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of task.

    `fetch` brings what `compose` needs, whose result is what `act` is about. `submits` says that `act` talks to the
    submission service, so that its failure leaves the mailbox as it is.
    """

    name: str
    act: Callable[[User, Any], Awaitable[Any]]
    compose: Callable[[User, Any], Any] | None = None
    fetch: Callable[[User, Any], Awaitable[Any]] | None = None
    submits: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A message that was read: what the list showed of it, its evidence, and what it consists of.

    The occasion tells answers apart: a message is read once when it is new, and may be browsed any number of times.
    """

    header: Header
    evidence: MessageTag
    structure: Structure
    occasion: str = AFTER_READING


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message about to be submitted: its bytes, its id, the addresses to name, the users it will reach.

    `answers` is the message that it replies to or forwards, and the flag that says so.
    """

    message: bytes
    id: str
    addresses: list[str]
    reached: set[int]
    answers: tuple[Header, Flag] | None = None


async def log_on(user: User, _: None) -> bool:
    """Open the mailbox and show the newest screenful; after a lost session, what came meanwhile. Returns True.

    Who gets on for the first time when the others are at work already has mail waiting, perhaps more than a screenful.
    """
    mail = user.mailbox
    newest = None if user.host.start_ns else SCREENFUL
    await mail.log_on()
    user.folders_found(await mail.folders())
    await user.take_in(await (mail.arrived() if user.was_on else mail.headers(INBOX, newest)), announced=None)
    await user.watch()
    return True


async def sync(user: User, unannounced: bool) -> None:
    """Show what the server has announced; or, for a user who looks by himself, what it has not."""
    announced = None if unannounced else user.inbox.announced
    await user.take_in(await user.mailbox.arrived(), announced=announced)
    await user.watch()


async def read(user: User, header: Header) -> Structure:
    """Read a message of the Inbox: its structure, its text; then it counts as seen."""
    structure = await _show(user, header)
    await user.mailbox.flag([header.ref], Flag.SEEN)
    user.note("read", header, INBOX)
    return structure


async def _show(user: User, header: Header) -> Structure:
    structure = await user.mailbox.structure(header.ref)
    if structure.text is not None:
        await _part(user, header, structure.text)
    return structure


async def _part(user: User, header: Header, part: Part) -> bytes | bytearray:
    """Fetch a part. Raises `ServerRefused` when it is empty and should not be: its contents are gone."""
    data = await user.mailbox.part(header.ref, part)
    if part.size_bytes and not data:
        raise ServerRefused("FETCH of an empty part")
    return data


async def load_attachment(user: User, wanted: tuple[Header, Part]) -> None:
    """Open the attachment of a message that was read."""
    header, part = wanted
    await _part(user, header, part)
    await _back(user)


async def _back(user: User) -> None:
    """To the Inbox, where every task begins: the way from another folder belongs to what was done there."""
    await user.mailbox.open(INBOX)


def compose_new(user: User, index: int) -> Outgoing:
    """The user's `index`th new message."""
    to = user.workload.addressing(user.number, user.profile, NEW_MAIL, index)
    kind = user.workload.message_kind(user.number, user.profile, "new.kind", index)
    return _compose(user, new_mail_id(user.number, index), kind, to)


def compose_reply(user: User, about: Read) -> Outgoing:
    """An answer to the sender; to own mail, which comes back over a list, an answer to its first addressee."""
    return _compose_answer(user, about, "reply", Addressing(_people(user, about)[:1], None))


def compose_reply_all(user: User, about: Read) -> Outgoing:
    """An answer to the sender and the individual recipients; never again to a list.

    With lists addressed again the population is supercritical, and mail explodes within a day.
    """
    return _compose_answer(user, about, "reply_all", Addressing(_people(user, about), None))


def _people(user: User, about: Read) -> tuple[int, ...]:
    """The sender and the individual recipients of a message, once each, without the user himself.

    Raises `ServerRefused` when that is nobody: what a message says of itself came from the server.
    """
    everyone = dict.fromkeys((about.evidence.sender, *user.individuals(about.header.to)))
    everyone.pop(user.number, None)
    if not everyone:
        raise ServerRefused("nobody to answer")
    return tuple(everyone)


async def fetch_attachment(user: User, about: Read) -> tuple[Read, Attachment | None]:
    """Fetch the attachment of a message that is to be forwarded, as a mail program does before it can send it on."""
    if not about.structure.attachments:
        return about, None
    part = about.structure.attachments[0]
    encoded = await _part(user, about.header, part)
    return about, Attachment(part.content_type, part.filename, part.encoding, encoded)


def compose_forward(user: User, fetched: tuple[Read, Attachment | None]) -> Outgoing:
    """The message and its attachment to others, chosen as for new mail."""
    about, carried = fetched
    to = user.workload.addressing(user.number, user.profile, "forward", about.evidence.id)
    return _compose_answer(user, about, "forward", to, carried)


def _compose_answer(
    user: User, about: Read, how: str, to: Addressing, attachment: Attachment | None = None
) -> Outgoing:
    """An answer. Raises `ServerRefused` when the message has a header that no answer can quote."""
    occasion = "" if about.occasion == AFTER_READING else f" {about.occasion}"
    message_id = answer_id(user.number, about.evidence.id, how + occasion)
    header = about.header
    answered = Answered(message_id=header.message_id, references=(), subject=header.subject, how=how)
    kind = about.evidence.kind if how == "forward" else "ups1K"
    flag = Flag.FORWARDED if how == "forward" else Flag.ANSWERED
    try:
        return _compose(user, message_id, kind, to, answered, attachment, (header, flag))
    except ValueError as unfit:
        what = str(unfit).partition(",")[0]  # what follows is the value: contents of a message
        raise ServerRefused("cannot be answered", what) from None


def _compose(
    user: User,
    message_id: str,
    kind: str,
    to: Addressing,
    answered: Answered | None = None,
    attachment: Attachment | None = None,
    answers: tuple[Header, Flag] | None = None,
) -> Outgoing:
    addresses = user.workload.addresses(to)
    message = user.contents.compose(
        run=user.run_id,
        sender=user.number,
        sender_address=user.account.address,
        sender_name=None,
        to=addresses,
        id=message_id,
        kind=kind,
        sent_us=user.wall_clock_us(),
        domain=user.domain,
        answers=answered,
        attachment=attachment,
    )
    return Outgoing(message, message_id, addresses, user.workload.recipients(to), answers)


async def submit(user: User, outgoing: Outgoing) -> Outgoing:
    """Hand a message to the server, which accepts it for every recipient."""
    await user.submission.send(user.account.address, outgoing.addresses, outgoing.message)
    user.accepted(outgoing.id, outgoing.reached)
    return outgoing


async def save_sent(user: User, outgoing: Outgoing) -> None:
    """Keep a copy of what was sent, and mark the message that it answers."""
    await user.mailbox.append(SENT_ITEMS, outgoing.message, [Flag.SEEN])
    user.note_sent("saved", outgoing.id, SENT_ITEMS)
    if outgoing.answers is not None:
        header, flag = outgoing.answers
        await user.mailbox.flag([header.ref], flag)
        await _back(user)


async def move(user: User, header: Header) -> None:
    """Put a message into a folder at random."""
    folder = user.random_folder("move", header)
    await user.mailbox.move([header.ref], folder)
    user.inbox.gone([header])
    user.note("moved", header, folder)
    await _back(user)


async def copy(user: User, header: Header) -> None:
    """Put a copy of a message into a folder at random."""
    folder = user.random_folder("copy", header)
    await user.mailbox.copy([header.ref], folder)
    user.note("copied", header, folder)
    await _back(user)


async def delete(user: User, header: Header) -> None:
    """Move a message to Deleted Items."""
    await _discard(user, [header])


async def evict(user: User, headers: list[Header]) -> None:
    """Move what the Inbox may not hold any longer to Deleted Items.

    What the server refuses to move is left where it is: tried again, it would take the others with it every time.
    """
    try:
        await _discard(user, headers)
    except ServerRefused:
        user.inbox.gone(headers)
        raise


async def _discard(user: User, headers: list[Header]) -> None:
    await user.mailbox.move([header.ref for header in headers], DELETED_ITEMS)
    user.inbox.gone(headers)
    for header in headers:
        user.note("deleted", header, DELETED_ITEMS)
    await _back(user)


async def browse(user: User, index: int) -> tuple[Header, Structure] | None:
    """Open a folder at random, look at its newest screenful, read one message of it, go back to the Inbox.

    Source: BORES 4.0: "select one folder at random and read one message".
    """
    if not user.folders:
        raise ServerRefused("no folder to browse")
    folder = user.folders[user.workload.choose(user.number, "browse.folder", index, len(user.folders))]
    shown = await user.mailbox.headers(folder, SCREENFUL)
    first = user.workload.choose(user.number, "browse.message", index, len(shown))
    candidates = (shown[(first + further) % len(shown)] for further in range(len(shown)))
    header = next(filter(user.inbox.knows, candidates), None)  # foreign mail is passed over
    read_one = None if header is None else (header, await _show(user, header))
    await _back(user)
    return read_one


def make_schedule(user: User, index: int) -> bytes:
    """The schedule file as it is after the user's `index`th change."""
    return user.contents.schedule(
        run=user.run_id,
        user=user.number,
        address=user.account.address,
        id=f"s{user.number}.{index}",
        size_bytes=user.workload.schedule_bytes(user.number, user.profile, index),
        sent_us=user.wall_clock_us(),
        domain=user.domain,
    )


async def schedule(user: User, file: bytes) -> None:
    """Put the changed schedule in place of the old one."""
    await user.calendar.replace(file)


async def log_off(user: User, _: None) -> None:
    """Empty Deleted Items where the profile says so (of what loadsim put there), and leave."""
    mail = user.mailbox
    if user.profile.empty_deleted_items_on_log_off:
        own = [header for header in await mail.headers(DELETED_ITEMS, None) if header.evidence]
        if own:
            await mail.expunge([header.ref for header in own])
            for header in own:
                user.note("expunged", header, DELETED_ITEMS)
    await user.submission.close()
    await mail.log_off()


LOGON = Task("LOGON", log_on)
SYNC = Task("SYNC", sync)
READ = Task("READ", read)
LOAD_ATTACHMENT = Task("LOAD ATTACHMENT", load_attachment)
SEND = Task("SEND", submit, compose_new, submits=True)
REPLY = Task("REPLY", submit, compose_reply, submits=True)
REPLY_ALL = Task("REPLY ALL", submit, compose_reply_all, submits=True)
FORWARD = Task("FORWARD", submit, compose_forward, fetch_attachment, submits=True)
SAVE_SENT = Task("SAVE SENT", save_sent)
MOVE = Task("MOVE", move)
COPY = Task("COPY", copy)
DELETE = Task("DELETE", delete)
BROWSE = Task("BROWSE", browse)
SCHEDULE = Task("SCHEDULE", schedule, make_schedule)
EVICT = Task("EVICT", evict)
LOGOFF = Task("LOGOFF", log_off)

TASKS = {
    task.name: task
    for task in (
        LOGON,
        SYNC,
        READ,
        LOAD_ATTACHMENT,
        SEND,
        REPLY,
        REPLY_ALL,
        FORWARD,
        SAVE_SENT,
        MOVE,
        COPY,
        DELETE,
        BROWSE,
        SCHEDULE,
        EVICT,
        LOGOFF,
    )
}
"""Every task by name."""
