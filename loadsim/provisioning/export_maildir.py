"""The start state of all mailboxes as Maildir trees, for servers that would take hours to receive it over IMAP.

The layout is Maildir++, as Dovecot and Courier have it: a folder is a directory with a dot before its name, and dots
between levels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path, PurePosixPath

from loadsim.control_groups import usable_cores
from loadsim.errors import ConfigError
from loadsim.files import locked
from loadsim.model.mailboxes import LEVEL
from loadsim.model.ports import INBOX, Account, Flag
from loadsim.model.scenario import Scenario
from loadsim.model.workload import START_US, Workload
from loadsim.provisioning import manifest
from loadsim.provisioning.initialise import StoredState, WantedMessage
from loadsim.provisioning.sessions import Progress, accounts_on_server, name_of

EXPORT = "export"
"""The step that progress reports."""

PATTERN = "{login}/Maildir"
"""The place of an account's Maildir, unless another is given."""

FIELDS = ("login", "user", "domain")
"""Fields of a pattern: the log-on name, and the parts of the address."""

_ACCOUNT_MESSAGES = 2000
"""Processes take as many accounts at a time as have about this number of messages."""

_START_S = START_US // 1_000_000
_FLAG_LETTERS = {Flag.SEEN: "S", Flag.ANSWERED: "R", Flag.FORWARDED: "P"}
"""Letters of flags in the names of files (https://cr.yp.to/proto/maildir.html), in alphabetical order."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the trees are written: `pattern` gives an account's Maildir in `directory`.

    `owner` has the numbers of the user and the group that own all files; None means the user who exports. `paths` are
    the paths of folders, by loadsim's names, where these differ (`FolderSettings.paths`).
    """

    directory: Path
    pattern: str = PATTERN
    owner: tuple[int, int] | None = None
    paths: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises `ConfigError` for a pattern that does not give each account a place of its own."""
        made = self._filled(dict.fromkeys(FIELDS, "x"))
        own = any(f"{{{name}}}" in self.pattern for name in ("login", "user"))
        if not own or "{" in made or "}" in made or not _is_inside(made):
            raise ConfigError(
                f"--mailbox-path: expected a relative path with {{login}} or {{user}}, such as {PATTERN},"
                f" found {self.pattern!r}"
            )

    def maildir(self, account: Account) -> Path:
        """Return an account's Maildir. Raises `ConfigError` if the account's name leads out of the directory."""
        user, _, domain = account.address.rpartition("@")
        path = self._filled({"login": account.login, "user": user, "domain": domain})
        levels = len(PurePosixPath(self.pattern).parts)
        if not _is_inside(path) or len(PurePosixPath(path).parts) != levels:
            raise ConfigError(f"{name_of(account)}: expected a name that a directory can have, found another")
        return self.directory / path

    def _filled(self, values: Mapping[str, str]) -> str:
        return re.sub(r"\{(login|user|domain)\}", lambda match: values[match[1]], self.pattern)

    def folder(self, name: str) -> str:
        """Return the directory of a folder in a Maildir, "" for the Inbox."""
        if name == INBOX:
            return ""
        name = self.paths.get(name, name)
        if not name.isascii() or "." in name or "&" in name:
            raise ConfigError(f"maildir: expected names of folders in ASCII, without dots and &, found {name!r}")
        return "." + name.replace(LEVEL, ".")


def _is_inside(path: str) -> bool:
    parts = path.split("/")
    return "\0" not in path and all(part not in ("", ".", "..") for part in parts)


@dataclass(frozen=True, slots=True)
class Exported:
    """Counts of an export."""

    accounts: int = 0
    messages: int = 0
    message_bytes: int = 0

    def __add__(self, other: Exported) -> Exported:
        return Exported(
            self.accounts + other.accounts,
            self.messages + other.messages,
            self.message_bytes + other.message_bytes,
        )


def export_maildir(scenario: Scenario, target: Target, progress: Progress, processes: int | None = None) -> Exported:
    """Write the start state of all accounts on the server, in `processes` (None: one for each core).

    Raises `ConfigError`, before it writes anything, if one of the Maildirs exists.
    """
    accounts = accounts_on_server(scenario)
    if not accounts:
        return Exported()
    try:
        target.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(error, target.directory) from None
    with locked(target.directory, "--out", "export"):
        for account in accounts:
            if os.path.lexists(target.maildir(account)):
                raise ConfigError(f"{target.maildir(account)}: expected nothing there, found a mailbox")
        per_account = sum(StoredState(Workload(scenario)).folders(accounts[0].number).values())
        size = max(1, _ACCOUNT_MESSAGES // max(1, per_account))
        numbers = [account.number for account in accounts]
        chunks = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        done = Exported()
        progress(EXPORT, 0, len(accounts))
        for exported in _in_processes(scenario, target, chunks, min(processes or usable_cores(), len(chunks))):
            done += exported
            progress(EXPORT, done.accounts, len(accounts))
    return done


def _unwritable(error: OSError, place: Path) -> ConfigError:
    return ConfigError(f"{error.filename or place}: expected to write a mailbox there, found: {error.strerror}")


# --- processes --------------------------------------------------------------------------------------------------------


def _in_processes(
    scenario: Scenario, target: Target, chunks: Sequence[Sequence[int]], processes: int
) -> Iterator[Exported]:
    """Yield the counts of each chunk of accounts, as they are written."""
    if processes == 1:
        yield from map(_Writer(scenario, target).write, chunks)
        return
    # Spawned, not forked: a copy of a process with threads may stop in a lock that another thread had.
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (scenario, target)) as pool:
        try:
            yield from pool.map(_write, chunks)
        except BrokenProcessPool:
            raise ConfigError("export: expected processes that end by themselves, found a killed one") from None


_writer: list[_Writer] = []


def _begin(scenario: Scenario, target: Target) -> None:
    _writer[:] = [_Writer(scenario, target)]


def _write(users: Sequence[int]) -> Exported:
    return _writer[0].write(users)


# --- trees ------------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes the trees of accounts."""

    def __init__(self, scenario: Scenario, target: Target) -> None:
        self._scenario = scenario
        self._target = target
        self._start = StoredState(Workload(scenario))

    def write(self, users: Iterable[int]) -> Exported:
        """Write the trees of these users. Raises `ConfigError` with the first that cannot be written."""
        return sum((self._account(self._scenario.account(user)) for user in users), Exported())

    def _account(self, account: Account) -> Exported:
        maildir = self._target.maildir(account)
        try:
            self._make_parents(maildir.parent)
            return self._tree(account, str(maildir))
        except OSError as error:
            raise _unwritable(error, maildir) from None

    def _make_parents(self, parent: Path) -> None:
        """Create the directories below the target's that are missing."""
        if parent != self._target.directory and not parent.is_dir():
            self._make_parents(parent.parent)
            with suppress(FileExistsError):  # another process has just made it
                self._directory(str(parent))

    def _tree(self, account: Account, root: str) -> Exported:
        self._directory(root)
        messages = size_bytes = 0
        folders = self._start.folders(account.number)
        for folder, count in folders.items():
            place = self._maildir(root, self._target.folder(folder))
            for index, wanted in enumerate(self._start.messages(account.number, folder)):
                size_bytes += self._message(place, wanted, _START_S - count + index)
                messages += 1
        created = [self._target.paths.get(name, name) for name in folders if name != INBOX]
        tag, message = manifest.compose(account, created)
        place = self._maildir(root, self._target.folder(manifest.FOLDER))
        self._message(place, WantedMessage(message, (Flag.SEEN,), tag), _START_S)
        return Exported(1, messages, size_bytes)

    def _maildir(self, root: str, folder: str) -> str:
        """Create a folder. Return its directory of messages."""
        place = f"{root}/{folder}" if folder else root
        if folder:
            self._directory(place)
            self._file(f"{place}/maildirfolder", b"")  # Maildir++ marks folders with it
        for name in ("cur", "new", "tmp"):
            self._directory(f"{place}/{name}")
        return f"{place}/cur"

    def _message(self, place: str, wanted: WantedMessage, order_s: int) -> int:
        """Write a message. Return its size. Servers number messages in the order of `order_s`.

        Lines end in LF, as in mail that Dovecot and Courier store. The name has the sizes with LF and with CRLF.
        """
        stored = wanted.message.replace(b"\r\n", b"\n")
        flags = "".join(sorted(_FLAG_LETTERS[flag] for flag in wanted.flags))
        name = f"{order_s}.{wanted.tag.id}.loadsim,S={len(stored)},W={len(wanted.message)}:2,{flags}"
        self._file(f"{place}/{name}", stored, wanted.received_us)
        return len(wanted.message)

    def _directory(self, path: str) -> None:
        Path(path).mkdir(0o700)
        if self._target.owner is not None:
            os.chown(path, *self._target.owner)

    def _file(self, path: str, content: bytes, modified_us: int | None = None) -> None:
        """Write a new file; a server takes the time of its last change for the internal date."""
        with open(path, "xb", opener=_private) as file:
            file.write(content)
            file.flush()
            if modified_us is not None:
                os.utime(file.fileno(), ns=(modified_us * 1000, modified_us * 1000))
            if self._target.owner is not None:
                os.fchown(file.fileno(), *self._target.owner)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
