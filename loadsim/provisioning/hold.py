"""The hold on accounts: the manifest in the first account names the process that uses them, and keeps others out.

If two processes write their names at the same time, the first message wins. A hold expires unless it is renewed: a
process that crashed on another machine must not block the accounts forever. On this machine, a crash is noticed. The
last process stays named, so that an audit can tell if its run was the last to use the accounts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from loadsim.errors import ServerRefused
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import Account, Services
from loadsim.model.provisioning_ports import Provisioning
from loadsim.provisioning import manifest
from loadsim.provisioning.holder import LEASE_S, Holder
from loadsim.provisioning.initialise import INSPECT, delete_empty
from loadsim.provisioning.sessions import Progress, name_of, visit

RENEW_S = LEASE_S / 3

CHANGE_LIMIT_S = 10.0
"""The time limit for renewing or releasing a hold: if the server is down, the hold expires by itself."""


class Hold:
    """This process's hold on the first of these accounts, and thereby on all.

    `used`: mailboxes may have changed, or the run has begun its load. `lost` says what replaced the hold. `failure`
    says why the account could not be reached the last time: the holder is then unknown.
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
        """Write the hold; an account without a manifest gets one only with `create`. Raises `AccountTaken`.

        `after`: this same run must have been the last to use the accounts.

        If an account fails, there is no hold; the work on it will report the failure.
        """

        async def work(account: Account, mailbox: Provisioning) -> None:
            manifests = await _manifests(account, mailbox)
            manifest.refuse_taken(account, manifests)
            if after:
                manifest.refuse_used(account, manifests, self._holder.run)
                self.used = True
            if not (manifests or create):
                return
            self._before = manifest.holder_in(manifests)
            with suppress(ServerRefused):  # it may exist
                await mailbox.create(manifest.FOLDER)
            tag = await _put(account, mailbox, manifests, self._holder)
            try:
                manifest.refuse_taken(account, manifests := await _manifests(account, mailbox))
            except manifest.AccountTaken:
                stored = (await mailbox.listing([manifest.FOLDER]))[manifest.FOLDER]
                await mailbox.expunge([message.ref for message in stored if message.tag == tag])
                raise
            # If another holder is named, the server loses mail: the run will notice.
            self._held |= manifest.holder_in(manifests) == self._holder

        await self._visit(work)

    async def renew_always(self) -> None:
        """Renew the hold every `RENEW_S`."""
        while True:
            await asyncio.sleep(RENEW_S)
            await self.renew()

    async def renew(self, limit_s: float | None = CHANGE_LIMIT_S) -> None:
        """Renew the hold, or notice its loss; if `limit_s` is None, only the visit's own limit applies."""
        await self._replace(replace(self._holder, until_s=Holder.this("").until_s), limit_s)

    async def release(self) -> None:
        """End the hold. If the accounts were not used, restore the previous holder, and remove what `take` created."""
        await self._replace(replace(self._holder, until_s=0) if self.used else self._before, CHANGE_LIMIT_S)
        self._held = False

    def noting(self, progress: Progress) -> Progress:
        """Wrap `progress` so that it also notes when a step begins to change mailboxes."""

        def noted(step: str, done: int, total: int) -> None:
            self.used |= step != INSPECT
            progress(step, done, total)

        return noted

    async def _replace(self, holder: Holder | None, limit_s: float | None) -> None:
        reached = False

        async def work(account: Account, mailbox: Provisioning) -> None:
            nonlocal reached
            try:
                manifests = await _manifests(account, mailbox)
            except manifest.AccountTaken as taken:
                self.lost, reached = str(taken), True
                return
            current, reached = manifest.holder_in(manifests), True
            names_or_record = manifest.names_in(manifests) or manifest.record_in(manifests)
            if current != self._holder:
                self.lost = f"{name_of(account)}: expected the hold of this process, found {current or 'it removed'}"
            elif (holder and (holder.until_s or holder.run)) or names_or_record:
                await _put(account, mailbox, manifests, holder)
                self._holder = holder or self._holder
            else:
                await mailbox.expunge([accepted.message.ref for accepted in manifests])
                await delete_empty(mailbox, manifest.FOLDER)

        if self._held and self.lost is None:
            self.failure = f"no answer within {CHANGE_LIMIT_S:g} s"
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s), self._replacing:
                    await self._visit(work)
            if reached:  # the holder is known even if the server refused the change
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
    account: Account, mailbox: Provisioning, old: Sequence[manifest.Manifest], holder: Holder | None
) -> MessageTag:
    return await manifest.replace(mailbox, account, old, manifest.names_in(old), manifest.record_in(old), holder)


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
    """Hold accounts during the block; `work` is the command, and `run` its run. Raises `AccountTaken`.

    For `create` and `after`, see `Hold.take`.
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
