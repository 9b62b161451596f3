"""`campaign.json`: the state and result of a campaign, in a directory from which it can be resumed after a crash."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

from loadsim.analysis.summary import Summary
from loadsim.campaign.runs import DAMAGED, Campaign, CampaignRun
from loadsim.documents.json_values import to_json
from loadsim.errors import ConfigError, RunInvalid
from loadsim.files import locked, mode_at, read_text
from loadsim.findings.severity import Cause
from loadsim.runs.directory import create_directory, dated, discard, hand_over
from loadsim.runs.result import write_summary
from loadsim.runs.watcher import SILENT
from loadsim.timinglog.documents import harmless, read_figures

C = TypeVar("C", bound=Campaign)

FILE_NAME, NEW_NAME = "campaign.json", "campaign.new"
"""The file, and its name while it is written."""

RUNS, HOOKS = "runs", "hooks"
"""The directories for runs, and for the outputs of commands."""

INCOMPLETE = ".incomplete-"
"""The mark in the names of run directories that have been set aside."""

MOST_BYTES = 1 << 27
"""The largest file to read: 10,000 runs take about 50 MB."""


@contextmanager
def own_directory(out: Path | None, name: str) -> Iterator[Path]:
    """Yield the directory `out`, new or with a campaign, and keep other processes out.

    None creates one in `runs`, named after the time and `name`. At the end, it is given to the user who called sudo, or
    removed if it has no `FILE_NAME`. Raises `ConfigError` if it has other files, or if another process is using it.
    """
    created: list[Path] = []
    # A crash may have interrupted the writing of the first file.
    if out is None or not (mode_at(out / FILE_NAME) or mode_at(out / NEW_NAME)):
        out, created = create_directory(out, dated(datetime.now(UTC), name), NEW_NAME)
    with locked(out, "--out", "search or suite"):
        if not (out / FILE_NAME).exists() and any(path.name != NEW_NAME for path in out.iterdir()):
            raise ConfigError(f"--out {out}: expected a new or empty directory, found files in it")
        try:
            yield out
        finally:
            if (out / FILE_NAME).exists():
                for path in (out, *out.glob("*"), *out.glob("*/*")):  # also additions to a directory of theirs
                    hand_over(path)
            else:
                discard(out, created)  # still locked: no other process is using it yet


def finished_summary(directory: Path) -> Summary | None:
    """Compute the summary of a run that ended normally, from its logs; None for any other run.

    A crash may have occurred between a run's end and its record in the campaign.
    """
    with suppress(RunInvalid, ConfigError):
        summary = write_summary(directory, SILENT).summary
        if summary.verdict.validity != "degraded" and not {Cause.ENDED, Cause.FAULT} & {*summary.verdict.causes}:
            return summary
    return None


def set_aside(directory: Path) -> None:
    """Rename the directory of a run that did not end normally, and keep it for diagnosis."""
    number = 1
    while (aside := directory.with_name(f"{directory.name}{INCOMPLETE}{number}")).exists():
        number += 1
    directory.rename(aside)


def write(campaign: Campaign) -> None:
    """Replace a campaign's file. Raises `ConfigError` if it cannot be written."""
    path, new = campaign.directory / FILE_NAME, campaign.directory / NEW_NAME
    try:
        new.write_text(json.dumps(campaign.document, indent=2) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as failure:
        with suppress(OSError):
            new.unlink()
        raise ConfigError(f"{path}: expected to write it, found: {failure.strerror or failure}") from None


def is_campaign(directory: Path) -> bool:
    return S_ISREG(mode_at(directory / FILE_NAME))


def read_campaign(directory: Path, *kinds: type[C]) -> C:
    """Read the campaign of one of these kinds in a directory. Raises `ConfigError` for other files."""
    path = directory / FILE_NAME
    content = read_text(path, str(path), most_bytes=MOST_BYTES)
    try:
        document = harmless("campaign", read_figures(content))
        by_name = {kind.KIND: kind for kind in kinds}
        return by_name[document["kind"]].read(directory, document, tuple(map(CampaignRun.read, document["runs"])))
    except DAMAGED:
        expected = " or ".join(kind.KIND for kind in kinds)
        raise ConfigError(f"{path}: expected a campaign of loadsim ({expected}), found something else") from None


def resumed(campaign: C, *, may_change: Collection[str]) -> C:
    """Return the campaign with the runs found in its directory, or unchanged if there is no file.

    Only the terms in `may_change` may differ. Raises `ConfigError` if others do, unless there is no run yet, and for a
    damaged file or another kind of campaign.
    """
    directory = campaign.directory
    if not is_campaign(directory):
        return campaign
    before = read_campaign(directory, type(campaign))
    # After a crash, runs may be missing from the file.
    if not before.runs and all(INCOMPLETE in run.name for run in (directory / RUNS).glob("*")):
        return campaign
    changed = sorted(differing(to_json(before.terms), to_json(campaign.terms)) - {*may_change})
    if changed:
        raise ConfigError(
            f"--out {directory}: expected the terms of the campaign that it holds, found changed: {', '.join(changed)}"
            " (use a new directory, or the old terms)"
        )
    return replace(campaign, runs=before.runs)


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """Return the keys whose values differ, in nested mappings as `KEY.KEY`."""
    changed = set()
    for key in before.keys() | now.keys():
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict) and "digest" not in old:
            changed |= {f"{key}.{below}" for below in differing(old, new)}
        elif old != new:
            changed.add(key)
    return changed
