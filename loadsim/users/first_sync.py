"""FIRST SYNC: a new mail program copies a mailbox, in pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from loadsim.errors import ServerRefused
from loadsim.model.content.compose import least_bytes
from loadsim.model.mail_program import FirstSync
from loadsim.model.ports import INBOX, Header
from loadsim.users.mail import UserMail
from loadsim.users.showing import show_message, show_part

BATCH = 500
"""The most messages to list at a time: a connection takes at most 50,000 headers in one answer."""


async def first_sync(user: UserMail, sync: FirstSync) -> None:
    """Copy the folders that are left to copy, one after another. After a lost session, the one under way begins again.

    Raises `ServerRefused` if anything was refused or is not as it should be; all other mail is copied.
    """
    lack: ServerRefused | None = None
    while user.uncopied:
        try:
            await _copy_folder(user, user.uncopied[0], sync.bodies)
        except ServerRefused as failure:
            lack = lack or failure
        del user.uncopied[0]
    await user.watch()
    if lack is not None:
        raise lack


async def _copy_folder(user: UserMail, folder: str, bodies: int | None) -> None:
    """List a folder in batches, newest first, and show the newest `bodies` messages (None: all) of each batch.

    Finally compares the whole list with what must be there. Mail of others is listed, but not shown.
    """
    mail = user.copied
    assert mail is not None, "a driver without first syncs"
    listed: list[Header] = []
    lack: ServerRefused | None = None
    async with aclosing(mail.batches(folder, BATCH)) as batches:
        async for batch in batches:
            left = len(batch) if bodies is None else max(0, bodies - len(listed))
            listed += [header._replace(sender="", to=(), subject="", message_id="") for header in batch]
            try:
                await _show_whole(user, folder, [header for header in batch[:left] if user.inbox.knows(header)])
            except ServerRefused as failure:
                lack = lack or failure
    listed.reverse()
    if folder not in user.stored.unlooked:  # otherwise an assistant stores mail there: LOGOFF compares the list
        known = user.at_start(listed) if folder == INBOX else ()
        user.stored.look(folder, listed, None, len(listed), known, user.mailbox.keeps)
    if lack is not None:
        raise lack


async def _show_whole(user: UserMail, folder: str, headers: Sequence[Header]) -> None:
    """Fetch messages together, and show all their parts. Raises `ServerRefused` for the first that is not whole."""
    lack: ServerRefused | None = None
    while headers and user.copied is not None:
        fetched = max(1, await user.copied.fetch_whole(headers))
        for header in headers[:fetched]:
            if user.stored.choose([header], folder) is None:
                continue  # another activity has it
            try:
                structure = await show_message(user, header)
                for part in structure.attachments:
                    await show_part(user, header, part, least_bytes(header.tag)[1])
            except ServerRefused as failure:
                lack = lack or failure
            finally:
                user.stored.release(header)
        user.compare_shown()  # the server is not waited for meanwhile, and a long task would keep too many parts
        headers = headers[fetched:]
    if lack is not None:
        raise lack
