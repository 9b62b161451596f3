"""A run's directory: created or claimed before the run, and removed if the run does not begin."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from loadsim.analysis.recorded_run import SCENARIO
from loadsim.engine.event_log import Events, closed_at_last
from loadsim.errors import ConfigError, machine_failures
from loadsim.runs.watcher import Watcher
from loadsim.scenario.criteria import expected_monitors
from loadsim.scenario.scenario import Scenario


def path_component(name: str) -> str:
    """Turn a name into one component of a path: without slashes, at most 60 characters."""
    return re.sub(r"[^\w.-]+", "-", name)[:60]


@contextmanager
def run_directory(out: Path | None, name: str, began: datetime) -> Iterator[Path]:
    """Create the directory `out`, or one in `runs` named after the scenario, and remove it if it gets no log.

    During the block, only the owner can read new files. Raises `ConfigError` as `create_directory` does.
    """
    out, created = create_directory(out, dated(began, name), SCENARIO)
    before = os.umask(0o077)  # processes started in the block inherit it
    try:
        yield out
    finally:
        os.umask(before)
        if not any(out.rglob("*.tlog")):
            discard(out, created)


def dated(began: datetime, name: str) -> str:
    return f"{began:%Y%m%dT%H%M%S}-{path_component(name)}"


def create_directory(out: Path | None, name: str, first: str) -> tuple[Path, list[Path]]:
    """Create the directory `out`, or claim it if empty; None creates one in `runs`, with this name, numbered if taken.

    The claim is the empty file `first`, which only one process can create. Return the directory and all directories
    that this call created, innermost first. Raises `ConfigError` if the directory has files or cannot be written to,
    before the run changes any mailbox.
    """
    path, number = out or Path("runs") / name, 1
    created: list[Path] = []
    try:
        created = make_directories(path)
        while out is None and path not in created:
            number += 1
            path = Path("runs") / f"{name}-{number}"
            created = [*make_directories(path), *created]
        claim(path, first)
        path.chmod(0o700)  # an existing directory: close it, as its files will name addresses and mail servers
        _give_to_caller(each for each in created if each != path)
    except OSError as error:
        remove_empty(created)
        raise ConfigError(f"--out {path}: expected a directory to write to, found: {error.strerror}") from None
    return path, created


def make_directories(path: Path) -> list[Path]:
    """Create a directory that only its owner can access, and its parents. Return the new ones, innermost first.

    Raises `OSError`.
    """
    created: list[Path] = []
    try:
        for directory in (*reversed(path.parents), path):
            with suppress(FileExistsError):
                directory.mkdir(mode=0o700 if directory is path else 0o777)
                created.insert(0, directory)
    except OSError:
        remove_empty(created)
        raise
    return created


def claim(path: Path, first: str) -> None:
    """Create the file `first` in an empty directory. Raises `ConfigError` if there is any other file, and `OSError`."""
    with suppress(FileExistsError):
        (path / first).touch(mode=0o600, exist_ok=False)
        if all(each.name == first for each in path.iterdir()):
            return
        (path / first).unlink()
    raise ConfigError(f"--out {path}: expected a new or empty directory, found files in it; choose another name")


def hand_over(path: Path) -> None:
    """Make the user who called sudo the owner of a finished run directory: otherwise only root can read the report."""
    if path.exists() and path.lstat().st_uid == os.geteuid():  # so far, only root could add files to it
        _give_to_caller([*path.rglob("*"), path])


def _give_to_caller(paths: Iterable[Path]) -> None:
    """Make the user who called sudo the owner. Without sudo, or if the file system refuses, nothing changes."""
    if os.geteuid() != 0:
        return
    with suppress(KeyError, ValueError, OSError):
        user, group = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
        for path in paths:
            os.chown(path, user, group, follow_symlinks=False)


@contextmanager
def recorded_events(
    out: Path, scenario: Scenario, watcher: Watcher, send: Callable[[Mapping[str, Any]], None] = lambda _: None
) -> Iterator[Events]:
    """Write scenario.yaml, and yield the events of a run, which go to events.jsonl and to `send`.

    The first events are the scenario's warnings. A message names each monitor that criteria need but the run does not
    collect. Raises `ConfigError` if the directory cannot be written to.
    """
    with machine_failures(ConfigError):
        (out / SCENARIO).write_text(scenario.to_yaml(), encoding="utf-8")
        events_file = (out / "events.jsonl").open("w", encoding="utf-8")
    for name in expected_monitors(scenario.criteria):
        if name not in scenario.monitors:
            watcher.message(
                f"criteria need the file of the monitor {name}: it must sample (loadsim monitor) during this run"
            )
    with closed_at_last(events_file):
        events = Events(events_file, send)
        for finding in scenario.findings:
            events.write("warning", what=finding.text)
        try:
            yield events
        finally:
            if events.unwritten:
                watcher.warning(f"{events.unwritten} lines of events.jsonl not written")


def withdraw(out: Path) -> None:
    """Remove the files of a run that did not begin."""
    shutil.rmtree(out / "logs", ignore_errors=True)
    for name in (SCENARIO, "events.jsonl"):
        (out / name).unlink(missing_ok=True)


def discard(out: Path, created: Sequence[Path]) -> None:
    """Remove empty files, such as the claim, and then the created directories, unless a server's log keeps them."""
    with suppress(OSError):
        for left in out.iterdir():
            if left.is_file() and not left.stat().st_size:
                left.unlink()
    remove_empty(created)


def remove_empty(directories: Sequence[Path]) -> None:
    """Remove the directories that are empty; they are given innermost first."""
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()
