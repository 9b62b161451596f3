"""Assistants' tasks, which work like users' (`tasks`) but never move, flag or delete a message."""

from __future__ import annotations

from dataclasses import replace

from loadsim.errors import ServerRefused
from loadsim.model.ports import DRAFTS, Flag, Header, Structure
from loadsim.model.terms import ASSISTANT_TASKS
from loadsim.users import tasks
from loadsim.users.mail import Sought, UserMail
from loadsim.users.showing import show_message
from loadsim.users.tasks import Outgoing, Read, Task


async def _find(user: UserMail, sought: Sought) -> bool:
    """Search for a message, as `tasks.find` does. Return True."""
    await tasks.find(user, sought)
    return True


async def _look_at(user: UserMail, header: Header) -> Structure | None:
    """Fetch a message, and leave it unread; return None if its user has moved it meanwhile."""
    try:
        return await show_message(user, header)
    except ServerRefused:
        if user.inbox.holds(header):
            raise
        return None


def _compose(user: UserMail, about: Read) -> Outgoing:
    return replace(tasks.compose_reply(user, about), answers=None)


async def _draft(user: UserMail, outgoing: Outgoing) -> Outgoing:
    with user.unless_stored(outgoing.id, DRAFTS):
        await user.mailbox.append(DRAFTS, outgoing.message, [Flag.SEEN, Flag.DRAFT])
    user.record_sent("saved", outgoing.id, DRAFTS)
    return outgoing


async def _send(user: UserMail, outgoing: Outgoing) -> None:
    """Submit a draft, which stays in Drafts, and save a copy as the profile says."""
    await tasks.submit(user, outgoing)
    if user.profile.new_mail.save_sent:
        await tasks.save_sent(user, outgoing)


FIND, LOOK_AT, DRAFT, SEND_DRAFT = (
    Task(ASSISTANT_TASKS[0], _find),
    Task(ASSISTANT_TASKS[1], _look_at),
    Task(ASSISTANT_TASKS[2], _draft, _compose),
    Task(ASSISTANT_TASKS[3], _send),
)

TASKS = {task.name: task for task in (FIND, LOOK_AT, DRAFT, SEND_DRAFT)}
"""All tasks of assistants, by name."""
