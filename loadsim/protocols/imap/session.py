"""One user's session from log-on to log-off: the open folder, its new mail, calls, and the watch between calls."""

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
"""The interval of NOOP on servers without IDLE."""

IDLE_AGAIN_S = 28 * 60.0
"""The interval of IDLE: "at least every 29 minutes" (RFC 2177 section 3)."""


class ImapSession:
    """One user's session with the server, over lost and re-established connections.

    `with session as connection:` surrounds each call of the port, and ends the watch. If the connection breaks, the
    call fails; without a call, the observer gets the loss.
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
        """`limit_s` is the time limit of each command. Nothing is connected yet."""
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
        self.validity: dict[str, int] = {}  # UIDVALIDITY of the folders that were opened; kept over connections
        self.open: str | None = None
        self.count = 0  # messages in the open folder
        self.in_call = False
        self._watch: asyncio.TimerHandle | None = None
        self._selects = 0  # sent so far
        self._renumbered: str | None = None  # a folder whose UIDs have just become invalid

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
                self._on_response,
                self._on_lost,
            )
            self.connection.remember_tls()
        finally:
            self.in_call = False

    async def log_off(self) -> None:
        """Send LOGOUT (RFC 9051 section 6.1.3), and wait until the socket is closed."""
        with self as connection:
            self.leave()
            self.connection = None
            try:
                await connection.send("LOGOUT")
                connection.close()
                await connection.wait_closed()
            except ServerLost as lost:
                if lost.kind != "BYE":  # some servers close after BYE without the tagged OK
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
        """End the watch. Raises `ServerLost` without a connection, and the failure of a broken one."""
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
                # It broke after the last answer. This call has succeeded; the observer starts a new session.
                self._observer.lost(connection.failure)
        elif isinstance(error, ProtocolError):
            connection.abort()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def keep_watching(self) -> None:
        """Renew a watch until the next call: IDLE again, or NOOP."""
        if self.connection is not None and self.connection.failure is None:
            wait_s = self._idle_again_s if "IDLE" in self.offered else self._poll_s
            self._watch = asyncio.get_running_loop().call_later(wait_s, self._renew_watch)

    def _renew_watch(self) -> None:
        assert self.connection is not None
        self.connection.send_quietly("IDLE" if "IDLE" in self.offered else "NOOP")
        self.keep_watching()

    # --- the open folder ---

    async def select(self, connection: Connection, folder: str, announce: bool = True) -> bool:
        """Open the folder unless it is open. Return whether a SELECT was sent."""
        if self.open == folder:
            return False
        self.leave()
        await connection.send("SELECT", mailbox(folder), then=self.selecting(folder, announce), resets=True)
        self.raise_if_renumbered()
        return True

    async def refresh(self, connection: Connection, folder: str) -> None:
        """Open the folder to list it. The list has the new mail, which is not announced."""
        if not await self.select(connection, folder, announce=False) and not self.count:
            await connection.send("NOOP")

    def selecting(self, folder: str, announce: bool) -> Callable[[Answer], None]:
        """Return the callback for the success of a SELECT that is sent now."""
        self._selects += 1
        return partial(self._selected, self._selects, folder, announce)

    def _selected(self, select: int, folder: str, announce: bool, answer: Answer) -> None:
        """Take the data of a successful SELECT, before any later response is read.

        If another SELECT was sent after it, later data belongs to that one's folder.
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
        """Raise `ServerRefused` once if a folder's messages have got new UIDs."""
        folder, self._renumbered = self._renumbered, None
        if folder is not None:
            raise ServerRefused("UIDVALIDITY changed", folder)

    def leave(self) -> None:
        """Note that no folder is open any more."""
        if self.open == INBOX:
            self.arrivals.left(self.count)
        self.open = None

    def _on_response(self, response: Response) -> None:
        """Take an untagged response, in or outside a command's answer (RFC 9051 section 5.2)."""
        if self.open is None:
            return
        if isinstance(response, Exists):
            new, self.count = response.messages - self.count, response.messages
            if new > 0 and self.open == INBOX:
                self.arrivals.grew(new)
                self._observer.arrived(new)
        elif isinstance(response, Expunged):
            self.count = max(0, self.count - 1)

    def _on_lost(self, failure: TaskFailed) -> None:
        self._stop_watching()
        self.leave()
        if not self.in_call:
            self._observer.lost(failure)
