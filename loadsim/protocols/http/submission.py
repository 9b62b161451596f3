"""Submission in the session of a user's mailbox."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from loadsim.errors import TaskFailed
from loadsim.model.provisioning_ports import ServerOffer
from loadsim.protocols.http.session import HttpSession


class OwnMailbox(Protocol):
    """The mailbox, as far as submission needs it."""

    @property
    def session(self) -> HttpSession[Any]: ...

    @property
    def offer(self) -> ServerOffer: ...

    async def log_on(self) -> None: ...

    async def log_off(self) -> None: ...


M = TypeVar("M", bound=OwnMailbox)


@dataclass(slots=True, eq=False)
class HttpSubmission(ABC, Generic[M]):
    """Implements `Probing`, which includes `ports.Submission`, in the mailbox's session.

    If the mailbox is not logged on, a session lasts from the first message until `close`.
    """

    mailbox: M
    _logged_on: bool = field(default=False, init=False)  # by a message

    @abstractmethod
    async def _submit(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        """Submit a message in the session, which is on."""

    @abstractmethod
    async def _probe(self, sender: str, recipient: str) -> None:
        """Ask the server about a sender and a recipient, in the session."""

    async def send(
        self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None = None
    ) -> bool:
        """Submit. Return False: it requests no delivery receipts.

        If the mailbox loses its session by this, the observer gets the loss, too.
        """
        session = self.mailbox.session
        was_on = session.is_on
        try:
            await self._log_on()
            await self._submit(sender, recipients, message)
        except TaskFailed:
            if was_on and session.failure is not None:
                session.observer.lost(session.failure)
            raise
        return False

    async def check(self) -> None:
        """Ask about the user's own address."""
        address = self.mailbox.session.account.address
        await self.ask(address, address)

    async def ask(self, sender: str, recipient: str) -> ServerOffer:
        """See `Probing`."""
        try:
            await self._log_on()
            await self._probe(sender, recipient)
            return self.mailbox.offer
        finally:
            await self.close()

    async def _log_on(self) -> None:
        """Begin a session if the mailbox has none, and has lost none."""
        session = self.mailbox.session
        if session.logon is None and session.failure is None:
            await self.mailbox.log_on()
            self._logged_on = True

    async def close(self) -> None:
        """End a session begun here."""
        if self._logged_on and self.mailbox.session.is_on:
            await self.mailbox.log_off()
        self._logged_on = False
