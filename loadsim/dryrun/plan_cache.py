"""The load that a run is planned to make: planned once by a process of its own, then kept in the user's cache.

The process is not this one, because a plan takes memory that this one would keep, and may be killed for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Thread

from loadsim.dryrun.plan import engines_for, make_plan
from loadsim.dryrun.plan_engine import uncollected
from loadsim.errors import ConfigError, RunInvalid
from loadsim.files import read_text
from loadsim.model.scenario import Scenario
from loadsim.model.terms import STRESS
from loadsim.timinglog.planned_load import PlannedLoad, read_planned_load

PLANNER = (sys.executable, "-P", "-m", "loadsim.dryrun.plan_cache")

TELL_AFTER_S = 1.0
"""Planning that takes longer is told of."""

_MOST_BYTES = 1 << 26
"""The largest plan that is read from the cache; a plan has 400 numbers for each task."""

Tell = Callable[[str], None]
"""Shows a line to the user."""


def planned_load(
    scenario: Scenario, software: str, progress: Tell, warn: Tell, limit_s: float | None = None
) -> PlannedLoad | None:
    """Return the load that the plan of a scenario has; None in stress mode, which has no plan, and where it failed.

    `software` says which program plans: another one's plan in the cache does not count. `warn` is told why planning
    failed; it does when it is killed or takes longer than `limit_s`.
    """
    if scenario.run.mode == STRESS:
        return None
    found = cached(scenario, software)
    if found is not None:
        return found
    made = _planned_aside(scenario, progress, limit_s)
    if isinstance(made, str):
        warn(f"the load was not planned: {made}; how much of it is made, the answer cannot say")
        return None
    keep(scenario, software, made)
    return made


# --- the cache --------------------------------------------------------------------------------------------------


def cache_directory() -> Path:
    """Return the directory of the plans. Raises `RuntimeError` for a user without a home.

    Source: XDG Base Directory Specification 0.8, which also says that a relative path does not count.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "loadsim" / "plans"


def cached(scenario: Scenario, software: str) -> PlannedLoad | None:
    """Return the load that `keep` kept; None where there is none, or one that cannot be read."""
    digest = scenario.digest()
    try:
        file = cache_directory() / f"{digest}.json"
        document = json.loads(_own_text(file))
        if (document["software"], document["scenario_digest"]) == (software, digest):
            load = read_planned_load(document["planned_load"])
            return load if load.tasks and load.duration_s == scenario.duration_s else None
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, ConfigError):
        pass
    return None


def _own_text(file: Path) -> str:
    """Read a file that no other user can have written. Raises `OSError` or `ConfigError` for any other."""
    for place in (file, file.parent):
        about = place.stat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise PermissionError(f"{place} is not ours alone")
    return read_text(file, file.name, most_bytes=_MOST_BYTES)


def keep(scenario: Scenario, software: str, load: PlannedLoad) -> None:
    """Keep a load in the cache; where that cannot be written, the next run plans again."""
    digest = scenario.digest()
    document = {"software": software, "scenario_digest": digest, "planned_load": load.document()}
    with suppress(OSError, RuntimeError):
        place = cache_directory()
        for directory in (place.parent.parent, place.parent, place):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place) as own:  # a file that is moved is there as a whole or not at all
            file = Path(own) / "plan"
            file.touch(mode=0o600)
            file.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
            file.replace(place / f"{digest}.json")


# --- planning ---------------------------------------------------------------------------------------------------


def _planned_aside(scenario: Scenario, progress: Tell, limit_s: float | None) -> PlannedLoad | str:
    """Plan in another process; the load, or why there is none. No process is left when this returns or raises."""
    engines = engines_for(scenario.users, os.cpu_count() or 1)
    ours, theirs = Pipe()
    with ours:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                [*PLANNER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is ours
            )
        try:
            with suppress(OSError):  # it has ended, and so will the pipe
                ours.send((scenario, engines))
            if not ours.poll(TELL_AFTER_S):
                by = f" by {engines} processes" if engines > 1 else ""
                progress(f"Planning the day of {scenario.users} users once, to know its load{by}")
                if not ours.poll(limit_s):
                    return f"it took longer than {limit_s:.0f} s; loadsim plan, beforehand, has the time"
            try:
                made: PlannedLoad | str = ours.recv()
            except (EOFError, OSError):
                status = process.wait()
                how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
                return f"its process {how}"
        finally:
            process.kill()
            process.wait()
    return made


def main() -> int:
    """Plan what the parent process asks for, in the pipe whose file descriptor is our argument."""
    parent = Connection(int(sys.argv[1]))
    scenario, engines = parent.recv()
    Thread(target=_exit_with, args=(parent,), daemon=True).start()
    with uncollected():
        try:
            made: PlannedLoad | str = make_plan(scenario, engines).tally.load()
        except RunInvalid as failure:
            made = str(failure)
        with suppress(OSError):
            parent.send(made)
    return 0


def _exit_with(parent: Connection) -> None:
    """Exit when the parent process does, or needs us no more: that is the end of the pipe."""
    with suppress(EOFError, OSError):
        parent.recv()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
