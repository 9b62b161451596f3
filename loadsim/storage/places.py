"""The directories of a storage test, which loadsim creates and marks: it writes nowhere else."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from stat import S_ISREG

from loadsim.errors import ConfigError
from loadsim.files import locked, mode_at, read_text
from loadsim.findings.formats import data_size
from loadsim.storage.ledger import CHANGES, is_filled
from loadsim.storage.page_cache import BLOCK_BYTES, DirectFile, absent_bytes, drop, opened, replace_durably
from loadsim.storage.scenario import StorageScenario
from loadsim.storage.store import STRIDE_BYTES

ROOT, MARK = "loadsim-storage", "loadsim-storage.json"  # in each directory of the scenario; marks it as loadsim's
STORE = "store"  # the directory of a store, next to its ledger
OVERHEAD, OVERHEAD_BYTES = 1.15, 4096  # bytes of files per byte of messages, and for the rest of each message's block


@contextmanager
def marked_places(
    scenario: StorageScenario, temporary: Path, queue: Sequence[StorageScenario] = ()
) -> Iterator[list[Path]]:
    """Yield a locked directory for each database; in `temporary` if the scenario has none.

    Stores of other scenarios in the `queue` are removed. Raises `ConfigError` for a directory with anything that
    loadsim did not create, and for a store with other terms or without a ledger.
    """
    with ExitStack() as stack:
        if not scenario.directories:
            temporary.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, temporary)
        roots = [_marked(Path(base), scenario, queue) for base in scenario.directories or (temporary,)]
        for root in dict.fromkeys(roots):
            stack.enter_context(locked(root, "directories", "storage test"))
        places = [roots[number % len(roots)] / f"db-{number + 1:03}" for number in range(scenario.databases)]
        for place in places:
            place.mkdir(mode=0o700, exist_ok=True)
            if any(path.is_symlink() or path.is_mount() for path in (place, place / STORE)):  # to another disk
                raise ConfigError(f"directories: {place}: expected directories of loadsim, found a link or mount")
            if (place / STORE).exists() and not is_filled(place) and not (place / CHANGES).exists():
                raise ConfigError(f"directories: expected the ledger of {place}, found none (remove {place})")
        yield places


def _marked(base: Path, scenario: StorageScenario, queue: Sequence[StorageScenario]) -> Path:
    """Return loadsim's directory in `base`; create and mark it if it is missing."""
    root, name = base / ROOT, f"directories: {base / ROOT}"
    stored, *others = (json.dumps(other.stored, indent=2) + "\n" for other in (scenario, *queue))
    try:
        if is_new := not mode_at(root):
            root.mkdir(mode=0o700)
            replace_durably(root / MARK, stored.encode())
        if root.is_symlink() or not S_ISREG(mode_at(root / MARK)):
            raise ConfigError(f"{name}: expected a directory that loadsim made, found another one")
        found = read_text(root / MARK, str(root / MARK))
        if found != stored and found in others:
            with locked(root, "directories", "storage test"):
                for place in root.glob("db-*"):
                    shutil.rmtree(place)
                replace_durably(root / MARK, (found := stored).encode())
        if not _direct(root / "probe"):
            if is_new:
                shutil.rmtree(root)
            expected = f"a file system with direct reads of {BLOCK_BYTES} bytes, such as ext4 or XFS"
            raise ConfigError(f"{name}: expected {expected}, found none")
    except OSError as failure:
        raise ConfigError(f"{name}: expected a directory to write to, found: {failure.strerror}") from None
    if found != stored:
        raise ConfigError(
            f"{name}: expected a store of this scenario, found another one (remove it, or take other directories)"
        )
    return root


def _direct(path: Path) -> bool:
    """Return True if a direct read of one block works and leaves nothing in the page cache.

    btrfs, and ext4 with `data=journal`, accept `O_DIRECT` but read through the page cache (Linux 6.18). A device may
    have larger sectors.
    """
    try:
        path.write_bytes(os.urandom(STRIDE_BYTES))
        drop(path, written=True)
        with closing(DirectFile(path, os.O_RDONLY)) as direct, opened(path, os.O_RDONLY) as file:
            direct.read(STRIDE_BYTES, 0)
            direct.read(BLOCK_BYTES, BLOCK_BYTES)
            return absent_bytes(file, 0, STRIDE_BYTES) == STRIDE_BYTES
    except OSError as failure:
        if failure.errno != errno.EINVAL:  # no `O_DIRECT`, or not for so few bytes
            raise
        return False
    finally:
        path.unlink(missing_ok=True)


def most_bytes(scenario: StorageScenario, mailboxes: int) -> int:
    """Return the most bytes that the files of this many mailboxes can use."""
    messages = mailboxes * scenario.messages_per_mailbox
    return round(messages * (scenario.message_size * OVERHEAD + OVERHEAD_BYTES))


def check_room(scenario: StorageScenario, places: Sequence[tuple[Path, bool]]) -> None:
    """Raise `ConfigError` if filling the databases would use the reserve. Those marked True are already filled."""
    devices, needed = {place: place.stat().st_dev for place, _ in places}, Counter[int]()
    for (place, filled), mailboxes in zip(places, scenario.mailboxes_by_database, strict=True):
        needed[devices[place]] += 0 if filled else most_bytes(scenario, mailboxes)
    for place, device in devices.items():
        if (room := room_bytes(place, scenario.reserve)) < needed[device]:
            raise ConfigError(
                f"directories: expected {data_size(needed[device])} on the file system of {place.parent} and its"
                f" reserve, found {data_size(max(0, room))}"
            )


def used_bytes(places: Sequence[Path]) -> int:
    return sum(path.stat().st_size for place in places for path in place.rglob("*") if path.is_file())


def room_bytes(place: Path, reserve: float) -> int:
    """Return a file system's free bytes beyond its reserve; negative if the reserve is in use."""
    system = os.statvfs(place)
    return round((system.f_bavail - reserve * system.f_blocks) * system.f_frsize)
