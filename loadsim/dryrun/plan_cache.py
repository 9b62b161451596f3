"""A run's planned load: planned once in separate processes, then kept in the user's cache.

Planning takes memory that this process would keep, and a process may be killed for using so much.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from loadsim.build_fingerprint import build_fingerprint
from loadsim.dryrun.plan import make_plan
from loadsim.dryrun.rounds import Progress
from loadsim.errors import ConfigError, RunInvalid
from loadsim.files import read_text
from loadsim.model.terms import STRESS
from loadsim.scenario.scenario import Scenario
from loadsim.timinglog.documents import read_as
from loadsim.timinglog.planned_load import PlannedLoad

REPORT_AFTER_S = 1.0
"""If planning takes longer than this, users see a line."""

MOST_QUICK_USER_DAYS = 1000
"""This many Medium users are planned in about 5 s. Larger runs rarely have too few tasks in the window."""

_MOST_BYTES = 1 << 26
"""The largest plan to read from the cache; a plan has 1,440 numbers per task and day."""

Show = Callable[[str], None]
"""Shows a line to the user."""


def planned_load(
    scenario: Scenario, software: str, show: Show, warn: Show, progress: Progress = lambda _: None
) -> PlannedLoad | None:
    """Return a scenario's planned load; None in stress mode, which has no plan, and if planning fails.

    `software` identifies the planning program: plans cached by other versions are ignored. Planning fails if its
    process is killed; `warn` shows the reason. `progress` receives the share done so far if planning takes longer than
    `REPORT_AFTER_S`.
    """
    if scenario.run.mode == STRESS:
        return None
    load = cached(scenario, software)
    if load is not None:
        return load
    began_s, shown = time.monotonic(), False

    def report(share: float) -> None:
        nonlocal shown
        if not shown and time.monotonic() - began_s >= REPORT_AFTER_S:
            show(f"Planning the day of {scenario.users} users once, to know its load")
            shown = True
        if shown:
            progress(share)

    try:
        load = make_plan(scenario, report, apart=True).load()
    except RunInvalid as failure:
        warn(f"{failure}; the summary cannot state what share of it was achieved")
        return None
    keep(scenario, software, load)
    return load


def quick_load(scenario: Scenario, progress: Progress | None = None) -> PlannedLoad | None:
    """Return a scenario's planned load; None if it is not in the cache and would take long to plan.

    `progress` receives the share done so far.
    """
    if scenario.run.mode == STRESS:
        return None
    software = build_fingerprint()
    load = cached(scenario, software)
    if load is None and scenario.users * scenario.run.days <= MOST_QUICK_USER_DAYS:
        load = make_plan(scenario, progress=progress).load()
        keep(scenario, software, load)
    return load


def cache_directory() -> Path:
    """Return the directory for plans. Raises `RuntimeError` if the user has no home directory.

    Source: XDG Base Directory Specification 0.8, which says to ignore relative paths.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "loadsim" / "plans"


def cached(scenario: Scenario, software: str) -> PlannedLoad | None:
    """Return the cached load; None if it is missing or cannot be read."""
    digest = scenario.digest()
    try:
        file = cache_directory() / f"{digest}.json"
        document = json.loads(_own_text(file))
        if (document["software"], document["scenario_digest"]) == (software, digest):
            load = read_as(PlannedLoad, document["planned_load"], "planned_load")
            return load if load.tasks and load.duration_s == scenario.duration_s else None
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, ConfigError):
        pass
    return None


def _own_text(file: Path) -> str:
    """Read a file that no other user can have written. Raises `OSError` or `ConfigError` for other files."""
    for path in (file, file.parent):
        status = path.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError(f"{path} can be written by other users")
    return read_text(file, file.name, most_bytes=_MOST_BYTES)


def keep(scenario: Scenario, software: str, load: PlannedLoad) -> None:
    """Write a load to the cache. If that fails, the next run plans again."""
    digest = scenario.digest()
    document = {"software": software, "scenario_digest": digest, "planned_load": asdict(load)}
    with suppress(OSError, RuntimeError):
        plans = cache_directory()
        for directory in (plans.parent.parent, plans.parent, plans):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=plans) as own:  # replacing a file is atomic
            file = Path(own) / "plan"
            file.touch(mode=0o600)
            file.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
            file.replace(plans / f"{digest}.json")
