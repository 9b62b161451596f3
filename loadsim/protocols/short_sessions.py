"""A mailbox with a session for each view: webmail without a proxy, and phones that check for mail now and then."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from loadsim.errors import ServerRefused
from loadsim.model.ports import INBOX, CopiedMailbox, Flag, Header, Mailbox, MessageRef, Part, SearchKey, Structure


@dataclass(slots=True, eq=False)
class PerViewMailbox:
    """Implements `ports.Mailbox` on top of another; `log_off` ends a view, and the next call logs on again.

    A view has at most one session, and none if it sends no command. If the session breaks or the log-on fails, the
    view's other calls fail, as in a kept session, so that each loss shows as a failure. After a refused log-on, the
    next call tries again.

    The mailbox's caches and its knowledge of folders outlive sessions, except for what `forget` drops after each view.
    """

    mailbox: Mailbox
    holds: Callable[[MessageRef], bool] = lambda _: False  # true for messages that are shown without a command
    look: Callable[[], Awaitable[None]] | None = None  # opens the Inbox, and asks about other folders
    copied: CopiedMailbox | None = None  # the mailbox, if the program may copy it
    forget: Callable[[], object] = lambda: None
    _begun: bool = field(default=False, init=False)  # this view has tried to log on
    _on: bool = field(default=False, init=False)

    @property
    def messages(self) -> int:
        return self.mailbox.messages

    def keeps(self, flag: str) -> bool:
        return self.mailbox.keeps(flag)

    async def log_on(self) -> None:
        self._begun, self._on = True, False
        try:
            await self.mailbox.log_on()
        except ServerRefused:
            self._begun = False  # a refusal ends one call only; SYNC may be due in the same view
            raise
        self._on = True

    async def _session(self) -> Mailbox:
        """Return the mailbox, logging on first if this is the view's first command."""
        if not self._begun:
            await self.log_on()
        return self.mailbox

    async def log_off(self) -> None:
        """End the view: log off and close, if it has a session."""
        on, self._begun, self._on = self._on, False, False
        self.forget()
        if on:
            try:
                await self.mailbox.log_off()
            except BaseException:
                self.mailbox.abandon()
                raise

    def abandon(self) -> None:
        """Close at once; only `log_on` starts a new session in this view."""
        self._on = False
        self.mailbox.abandon()

    async def folders(self) -> Sequence[str]:
        return await (await self._session()).folders()

    async def open(self, folder: str) -> None:
        """Do nothing: the next command, in this view or another, opens the folder that it needs."""

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        return await (await self._session()).headers(folder, newest)

    async def batches(self, folder: str, size: int) -> AsyncGenerator[Sequence[Header], None]:
        await self._session()
        assert self.copied is not None
        async for batch in self.copied.batches(folder, size):
            yield batch

    async def fetch_whole(self, headers: Sequence[Header]) -> int:
        await self._session()
        assert self.copied is not None
        return await self.copied.fetch_whole(headers)

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        return await (await self._session()).search(folder, key, words, newest)

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        return await (await self._session()).arrived(reopen)

    async def watch(self) -> None:
        """Open the Inbox, which announces what has arrived since it was last open."""
        mailbox = await self._session()
        await (mailbox.open(INBOX) if self.look is None else self.look())

    async def structure(self, ref: MessageRef) -> Structure:
        return await (await self._session_for(ref)).structure(ref)

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        return await (await self._session_for(ref)).part(ref, part)

    async def _session_for(self, ref: MessageRef) -> Mailbox:
        """Return the mailbox, logged on as above unless it holds the message."""
        return self.mailbox if self.holds(ref) else await self._session()

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        await (await self._session()).flag(refs, flag, on)

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        await (await self._session()).move(refs, folder)

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        await (await self._session()).copy(refs, folder)

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        return await (await self._session()).append(folder, message, flags)

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        await (await self._session()).expunge(refs)
