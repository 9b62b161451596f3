"""Two sessions of one account: one changes mail, the other watches; the driver compares the server's responses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

from loadsim.errors import ServerRefused, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import INBOX, RESET_FLAGS, SYSTEM_FLAGS, Flag, MessageRef, Part
from loadsim.model.provisioning_ports import ConditionalSets, Provisioning, Stored
from loadsim.model.state_checks import StateChecks, Violation
from loadsim.model.terms import ONE_COPY
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.check_folders import NEWEST, CheckPlace
from loadsim.provisioning.check_mail import Check
from loadsim.provisioning.check_tasks import FIRST_POLL_S
from loadsim.provisioning.server_report import Observation, lacking
from loadsim.provisioning.sessions import NullObserver, preparing_driver

ROUNDS = 3

KINDS = ("ups1K", "ups2K", "ups4K")
"""The kinds of the messages; their texts differ in size."""

WHOLE = Part("", "message/rfc822", 0)
"""The whole message: the driver compares its bytes with RFC822.SIZE."""

NOT_OF_SERVER = {"\\recent", *map(str.lower, RESET_FLAGS)}
"""Flags that are not the server's own keywords."""


class _Watcher(NullObserver):
    """An observer that keeps the lines of its session in `lines`, and is woken by announcements."""

    def __init__(self) -> None:
        self.lines: list[bytes | int] = []
        self.news = asyncio.Event()

    def arrived(self, *_: object, **__: object) -> None:
        self.news.set()


async def try_state(check: Check) -> bool:
    """Change the check's messages in the Inbox and in its folder, and list them in both sessions.

    Return False if the server refuses any of that.
    """
    place, moving, watching = check.own[0], _Watcher(), _Watcher()
    driver = open_driver(preparing_driver(check.services), check.services)
    acts, watches = (cast(Provisioning, driver.session(place.account, own).mailbox) for own in (moving, watching))
    try:
        await acts.log_on()
        try:
            await watches.log_on()
        except TaskFailed as failure:  # the scenario's users may need only one session
            check.server.append(Observation("state", f"without a second session of one account: {failure}"))
            return False
        for mailbox in (acts, watches):
            await mailbox.headers(INBOX, NEWEST)
        if lacking_flags := [flag for flag in SYSTEM_FLAGS if not acts.keeps(flag)]:
            not_kept = finding(Code.FLAGS_NOT_KEPT, flags=", ".join(lacking_flags))
            check.server.append(Observation("flags", "some are not kept", not_kept))
        delivered = await _held(acts, place.folder)  # copied and moved by tasks
        for _ in range(ROUNDS):
            await watches.watch()
            await _try_once(check, place, acts, watches, watching)
        held = await _held(acts, place.folder)
        if isinstance(acts, ConditionalSets) and held:
            await acts.try_if_in_state(next(iter(held)))
        check.facts = replace(
            check.facts,
            delivered_keywords=_keywords(check, delivered.values()),
            appended_keywords=_keywords(check, [held[ref] for ref in held.keys() - delivered.keys()]),
        )
        lasting = acts.offer.permanent_flags  # after the Inbox had mail: that is when Dovecot 2.4.5 adds its keywords
        check.facts = replace(check.facts, copyuid=place_of_copyuid(moving.lines), permanent_flags=lasting)
        for mailbox in (acts, watches):
            await mailbox.log_off()
        return True
    except TaskFailed as failure:
        check.server.append(lacking("state", failure, place.account.number, sender=place.account.address))
        return False
    finally:
        acts.abandon()
        watches.abandon()


async def _held(mailbox: Provisioning, folder: str) -> dict[MessageRef, Stored]:
    """Return the messages of a folder; none if the server refuses to list it, as only tables need them."""
    with suppress(ServerRefused):
        return {message.ref: message for message in (await mailbox.listing([folder]))[folder]}
    return {}


async def _try_once(
    check: Check, place: CheckPlace, acts: Provisioning, watches: Provisioning, watching: _Watcher
) -> None:
    account, folder = place.account, place.folder
    outgoing = [check.post.compose(account, {account.number: account.address}, kind) for kind in KINDS]
    ids = {message.id for message in outgoing}

    async def own(mailbox: Provisioning, name: str) -> dict[MessageRef, MessageTag]:
        headers, run = await mailbox.headers(name, NEWEST), check.post.run_id
        tags = {header.ref: header.tag for header in headers if header.tag and header.tag.run == run}
        return {ref: tag for ref, tag in tags.items() if tag.id in ids}

    async def watch(name: str) -> None:
        with suppress(ServerRefused):  # the other session has just removed it (RFC 2180)
            await own(watches, name)

    # New mail.
    watching.news.clear()
    await acts.append(INBOX, outgoing[0].message)
    appended_s = time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_POLL_S):
            await watching.news.wait()
        announced_ms = round(1000 * (time.monotonic() - appended_s), 1)
        check.facts = replace(check.facts, announced_ms=max(announced_ms, check.facts.announced_ms or 0.0))
    for message in outgoing[1:]:
        await acts.append(INBOX, message.message)
    await watches.arrived()
    # Read and mark it.
    refs = [*(tags := await own(acts, INBOX))]
    for ref, tag in tags.items():
        structure = await acts.structure(ref)
        if (text := structure.text) is not None:
            shown = await acts.part(ref, text)
            if check.post.contents.is_altered(tag, text, shown, True, True):
                check.post.altered.append((tag.id, account.number, INBOX))
    put = [await acts.part(ref, WHOLE) for ref in refs]
    await acts.flag(refs, Flag.SEEN)
    await watch(INBOX)
    # Copy and move it while the other session is in IDLE.
    await watches.watch()
    await acts.copy(refs, folder)
    await acts.move(refs[:-1], folder)
    for name in (INBOX, folder):
        await watch(name)
        await own(acts, name)
    # Compare it. Unmark and remove it.
    moved = [*await own(acts, folder)]
    copies = [await acts.part(ref, WHOLE) for ref in moved]
    one_copy = preparing_driver(check.services) in ONE_COPY
    _compare(check, place, Counter(put if one_copy else [*put, *put[:-1]]), Counter(copies))
    await acts.flag(moved, Flag.SEEN, False)
    await watch(folder)
    await acts.expunge(moved[::2])
    for name in (folder, INBOX):
        await watch(name)
        await own(acts, name)


def place_of_copyuid(lines: Iterable[bytes | int]) -> str:
    """Return where COPYUID stands in the answer to the last MOVE among these lines; "" if nowhere."""
    text = b"\0".join(b"" if isinstance(line, int) else line for line in lines).upper()
    moves = [command for command in text.split(b"\0\0") if b" UID MOVE " in command]
    if not moves:
        return ""
    before, copyuid, _ = moves[-1].partition(b"[COPYUID ")
    if not before.endswith(b"* OK "):
        return "tagged" if copyuid else "none"
    return f"untagged, {'after' if b' EXPUNGE' in before else 'before'} EXPUNGE"


def _keywords(check: Check, stored: Iterable[Stored]) -> tuple[str, ...] | None:
    """Return the keywords that the server has set on the check's messages; None if there are no such messages."""
    own = [message for message in stored if message.tag is not None and message.tag.run == check.post.run_id]
    return None if not own else tuple(sorted({flag for message in own for flag in message.flags} - NOT_OF_SERVER))


def _compare(check: Check, place: CheckPlace, put: Counter[bytes], listed: Counter[bytes]) -> None:
    """Compare the messages that COPY and MOVE put into a folder with those that it lists."""
    if missing := put - listed:
        excerpt = f"UID COPY, UID MOVE -> OK: {missing.total()} of {put.total()} messages are missing or differ"
        violation = Violation("copy-differs", "RFC 9051 6.4.7", place.account.number, place.folder, excerpt)
        check.state.broken(violation)


def state_of(checks: StateChecks, others: Sequence[int] = (), completed: bool = True) -> Iterator[Observation]:
    """Yield a finding for each rule that the server's responses break, or say why there is none.

    `completed`: two sessions have tried each rule. Other people may use the mailboxes of the users `others` and change
    what sessions know, so the server is not blamed there.
    """
    broken = [violation for violation in checks.violations.values() if violation.user not in others]
    for violation in broken:
        yield Observation("state", violation.rule, violation.finding, (violation.user,))
    if others:
        users = ", ".join(map(str, others))
        yield Observation("state", f"not judged by others' mail in the mailbox of user {users}")
    elif not checks.users:
        yield Observation("state", "not judged: only the drivers imap and jmap compare responses")
    elif completed and not broken:
        yield Observation("state", "no response contradicts an earlier one")
