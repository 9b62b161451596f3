"""One user's session: log-on to log-off, the open folder and its news, calls and the watch between them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import INBOX, Account, Endpoint, Observer
from loadsim.protocols.error_mapping import again
from loadsim.protocols.imap.authenticate import log_on
from loadsim.protocols.imap.commands import mailbox
from loadsim.protocols.imap.connection import Connection
from loadsim.protocols.imap.grammar import number_of
from loadsim.protocols.imap.new_mail import NewMailAnnouncements
from loadsim.protocols.imap.responses import Condition, Exists, Expunged, Response
from loadsim.protocols.imap.under_way import Answer

POLL_S = 30.0
"""How often to ask for news where the server does not know IDLE."""

IDLE_AGAIN_S = 28 * 60.0
"""When to begin IDLE anew: "at least every 29 minutes" (RFC 2177 section 3)."""


class ImapSession:
    """What one user has with the server, over lost and re-established connections.

    `with session as connection:` is around each call of the port: it ends the watch. A session that breaks meanwhile
    fails the call, or else is reported as lost.
    """

    __slots__ = (
        "_account",
        "_context",
        "_endpoint",
        "_idle_again_s",
        "_limit_s",
        "_observer",
        "_poll_s",
        "_renumbered",
        "_selects",
        "_watch",
        "arrivals",
        "connection",
        "count",
        "in_call",
        "offered",
        "open",
        "validity",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        context: ssl.SSLContext | None,
        account: Account,
        observer: Observer,
        limit_s: float,
        poll_s: float = POLL_S,
        idle_again_s: float = IDLE_AGAIN_S,
    ) -> None:
        """Nothing is connected yet. `limit_s` is the time limit of each command."""
        self._endpoint = endpoint
        self._context = context
        self._account = account
        self._observer = observer
        self._limit_s = limit_s
        self._poll_s = poll_s
        self._idle_again_s = idle_again_s
        self.connection: Connection | None = None
        self.offered: frozenset[str] = frozenset()
        self.arrivals = NewMailAnnouncements()
        self.validity: dict[str, int] = {}  # of the folders that were ever opened; kept over connections
        self.open: str | None = None
        self.count = 0  # messages in the open folder
        self.in_call = False
        self._watch: asyncio.TimerHandle | None = None
        self._selects = 0  # how many were sent
        self._renumbered: str | None = None  # a folder whose UIDs have just lost their meaning

    @property
    def domain(self) -> str:
        """The domain of the account's address, in lower case."""
        return self._account.domain

    async def log_on(self) -> None:
        """Make a session; see `authenticate.log_on`."""
        self.abandon()
        self.in_call = True
        try:
            self.connection, self.offered = await log_on(
                self._endpoint,
                self._context,
                self._account,
                self._observer,
                self._limit_s,
                self._heard,
                self._broken,
            )
            self.connection.remember_tls()
        finally:
            self.in_call = False

    async def log_off(self) -> None:
        """LOGOUT (RFC 9051 section 6.1.3), and wait until the socket is closed."""
        with self as connection:
            self.leave()
            self.connection = None
            try:
                await connection.send("LOGOUT")
                connection.close()
                await connection.wait_closed()
            except ServerLost as lost:
                if lost.kind != "BYE":  # some close without the tagged OK: said is said
                    raise
            finally:
                connection.abort()

    def abandon(self) -> None:
        """Close at once."""
        self._stop_watching()
        self.leave()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort()

    # --- calls and the watch between them ---

    def __enter__(self) -> Connection:
        """Raises `ServerLost` when there is no connection, and what ended it when it is over."""
        if self._watch is not None:
            self._stop_watching()
        connection = self.connection
        if connection is None:
            raise ServerLost("not logged on")
        if connection.failure is not None:
            raise again(connection.failure)
        self.in_call = True
        return connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.in_call = False
        connection = self.connection
        if connection is None:
            return
        if error is None:
            if connection.failure is not None:
                # It broke behind the last answer: this call does not care, but the next must not wait in vain.
                self._observer.lost(connection.failure)
        elif isinstance(error, ProtocolError):
            connection.abort()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def watch_on(self) -> None:
        """Keep up a watch that has begun: IDLE anew, or NOOP, until the next call."""
        if self.connection is not None and self.connection.failure is None:
            wait_s = self._idle_again_s if "IDLE" in self.offered else self._poll_s
            self._watch = asyncio.get_running_loop().call_later(wait_s, self._look_again)

    def _look_again(self) -> None:
        assert self.connection is not None
        self.connection.send_quietly("IDLE" if "IDLE" in self.offered else "NOOP")
        self.watch_on()

    # --- the open folder ---

    async def select(self, connection: Connection, folder: str, announce: bool = True) -> bool:
        """Open the folder unless it is open; whether that was needed."""
        if self.open == folder:
            return False
        self.leave()
        await connection.send("SELECT", mailbox(folder), then=self.selecting(folder, announce), resets=True)
        self.raise_if_renumbered()
        return True

    async def refresh(self, connection: Connection, folder: str) -> None:
        """Open the folder to list it: what came meanwhile will be in the list, and is not announced."""
        if not await self.select(connection, folder, announce=False) and not self.count:
            await connection.send("NOOP")

    def selecting(self, folder: str, announce: bool) -> Callable[[Answer], None]:
        """What to do when a SELECT that is now sent succeeds."""
        self._selects += 1
        return partial(self._selected, self._selects, folder, announce)

    def _selected(self, select: int, folder: str, announce: bool, answer: Answer) -> None:
        """A SELECT has succeeded: take over what it said, before anything that follows it is looked at.

        If another was sent behind it, what comes from now on is about that one's folder already.
        """
        count, validity, uid_next = 0, 0, None
        for response in answer.data:
            if isinstance(response, Exists):
                count = response.messages
            elif isinstance(response, Condition) and response.code is not None:
                if response.code.name == "UIDVALIDITY":
                    validity = number_of(response.code.arguments)
                elif response.code.name == "UIDNEXT":
                    uid_next = number_of(response.code.arguments)
        known = self.validity.get(folder)
        self.validity[folder] = validity
        if known is not None and known != validity:
            self._renumbered = folder
            if folder == INBOX:
                self.arrivals.renumbered(uid_next)
        if select != self._selects:
            return
        self.open, self.count = folder, count
        if folder == INBOX:
            new = self.arrivals.opened(count, uid_next)
            if new and announce:
                self._observer.arrived(new)

    def raise_if_renumbered(self) -> None:
        """Tell, once, that a folder's messages have other UIDs than before."""
        folder, self._renumbered = self._renumbered, None
        if folder is not None:
            raise ServerRefused("UIDVALIDITY changed", folder)

    def leave(self) -> None:
        """No folder is open from here on."""
        if self.open == INBOX:
            self.arrivals.left(self.count)
        self.open = None

    def _heard(self, response: Response) -> None:
        """Untagged news, in any command's answer or in none (RFC 9051 section 5.2)."""
        if self.open is None:
            return
        if isinstance(response, Exists):
            new, self.count = response.messages - self.count, response.messages
            if new > 0 and self.open == INBOX:
                self.arrivals.grew(new)
                self._observer.arrived(new)
        elif isinstance(response, Expunged):
            self.count = max(0, self.count - 1)

    def _broken(self, failure: TaskFailed) -> None:
        self._stop_watching()
        self.leave()
        if not self.in_call:
            self._observer.lost(failure)
