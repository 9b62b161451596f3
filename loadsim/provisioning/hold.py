"""The hold on accounts: while a process works on them, the manifest of the first one names it, and no other may begin.

Of two that write their names at the same time, the first message decides. A hold is renewed, so that a crash of its
process on another machine does not block the accounts for ever; on this machine, a crash is noticed. The last one that
has used the accounts stays named, so that an audit knows if that was its run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from loadsim.errors import ServerRefused
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import Account, Provisioning, Services
from loadsim.provisioning import manifest
from loadsim.provisioning.holder import LEASE_S, Holder
from loadsim.provisioning.initialise import INSPECT, delete_empty
from loadsim.provisioning.sessions import Progress, name_of, visit

RENEW_S = LEASE_S / 3

CHANGE_LIMIT_S = 10.0
"""The longest time to renew or release a hold: the server may be down. The hold then ends by itself."""


class Hold:
    """The hold of this process on the first of these accounts, and so on all.

    `used`: mailboxes may have changed, or the run has begun its load. `lost` is what was found in place of the hold.
    `failure` is why the account was not reached the last time: it is unknown then who works on it.
    """

    def __init__(self, accounts: Sequence[Account], services: Services, work: str, run: str) -> None:
        self._accounts = accounts[:1]
        self._services = services
        self._holder = Holder.this(work, run)
        self._before: Holder | None = None
        self._held = False
        self._replacing = asyncio.Lock()
        self.used = False
        self.lost: str | None = None
        self.failure: str | None = None

    async def take(self, create: bool, after: bool) -> None:
        """Write the hold; without a manifest, only with `create`. Raises `AccountTaken`.

        `after`: the last to use the accounts must have been of the same run.

        An account that fails has no hold: the work on it reports that.
        """

        async def work(account: Account, mailbox: Provisioning) -> None:
            found = await _manifests(account, mailbox)
            manifest.refuse_taken(account, found)
            if after:
                manifest.refuse_used(account, found, self._holder.run)
                self.used = True
            if not (found or create):
                return
            self._before = manifest.holder_in(found)
            with suppress(ServerRefused):  # it may exist
                await mailbox.create(manifest.FOLDER)
            tag = await _put(account, mailbox, found, self._holder)
            try:
                manifest.refuse_taken(account, found := await _manifests(account, mailbox))
            except manifest.AccountTaken:
                stored = (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]
                await mailbox.expunge([each.ref for each in stored if each.tag == tag])
                raise
            self._held |= manifest.holder_in(found) == self._holder  # else the server keeps no mail, which a run judges

        await self._visit(work)

    async def renew_always(self) -> None:
        """Renew the hold in intervals, until it is lost."""
        while True:
            await asyncio.sleep(RENEW_S)
            await self.renew()

    async def renew(self, limit_s: float | None = CHANGE_LIMIT_S) -> None:
        """Renew the hold, or find that it is lost; with `limit_s` None, in the time of any visit."""
        await self._replace(replace(self._holder, until_s=Holder.this("").until_s), limit_s)

    async def release(self) -> None:
        """End the hold. Unless the accounts were used, name the holder before it, and remove what `take` created."""
        await self._replace(replace(self._holder, until_s=0) if self.used else self._before, CHANGE_LIMIT_S)
        self._held = False

    def noting(self, progress: Progress) -> Progress:
        """Return `progress` that also notes the first step that changes mailboxes."""

        def noted(step: str, done: int, of: int) -> None:
            self.used |= step != INSPECT
            progress(step, done, of)

        return noted

    async def _replace(self, holder: Holder | None, limit_s: float | None) -> None:
        reached = False

        async def work(account: Account, mailbox: Provisioning) -> None:
            nonlocal reached
            try:
                found = await _manifests(account, mailbox)
            except manifest.AccountTaken as taken:
                self.lost, reached = str(taken), True
                return
            other, reached = manifest.holder_in(found), True
            if other != self._holder:
                self.lost = f"{name_of(account)}: expected the hold of this process, found {other or 'it removed'}"
            elif (holder and (holder.until_s or holder.run)) or manifest.names_in(found) or manifest.record_in(found):
                await _put(account, mailbox, found, holder)
                self._holder = holder or self._holder
            else:
                await mailbox.expunge([each.message.ref for each in found])
                await delete_empty(mailbox, manifest.FOLDER)

        if self._held and self.lost is None:
            self.failure = f"no answer within {CHANGE_LIMIT_S:g} s"
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s), self._replacing:
                    await self._visit(work)
            if reached:  # it is known who works on it, also if the server refuses the change
                self.failure = None

    async def _visit(self, work: Callable[[Account, Provisioning], Awaitable[None]]) -> None:
        for result in await visit(self._accounts, self._services, work, lambda *_: None):
            if isinstance(result, manifest.AccountTaken):
                raise result
            self.failure = None if result is None else str(result)


async def _manifests(account: Account, mailbox: Provisioning) -> list[manifest.Manifest]:
    if manifest.FOLDER not in await mailbox.folders():
        return []
    return (await manifest.read(mailbox, account, (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]))[0]


async def _put(
    account: Account, mailbox: Provisioning, found: Sequence[manifest.Manifest], holder: Holder | None
) -> MessageTag:
    return await manifest.replace(mailbox, account, found, manifest.names_in(found), manifest.record_in(found), holder)


@asynccontextmanager
async def held(
    accounts: Sequence[Account],
    services: Services,
    work: str,
    run: str = "",
    *,
    create: bool = True,
    after: bool = False,
) -> AsyncIterator[Hold]:
    """Hold accounts while the block lasts; `work` is the command, `run` its run. Raises `AccountTaken`.

    `create` and `after` are those of `Hold.take`.
    """
    hold = Hold(accounts, services, work, run)
    await hold.take(create, after)
    try:
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(hold.renew_always())
            try:
                yield hold
            finally:
                renewing.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        await hold.release()
