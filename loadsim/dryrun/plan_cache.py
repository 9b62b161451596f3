"""A run's planned load: planned once in a separate process, then kept in the user's cache.

Planning takes memory that this process would keep, and a process may be killed for using so much.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Thread

from loadsim.build_fingerprint import build_fingerprint
from loadsim.dryrun.plan import make_plan
from loadsim.dryrun.plan_engine import uncollected
from loadsim.dryrun.rounds import Progress
from loadsim.errors import ConfigError
from loadsim.files import read_text
from loadsim.model.terms import STRESS
from loadsim.scenario.scenario import Scenario
from loadsim.timinglog.documents import read_as
from loadsim.timinglog.planned_load import PlannedLoad

PLANNER = (sys.executable, "-P", "-m", "loadsim.dryrun.plan_cache")

REPORT_AFTER_S = 1.0
"""If planning takes longer than this, users see a line."""

POLL_S = 0.1
"""The interval, while waiting for the planning process, between checks whether users should see a line."""

MOST_QUICK_USER_DAYS = 1000
"""This many Medium users are planned in about 10 s. Larger runs rarely have too few tasks in the window."""

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
    made = _plan_in_child(scenario, show, progress)
    if isinstance(made, str):
        warn(f"the load was not planned: {made}; the summary cannot state what share of it was achieved")
        return None
    keep(scenario, software, made)
    return made


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


def _plan_in_child(scenario: Scenario, show: Show, progress: Progress) -> PlannedLoad | str:
    """Plan in a child process. Return the load, or why planning failed. No process is left behind."""
    ours, theirs = Pipe()
    with ours:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [*PLANNER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # out of reach of Ctrl-C
            )
        try:
            with suppress(OSError):  # it has exited, so `recv` will raise EOFError
                ours.send(scenario)
            began_s = time.monotonic()
            shown = False
            while True:
                if not shown and time.monotonic() - began_s >= REPORT_AFTER_S:
                    show(f"Planning the day of {scenario.users} users once, to know its load")
                    shown = True
                if not ours.poll(POLL_S):
                    continue
                try:
                    received: PlannedLoad | float = ours.recv()
                except (EOFError, OSError):
                    status = process.wait()
                    how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
                    return f"its process {how}"
                if isinstance(received, PlannedLoad):
                    return received
                if shown:
                    progress(received)
        finally:
            process.kill()
            process.wait()


def main() -> int:
    """Plan the scenario that the parent process sends through a pipe, whose file descriptor is the argument."""
    parent = Connection(int(sys.argv[1]))
    scenario = parent.recv()
    Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()

    def send(progress: float | PlannedLoad) -> None:
        with suppress(OSError):  # the parent process has exited
            parent.send(progress)

    with uncollected():
        send(make_plan(scenario, send).load())
    return 0


def _exit_with_parent(parent: Connection) -> None:
    """Exit when the pipe is closed: the parent process has exited, or no longer needs a plan."""
    with suppress(EOFError, OSError):
        parent.recv()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
