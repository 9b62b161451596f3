"""Plug-ins: drivers, tasks and probes, found by the entry points of installed packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from loadsim.errors import ConfigError, printable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS = {"driver": "loadsim.protocols", "task": "loadsim.tasks", "probe": "loadsim.probes", "store": "loadsim.stores"}
"""The group of entry points of each kind of plug-in."""

NOT_INSTALLED = "not installed"
"""The text in place of package and version."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plug-in of this kind and name, and the package that it comes from.

    loadsim's own drivers and probes are some, too.
    """

    kind: str
    name: str
    package: str
    version: str
    entry: EntryPoint

    @property
    def is_own(self) -> bool:
        return self.package == "loadsim"

    @property
    def origin(self) -> str:
        return f"{self.package} {self.version}"

    def load(self) -> Any:
        """Import the plug-in. Raises `ConfigError` with one line if that fails."""
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a package of others may raise anything
            expected = f"{self.entry.value} of the package {self.origin} to be imported"
            raise ConfigError(f"{self.kind} {self.name}: expected {expected}, found {first_line(error)}") from None


def plugins(kind: str) -> Sequence[Plugin]:
    """Return all plug-ins of a kind by name and package. Nothing is imported."""
    return _installed(kind, tuple(sys.path))


@cache
def _installed(kind: str, _: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Search the path once: that takes milliseconds."""
    from importlib.metadata import entry_points  # imports the package email

    found = (
        Plugin(kind, each.name, each.dist.name if each.dist else "?", each.dist.version if each.dist else "?", each)
        for each in entry_points(group=GROUPS[kind])
    )
    return tuple(sorted(found, key=lambda each: (each.name, each.package)))


def plugin(kind: str, name: str) -> Plugin | None:
    """Return the plug-in of this name; None if there is none. Raises `ConfigError` if several packages have it."""
    found = [each for each in plugins(kind) if each.name == name]
    if len(found) > 1:
        origins = " and ".join(each.origin for each in found)
        raise ConfigError(f"{kind} {name}: expected one package with a {kind} of this name, found {origins}")
    return found[0] if found else None


def names(kind: str) -> str:
    """Return the names of all plug-ins of a kind, for an error; `none` if none is installed."""
    return ", ".join(dict.fromkeys(each.name for each in plugins(kind))) or "none"


@contextmanager
def printing_to_stderr() -> Iterator[None]:
    """In the block, send to standard error what this process and its children print.

    Plug-ins may print, and standard output has only the answer.
    """
    sys.stdout.flush()
    answer = os.dup(1)
    try:
        os.dup2(2, 1)  # for children, and for handlers that keep the stream
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(answer, 1)
        os.close(answer)


def first_line(error: BaseException) -> str:
    """Return the type of a plug-in's exception and the first line of its text, safe for a terminal.

    The type alone if the text cannot be made: `__str__` is the plug-in's, too.
    """
    name, text = type(error).__name__, ""
    with suppress(Exception, SystemExit):
        text = f"{error}"
    return printable(f"{name}: {text}".partition("\n")[0].rstrip(": "))


def origin(kind: str, name: str) -> str | None:
    """Return the package of a plug-in with its version; None for a part of loadsim. Raises `ConfigError` as above."""
    found = plugin(kind, name)
    if found is None:
        return NOT_INSTALLED
    return None if found.is_own else found.origin
