"""Storage scenarios: mailboxes, their store, and the load on it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import product
from typing import Annotated, Any

from loadsim.documents.schema import Amount, Duration, Positive, PositiveDuration, Share, Size, Switch, Text, whole
from loadsim.documents.typed import mismatch, strict
from loadsim.documents.yaml_reader import Origin, located, override, parse, read_document
from loadsim.errors import ConfigError
from loadsim.plugins import names, plugin
from loadsim.scenario.suite import Name

OF_FILES = ("maildir", "sdbox", "mdbox")

QUEUED = ("mailboxes", "iops_per_mailbox", "threads")

LEAST_BYTES = 1024


@strict
@dataclass(frozen=True, slots=True)
class Mix:
    """The relative frequencies of the operations."""

    insert: Amount = 40.0
    """Relative frequency of insertions."""
    delete: Amount = 20.0
    """Relative frequency of deletions."""
    replace: Amount = 5.0
    """Relative frequency of replacements."""
    read: Amount = 35.0
    """Relative frequency of reads."""

    def __post_init__(self) -> None:
        if not self.insert + self.delete + self.replace + self.read:
            raise mismatch("a part above 0")


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class StorageScenario:
    name: Name = "storage"
    """Name of the scenario. Default: the file's."""
    store: Text = "database"
    """Kind of store: database, maildir, sdbox, mdbox, or that of a plug-in."""
    directories: tuple[Text, ...] = ()
    """Directories on the disks under test, used by the databases in turn. Default: one removed after the run."""
    databases: Annotated[int, whole(1, 1000)] = 1
    """Number of databases, each with its own process."""
    mailboxes: Positive
    """Number of mailboxes, divided among the databases."""
    mailbox_size: Size
    """Size of each mailbox."""
    message_size: Size = 75 * 1024
    """Mean size of a message. Default: 75K."""
    iops_per_mailbox: Amount
    """Database reads and writes per second and mailbox, above 0."""
    headroom: Share = 0.2
    """Share added to the target; 0% if the IOPS include it."""
    cache: Size = 256 << 20
    """Size of each database's cache; for stores of files, the page cache that stays warm. Default: 256M."""
    copies: Positive = 1
    """Copies of each database: every log is read once per copy beyond the first."""
    threads: Annotated[int, whole(1, 1000)] = 3
    """Threads per database."""
    pause_s: Duration = 0.0
    """Each thread's pause after an operation."""
    mix: Mix = field(default_factory=Mix)
    """Parts of the operations."""
    lazy: Share | None = None
    """Share of changes not waiting for the disk. Default: 70% as in Exchange; 0% for stores of files, as in Dovecot."""
    maintenance: Switch = True
    """Read and verify everything in the background."""
    duration_s: PositiveDuration = 2 * 3600.0
    """Length of the measurement; 2h as published; above 6h, a stress test."""
    reserve: Share = 0.1
    """Share of each file system that stays free."""

    @property
    def target_iops(self) -> float:
        """The reads and writes per second of all databases."""
        return self.mailboxes * self.iops_per_mailbox * (1 + self.headroom)

    @property
    def lazy_share(self) -> float:
        """The share of lazy changes; the default is that of the server that the store imitates."""
        if self.lazy is not None:
            return self.lazy
        return 0.0 if self.store in OF_FILES else 0.7

    @property
    def messages_per_mailbox(self) -> int:
        return max(1, self.mailbox_size // self.message_size)

    @property
    def mailboxes_by_database(self) -> tuple[int, ...]:
        few, more = divmod(self.mailboxes, self.databases)
        return tuple(few + (number < more) for number in range(self.databases))

    @property
    def stored(self) -> dict[str, Any]:
        """The keys that determine a store's content: with the same values, a filled store can be used again."""
        return {key: getattr(self, key) for key in ("store", "databases", "mailboxes", "mailbox_size", "message_size")}


def load_storage(reference: str, settings: Sequence[str] = ()) -> StorageScenario:
    """Read a storage scenario by its path, or a shipped one by its name, with settings such as `threads=4`.

    Raises a `ConfigError` that lists all errors.
    """
    return _scenario(*_document(reference, settings))


def load_queue(reference: str, settings: Sequence[str] = ()) -> list[StorageScenario]:
    """Read a storage scenario in which the keys `QUEUED` may be lists; return a scenario per combination of values."""
    document, origin = _document(reference, settings)
    lists = {key: values for key in QUEUED if isinstance(values := document.get(key), list) and values}
    return [_scenario(document | dict(zip(lists, each, strict=True)), origin) for each in product(*lists.values())]


def _document(reference: str, settings: Sequence[str]) -> tuple[dict[str, Any], Origin]:
    path, name = located("storages", reference)
    document, origin = read_document(path, name)
    origin = replace(origin, overridden=override(document, settings))
    document.setdefault("name", re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem)[:40])
    return document, origin


def _scenario(document: Mapping[str, Any], origin: Origin) -> StorageScenario:
    scenario: StorageScenario = parse(StorageScenario, document, origin)
    if scenario.store not in names("store").split(", "):
        raise origin.error(("store",), names("store"), scenario.store)
    if not scenario.iops_per_mailbox:
        raise origin.error(("iops_per_mailbox",), "a number above 0", 0)
    for key in ("mailbox_size", "message_size", "cache"):
        if getattr(scenario, key) < LEAST_BYTES:
            raise origin.error((key,), "at least 1K", getattr(scenario, key))
    if scenario.message_size > (most := scenario.mailbox_size):
        raise origin.error(("message_size",), f"at most mailbox_size ({most})", scenario.message_size)
    if scenario.mailboxes < scenario.databases:
        raise origin.error(("mailboxes",), f"at least as many as databases ({scenario.databases})", scenario.mailboxes)
    return scenario


def check_installed(scenario: StorageScenario) -> None:
    """Raise `ConfigError` if the store is not installed on this machine, which may not be the one with the file."""
    if plugin("store", scenario.store) is None:
        raise ConfigError(f"store: expected {names('store')}, found {scenario.store}")
    if scenario.store == "database" and find_spec("apsw") is None:
        raise ConfigError("store: expected the package apsw, found none; pip install 'loadsim[storage]'")


def read_storage(document: Mapping[str, Any]) -> StorageScenario:
    """Return the scenario in a document. Raises `ValueError`, `TypeError` or `LookupError` for any other document."""
    return StorageScenario(**{**document, "mix": Mix(**document["mix"]), "directories": tuple(document["directories"])})
