"""Acts on one answer of the server, of which faults are declared.

An act gets the link, the server's whole answer (untagged data and the tagged end, or all lines of a reply) and the
command's tag, and sends data of its own to the client. `%t` in a text stands for the tag.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .links import Link

Act = Callable[["Link", bytes, bytes], Awaitable[None]]

PROVISIONING = "init, clean"
"""The third driver of IMAP: the commands that prepare mailboxes and clean them."""

_NEVER_SENT = {
    "imap": {"CREATE", "STATUS", "DELETE"},
    "aioimaplib": {"CREATE", "STATUS", "DELETE"},
    PROVISIONING: {"IDLE", "DONE", "COPY|MOVE"},
}
"""Commands that a driver never sends."""

PIECE_BYTES = 1 << 16
PACE_S = 0.005
"""The pace of a flood: 64 KiB each 5 ms, 13 MB/s."""


class Over(Exception):
    """The act has ended the connection."""


@dataclass(frozen=True)
class Strike:
    """An act at one command. With `takes` the server never gets the command: the act answers in its place."""

    at: str
    act: Act
    takes: bool = False


@dataclass(frozen=True)
class Fault:
    """One fault: its name, one sentence for the table, and its strikes.

    `hides` are capabilities that the server does not offer then. `tls` has the client use STARTTLS. `lies` says that
    the server claims to have taken mail that it drops. Unless it `heals` in time, it strikes to the end of the run, but
    `most` times. `connection` is the scenario's, for SMTP. The drivers `unasked` never ask for what it alters.
    Those that it `deceives` count messages as accepted that the server has not taken.
    """

    name: str
    about: str
    strikes: tuple[Strike, ...]
    hides: tuple[bytes, ...] = ()
    tls: bool = False
    lies: bool = False
    heals: bool = True
    most: int = 1000
    connection: str = "kept"
    unasked: tuple[str, ...] = ()
    deceives: tuple[str, ...] = ()

    def concerns(self, driver: str) -> bool:
        """Return False if the driver never asks for what this alters."""
        return driver not in self.unasked and self.strikes[0].at not in _NEVER_SENT.get(driver, ())


def _sends(text: bytes, around: Callable[[bytes, bytes], bytes]) -> Act:
    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        await link.send(around(answer, text.replace(b"%t", tag)))

    return act


def says(text: bytes) -> Act:
    return _sends(text, lambda _, own: own)


def ahead(text: bytes) -> Act:
    return _sends(text, lambda answer, own: own + answer)


def behind(text: bytes) -> Act:
    return _sends(text, lambda answer, own: answer + own)


def edits(pattern: bytes, text: bytes) -> Act:
    """Send the answer with this in place of what matches."""
    compiled = re.compile(pattern)

    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        await link.change(answer, compiled.sub(lambda _: text, answer))

    return act


def cuts(after: int, text: bytes = b"") -> Act:
    """Send the first bytes of the answer (or of this text), then close."""

    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        await link.send((text.replace(b"%t", tag) or answer)[:after])
        raise Over

    return act


def closes() -> Act:
    return cuts(0)


def resets() -> Act:
    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        link.reset()
        raise Over

    return act


def hangs(text: bytes = b"") -> Act:
    """Send this, and nothing more, ever; the connection stays open."""

    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        await link.send(text.replace(b"%t", tag))
        await link.gone()
        raise Over

    return act


def trickles(text: bytes = b"", each_s: float = 1.0) -> Act:
    """Send the answer (or this text, again and again) one byte a second."""

    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        pieces = text.replace(b"%t", tag) or answer
        while True:
            for at in range(len(pieces)):
                await link.send(pieces[at : at + 1])
                await asyncio.sleep(each_s)
            if not text:
                return

    return act


def floods(text: bytes, first: bytes = b"") -> Act:
    """Send `first`, then this for ever, as fast as a network of 100 Mbit/s."""

    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        await link.send(first.replace(b"%t", tag))
        piece = text.replace(b"%t", tag) * (PIECE_BYTES // len(text) or 1)
        while True:
            await link.send(piece)
            await asyncio.sleep(PACE_S)

    return act


def drops() -> Act:
    """Send nothing in place of the answer, and go on."""
    return says(b"")
