"""JSON that a server sent, checked member by member; the caller has limited its size.

A value that is not as the RFCs have it raises `ProtocolError`, whose text names the member and never shows the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from loadsim.errors import ProtocolError

LONGEST_TEXT = 1000
"""The longest text kept of a member that is shown or compared; a line of mail has at most 998 characters."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,255}")
"""RFC 8620 section 1.2."""


def malformed(expected: str) -> ProtocolError:
    return ProtocolError("JMAP response", f"expected {expected}")


def parse(body: bytes, what: str) -> Members:
    """Return a JSON object (UTF-8). What JSON does not have is rejected, and so is a text too deep for Python."""
    try:
        value = json.loads(body.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise malformed(f"{what} to be JSON") from None
    return Members(value, what)


def _no_constant(_: str) -> NoReturn:
    raise ValueError


def _encodable(text: str) -> str:
    """Return a text with ? for each lone surrogate, which an escape can make (RFC 7493 section 2.1 forbids it)."""
    return text if text.isascii() else text.encode(errors="replace").decode()


class Members:
    """An object's members, each read as the type that it must have. `what` names the object in errors."""

    __slots__ = ("_members", "what")

    def __init__(self, value: Any, what: str) -> None:
        if not isinstance(value, dict):
            raise malformed(f"an object as {what}")
        self._members: Mapping[str, Any] = value
        self.what = what

    def __contains__(self, name: str) -> bool:
        return self._members.get(name) is not None

    def names(self) -> Sequence[str]:
        return [*map(_encodable, self._members)]

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string; `default` if the member is missing or null."""
        value = self._members.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise malformed(f"a string as {self.what}.{name}")
        return _encodable(value)

    def number(self, name: str, default: int | None = None) -> int:
        """Return an UnsignedInt (RFC 8620 section 1.3); `default` if the member is missing or null."""
        value = self._members.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
            raise malformed(f"an unsigned integer as {self.what}.{name}")
        return value

    def truth(self, name: str) -> bool:
        """Return a Boolean; False if the member is missing or null."""
        value = self._members.get(name)
        if value is not None and not isinstance(value, bool):
            raise malformed(f"a boolean as {self.what}.{name}")
        return bool(value)

    def object(self, name: str) -> Members:
        return Members(self._members.get(name), f"{self.what}.{name}")

    def id(self, name: str) -> str:
        return _checked_id(self._members.get(name), f"{self.what}.{name}")

    def list(self, name: str) -> Sequence[Any]:
        """Return an array; an empty one if the member is missing or null."""
        value = self._members.get(name)
        if value is not None and not isinstance(value, list):
            raise malformed(f"an array as {self.what}.{name}")
        return value or ()

    def objects(self, name: str) -> Sequence[Members]:
        where = f"{self.what}.{name}"
        return [Members(value, where) for value in self.list(name)]

    def texts(self, name: str) -> Sequence[str]:
        values = self.list(name)
        if not all(isinstance(value, str) for value in values):
            raise malformed(f"strings in {self.what}.{name}")
        return [*map(_encodable, values)]

    def ids(self, name: str) -> Sequence[str]:
        return [_checked_id(value, f"{self.what}.{name}") for value in self.list(name)]

    def by_name(self, name: str) -> Mapping[str, Members]:
        """Return a map of objects, empty if the member is missing or null."""
        if name not in self:
            return {}
        where, value = f"{self.what}.{name}", self.object(name)
        return {key: Members(member, where) for key, member in value._members.items()}

    def names_in(self, name: str) -> frozenset[str]:
        """Return the names of a map's members: of a set (String[Boolean]), or of created, updated and so on."""
        return frozenset(self.object(name).names()) if name in self else frozenset()


def _checked_id(value: Any, where: str) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise malformed(f"an id as {where}")
    return value
