"""Read a mailbox for the audit: all messages of the run and of the start state, with the digests of their bodies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from loadsim.audit.judged import HeldCopy
from loadsim.errors import ServerLost, ServerRefused
from loadsim.findings.catalogue import Code
from loadsim.model.calendar_event import EVENTS
from loadsim.model.content.compose import least_bytes
from loadsim.model.message_tag import INITIAL, INITIAL_RUN, MessageTag, has_digest, vouched
from loadsim.model.ports import PUBLIC, USER_FLAGS, Account, Flag, MessageRef, Services
from loadsim.model.provisioning_ports import MessageSource, Stored
from loadsim.provisioning import manifest
from loadsim.provisioning.calendars import visit_calendars
from loadsim.provisioning.inspect import bounce_status
from loadsim.provisioning.sessions import all_done

BATCH_MESSAGES = 64
BATCH_BYTES = 1 << 20
"""The most messages to fetch at once, and the most bytes, estimated from below: these limit a session's memory."""


async def read_mailbox(
    account: Account, mailbox: MessageSource, run: str, folders: Sequence[str] | None = None
) -> tuple[list[HeldCopy], Counter[str]]:
    """Return the messages in these folders (None: all) of a logged-on mailbox, and its bounces by status.

    Nothing is changed. No flags count in the public folder: they may be each user's own.
    """
    found: list[HeldCopy] = []
    bounces: Counter[str] = Counter()
    never_kept: set[str] = set()  # by some folder; any message may have been there
    for folder in await mailbox.folders() if folders is None else folders:
        if folder == manifest.FOLDER:
            continue
        stored = (await mailbox.listing([folder]))[folder]
        never_kept |= {flag.lower() for flag in USER_FLAGS if folder == PUBLIC or not mailbox.keeps(flag)}
        for message in stored:
            status = await bounce_status(account, mailbox, message)
            if status is not None:
                bounces[status or "unknown"] += 1
        own = [(message, message.tag) for message in stored if message.tag and _is_own(account, message, run)]
        for batch in _batches(own):
            texts = await _texts(mailbox, [message.ref for message, _ in batch])
            for message, tag in batch:
                fault = None if message.ref in texts else Code.MAIL_LOST
                if not fault and not vouched(tag, message.sender, message.message_id, account.domain):
                    fault = Code.MAIL_ALTERED
                if not fault and (text := texts[message.ref]) is not None and not has_digest(text, tag.body):
                    with_crlf = b"\r\n".join([*text.splitlines(), b""])
                    fault = Code.LINE_ENDS if has_digest(with_crlf, tag.body) else Code.MAIL_ALTERED
                found.append(HeldCopy(tag.id, folder, message.flags, tag.sender, fault=fault))
    return [each._replace(never_kept=frozenset(never_kept)) for each in found], bounces


async def read_events(account: Account, services: Services, run: str) -> list[HeldCopy]:
    """Return the run's events in the user's calendar on the calendar server. Raises `ConfigError`."""
    (events,) = all_done(await visit_calendars([account], services, lambda calendar: calendar.events(run)))
    flags = frozenset((Flag.SEEN.lower(),))  # events have no flags, of which none can be lost then
    return [
        HeldCopy(event, EVENTS, flags, account.number, fault=None if is_whole else Code.MAIL_ALTERED)
        for event, is_whole in events
    ]


async def _texts(
    mailbox: MessageSource, refs: Sequence[MessageRef], again: bool = True
) -> Mapping[MessageRef, bytes | None]:
    """Return the text of each message that the server can read.

    If the server refuses a set of messages, or closes the connection, each half is read on its own; a single message is
    tried `again` once.
    """
    try:
        return await mailbox.texts(refs)
    except ServerRefused:
        pass
    except ServerLost:
        await mailbox.log_on()
    if len(refs) == 1:
        return await _texts(mailbox, refs, again=False) if again else {}
    half = len(refs) // 2
    return {**await _texts(mailbox, refs[:half]), **await _texts(mailbox, refs[half:])}


def _is_own(account: Account, message: Stored, run: str) -> bool:
    """Return True if a message belongs to this run or to the start state.

    A message of the start state must be vouched for, because other scenarios may use the same ids.
    """
    tag = message.tag
    if tag is None or manifest.is_manifest(message):
        return False
    if tag.id.startswith(INITIAL) != (tag.run == INITIAL_RUN):
        return False
    return tag.run == run or (
        tag.run == INITIAL_RUN and vouched(tag, message.sender, message.message_id, account.domain)
    )


def _batches(messages: Sequence[tuple[Stored, MessageTag]]) -> Iterator[list[tuple[Stored, MessageTag]]]:
    """Yield messages in batches to be fetched at once; one of unknown size is a batch of its own."""
    batch: list[tuple[Stored, MessageTag]] = []
    size_bytes = 0
    for message in messages:
        own_bytes = sum(least_bytes(message[1])) or BATCH_BYTES
        if batch and (len(batch) == BATCH_MESSAGES or size_bytes + own_bytes > BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(message)
        size_bytes += own_bytes
    if batch:
        yield batch
