"""Plug-ins: drivers, tasks and probes, found through the entry points of installed packages."""

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
"""The entry-point group for each kind of plug-in."""

NOT_INSTALLED = "not installed"
"""The text shown instead of package and version."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plug-in of this kind and name, and the package that provides it.

    loadsim's own drivers and probes are plug-ins, too.
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
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign packages may raise anything
            expected = f"to import {self.entry.value} of the package {self.origin}"
            raise ConfigError(f"{self.kind} {self.name}: expected {expected}, found {first_line(error)}") from None


def plugins(kind: str) -> Sequence[Plugin]:
    """Return all plug-ins of a kind, sorted by name and package, without importing them."""
    return _installed(kind, tuple(sys.path))


@cache
def _installed(kind: str, _: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Search the path once: it takes milliseconds."""
    from importlib.metadata import entry_points  # imports the package email

    installed = (
        Plugin(kind, item.name, item.dist.name if item.dist else "?", item.dist.version if item.dist else "?", item)
        for item in entry_points(group=GROUPS[kind])
    )
    return tuple(sorted(installed, key=lambda plugin: (plugin.name, plugin.package)))


def plugin(kind: str, name: str) -> Plugin | None:
    """Return the plug-in with this name, or None. Raises `ConfigError` if several packages have one."""
    candidates = [plugin for plugin in plugins(kind) if plugin.name == name]
    if len(candidates) > 1:
        origins = " and ".join(plugin.origin for plugin in candidates)
        raise ConfigError(f"{kind} {name}: expected one package with a {kind} of this name, found {origins}")
    return candidates[0] if candidates else None


def names(kind: str) -> str:
    """List the names of all plug-ins of a kind for an error; `none` if there are none."""
    return ", ".join(dict.fromkeys(plugin.name for plugin in plugins(kind))) or "none"


@contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Redirect what this process and its children print in the block to standard error.

    Plug-ins may print, but standard output is for the result alone.
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

    Return only the type if `__str__`, which the plug-in may define, fails.
    """
    name, text = type(error).__name__, ""
    with suppress(Exception, SystemExit):
        text = f"{error}"
    return printable(f"{name}: {text}".partition("\n")[0].rstrip(": "))


def origin(kind: str, name: str) -> str | None:
    """Return a plug-in's package and version; None for a part of loadsim. Raises `ConfigError` as `plugin` does."""
    installed = plugin(kind, name)
    if installed is None:
        return NOT_INSTALLED
    return None if installed.is_own else installed.origin
