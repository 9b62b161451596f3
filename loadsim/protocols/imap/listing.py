"""The list of a folder's messages with their tags, even if the server cannot read some of them."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.errors import ProtocolError, ServerLost, ServerRefused
from loadsim.model.provisioning_ports import Stored
from loadsim.protocols.imap.header_lists import Ref, portions
from loadsim.protocols.imap.reading import LISTING_ITEMS, has_tag_section, origin_of, tag_of
from loadsim.protocols.imap.responses import Fetched
from loadsim.protocols.imap.session import ImapSession

EVERY = b"1:*"
FLAGS_ITEMS = b"(UID FLAGS)"


async def list_folder(session: ImapSession, folder: str) -> list[Stored]:
    """SELECT, and UID FETCH of flags and tags unless the folder is empty.

    If the server refuses that, or closes the connection, the messages are listed in ever smaller parts. A single
    message that still fails is listed without tag and sender, like mail that is not loadsim's.
    """
    session.leave()
    with session as connection:
        await session.select(connection, folder, announce=False)
    if not session.count:
        return []
    try:
        return await _listed(session, folder, EVERY)
    except ProtocolError:
        raise
    except ServerRefused:
        every = await _listed(session, folder, EVERY, FLAGS_ITEMS)
    except ServerLost:
        await session.log_on()
        every = await _listed(session, folder, EVERY, FLAGS_ITEMS)
    return await _in_parts(session, folder, sorted(every, key=_uid))


def _uid(message: Stored) -> int:
    assert isinstance(message.ref, Ref)
    return message.ref.uid


async def _in_parts(session: ImapSession, folder: str, messages: Sequence[Stored]) -> list[Stored]:
    """List the messages that the server can read, and only the numbers and flags of the rest."""
    listed: list[Stored] = []
    half = len(messages) // 2
    for part in filter(None, (messages[:half], messages[half:])):
        try:
            listed += await _listed(session, folder, b"%d:%d" % (_uid(part[0]), _uid(part[-1])))
        except (ServerRefused, ServerLost) as failure:
            if isinstance(failure, ServerLost):
                await session.log_on()
            listed += part if len(part) == 1 else await _in_parts(session, folder, part)
    return listed


async def _listed(session: ImapSession, folder: str, numbers: bytes, items: bytes = LISTING_ITEMS) -> list[Stored]:
    with session as connection:
        await session.select(connection, folder, announce=False)
        answer = await connection.send("UID FETCH", numbers, items)
    validity = session.validity[folder]
    listed = []
    async for portion in portions(answer.data):
        for fetched in portion:
            if not isinstance(fetched, Fetched) or fetched.uid is None:
                continue
            if items is FLAGS_ITEMS or has_tag_section(fetched):
                flags = frozenset(flag.lower() for flag in fetched.flags or ())
                listed.append(Stored(Ref(folder, validity, fetched.uid), flags, tag_of(fetched), *origin_of(fetched)))
    return listed
