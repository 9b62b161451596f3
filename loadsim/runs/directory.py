"""The directory of a run: created before the run, removed if the run does not begin."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from loadsim.engine.event_log import Events, closed_at_last
from loadsim.errors import ConfigError
from loadsim.model.criteria import expected_monitors
from loadsim.model.scenario import Scenario
from loadsim.runs.watcher import Watcher


def path_component(name: str) -> str:
    """Turn a name into one component of a path: without slashes, at most 60 characters."""
    return re.sub(r"[^\w.-]+", "-", name)[:60]


@contextmanager
def run_directory(out: Path | None, name: str, began: datetime) -> Iterator[Path]:
    """Create the directory `out`, or one in `runs` named after the scenario, and remove it if it gets no log.

    In the block, only the owner can read new files. Raises `ConfigError` as `create_directory` does.
    """
    out = out or Path("runs") / f"{began:%Y%m%dT%H%M%S}-{path_component(name)}"
    created = create_directory(out)
    before = os.umask(0o077)  # processes started in the block inherit it
    try:
        yield out
    finally:
        os.umask(before)
        if not any(out.rglob("*.tlog")):
            _discard(out, created)


def create_directory(path: Path) -> list[Path]:
    """Create a run directory with its parents. Return the new ones, innermost first.

    Raises `ConfigError` if it has files in it or takes none: before the run changes any mailbox.
    """
    created: list[Path] = []
    try:
        created += [each for each in (path, *path.parents) if not each.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigError(
                f"--out {path}: expected a new or empty directory, found files in it; choose another name"
            )
        with TemporaryFile(dir=path):
            pass
        path.chmod(0o700)  # an existing directory: its files will name addresses and mail servers
        _give_to_caller(each for each in created if each != path)
    except OSError as error:
        remove_empty(created)
        raise ConfigError(f"--out {path}: expected a directory to write to, found: {error.strerror}") from None
    return created


def hand_over(path: Path) -> None:
    """Make the user who called sudo the owner of a finished run directory: otherwise only root can read the report."""
    if path.exists() and path.lstat().st_uid == os.geteuid():  # so only root has been able to add files to it
        _give_to_caller([*path.rglob("*"), path])


def _give_to_caller(paths: Iterable[Path]) -> None:
    """Make the user who called sudo the owner. Without sudo, or if the file system refuses, nothing changes."""
    if os.geteuid() != 0:
        return
    with suppress(KeyError, ValueError, OSError):
        user, group = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
        for each in paths:
            os.chown(each, user, group, follow_symlinks=False)


@contextmanager
def recorded_events(
    out: Path, scenario: Scenario, watcher: Watcher, send: Callable[[Mapping[str, Any]], None] = lambda _: None
) -> Iterator[Events]:
    """Write scenario.yaml, and yield the events of a run, which go to events.jsonl and by `send`.

    They begin with the scenario's warnings. The watcher is told of monitors that criteria need. Raises `ConfigError` if
    the directory takes no files.
    """
    try:
        (out / "scenario.yaml").write_text(scenario.to_yaml(), encoding="utf-8")
        events_file = (out / "events.jsonl").open("w", encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"--out {out}: expected a directory to write to, found: {failure}") from None
    for name in expected_monitors(scenario.criteria):
        if name in scenario.monitors:
            continue  # the run collects it
        watcher.message(
            f"criteria need the file of the monitor {name}: it must sample (loadsim monitor) during this run"
        )
    with closed_at_last(events_file):
        events = Events(events_file, send)
        for warning in scenario.warnings:
            events.write("warning", what=warning)
        try:
            yield events
        finally:
            if events.unwritten:
                watcher.warning(f"{events.unwritten} lines of events.jsonl not written")


def withdraw(out: Path) -> None:
    """Remove the files of a run that did not begin."""
    shutil.rmtree(out / "logs", ignore_errors=True)
    for name in ("scenario.yaml", "events.jsonl"):
        (out / name).unlink(missing_ok=True)


def _discard(out: Path, created: Sequence[Path]) -> None:
    """Remove empty files and the directories created for a run; a server's log that has content stays."""
    with suppress(OSError):
        for left in out.iterdir():
            if left.is_file() and not left.stat().st_size:
                left.unlink()
    remove_empty(created)


def remove_empty(directories: Sequence[Path]) -> None:
    """Remove the empty ones of the directories, which are given innermost first."""
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()
