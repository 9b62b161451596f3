"""The form of a remote operation: its request's layout, its function, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loadsim.servers.embedded_mapi.store import Mailbox, Store


@dataclass(frozen=True, slots=True)
class Call:
    """The context of an operation. `parent` is the object at the index `r`; `room_bytes` is left for the response."""

    store: Store
    mailbox: Mailbox
    logon: int
    input_index: int
    parent: object
    room_bytes: int


Answer = bytes | tuple[object, bytes]
"""The response behind its error code; in a pair, behind the object that was made."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A ROP: its handle indexes in their order, its fields by the letters of `Reader.one`, and its function.

    Indexes are `i` (input), `o` (output), `r` (of the response) and `d` (destination). The input is one of `types`.
    Each response of a `partial` one ends with PartialCompletion.
    """

    indexes: str
    fields: str
    types: tuple[type, ...]
    act: Callable[..., Answer]
    partial: bool = False
