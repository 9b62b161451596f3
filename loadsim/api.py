"""The functions of the public API, exported by the package `loadsim`: paths and values in, values out.

A plan needs neither analysis nor runs, so these are imported only by functions that need them.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadsim.build_fingerprint import build_fingerprint
from loadsim.dryrun.forecast import forecast
from loadsim.dryrun.plan import make_plan, to_json
from loadsim.dryrun.plan_cache import keep
from loadsim.errors import ConfigError
from loadsim.findings.finding import Finding
from loadsim.monitor.probes import check_probes
from loadsim.protocols.registry import check_protocols
from loadsim.runs.needs import Needs, Resources, compared_needs
from loadsim.runs.watcher import SILENT, Watcher
from loadsim.scenario import scenario as scenarios
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.users.plugin_tasks import check_plugin_tasks

if TYPE_CHECKING:
    from loadsim.analysis.summary import Summary
    from loadsim.capacity.capacity import Capacity
    from loadsim.comparison.comparison import Comparison
    from loadsim.runs.result import RunResult

    Recorded = str | Path | RunResult
    """A run: its result, its directory, a timing log, or a pattern of logs."""

Source = str | Path | Scenario
"""A scenario, its path, or the bare name of a shipped one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario's plan, with figures as in `loadsim plan --json`.

    `needs` is what a run with the default number of engines requires of this machine, and `resources` is what the
    machine has. `findings` say why a run cannot become valid, and what its score will lack (`dryrun.forecast`).
    """

    scenario: Scenario
    figures: dict[str, Any]
    needs: Needs
    resources: Resources
    findings: tuple[Finding, ...] = ()


def load_scenario(source: str | Path, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Read a scenario from its path, or a shipped one by its bare name.

    `overrides` maps keys to values, as `--set` does: `{"topology.0.users": 200, "run.window": "10m"}`.
    Raises `ConfigError`.
    """
    return scenarios.load_scenario(os.fspath(source), _settings(overrides))


def _settings(overrides: Mapping[str, Any] | None) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in (overrides or {}).items()]  # JSON is YAML


def plan(scenario: Source, *, progress: Callable[[float], None] | None = None) -> Plan:
    """Plan a run in virtual time, without a server. `progress` receives the share done so far, from 0 to 1.

    The planned load is cached in the home directory, so `run` does not plan again. Raises `ConfigError`.
    """
    _check_no_event_loop("plan")
    if not isinstance(scenario, Scenario):
        scenario = scenarios.load_scenario(os.fspath(scenario), passwords=False)
    check_protocols(scenario)
    check_plugin_tasks(scenario)
    check_probes(scenario.name, scenario.probes)
    planned = make_plan(scenario, progress)
    load = planned.load()
    keep(scenario, build_fingerprint(), load)
    needs, resources = compared_needs(Workload(scenario), load)
    return Plan(scenario, to_json(planned), needs, resources, forecast(scenario, load))


def run(
    scenario: Source,
    out: str | Path | None = None,
    *,
    engines: int | None = None,
    pin: bool = False,
    even_invalid: bool = False,
    watcher: Watcher | None = None,
) -> RunResult:
    """Run a scenario on this machine, and return its directory and summary when it has ended.

    `out` is the run directory, new or empty; None creates one in `runs`. `engines` is the number of processes that make
    the load; None picks a suitable number. `pin` keeps the load and a server on this machine on separate cores. Unless
    `even_invalid`, a run is refused if its plan shows that it cannot become valid. `watcher` receives the progress.

    In the main thread, Ctrl-C during the load ends it early, and `run` returns the summary of what was measured. Before
    the load, Ctrl-C raises `KeyboardInterrupt`. From a running event loop, call it with `asyncio.to_thread`.

    Raises `ConfigError` for a fault found before the load, `RunInvalid` if the logs are missing afterwards, and
    `RuntimeError` in a thread with a running event loop.
    """
    from loadsim.runs.local import run_locally

    _check_no_event_loop("run")
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario)
    watcher = watcher or SILENT
    for warning in (*scenario.exposed, *scenario.findings):
        watcher.warning(warning.text)
    directory = None if out is None else Path(out)
    return run_locally(scenario, directory, engines=engines, pin=pin, even_invalid=even_invalid, watcher=watcher)


def find_capacity(
    source: str | Path,
    out: str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    first: int | None = None,
    most: int | None = None,
    width: float = 0.2,
    quick: bool = False,
    pause_s: float | None = None,
    engines: int | None = None,
    pin: bool = False,
    watcher: Watcher | None = None,
) -> Capacity:
    """Search for the largest number of users that meets the criteria, with whole runs on this machine.

    `source` and `overrides` are as for `load_scenario`. `out` is the search's directory, new or to be resumed; None
    creates one in `runs`. The others are the options of `loadsim capacity`: `width` is a share of the interval's
    middle, from 0.01 to 1; `pause_s` is in seconds, None for the default. `watcher` receives the progress of each run
    in turn.

    Ctrl-C raises `KeyboardInterrupt`; the same call with the same `out` resumes the search. From a running event loop,
    call it with `asyncio.to_thread`.

    Raises `ConfigError` for a fault found before a step, `RunInvalid` if two runs with the same number of users are
    invalid for reasons other than server or generator, or if a send queue is not empty, and `RuntimeError` in a thread
    with a running event loop.
    """
    from loadsim.campaign.runner import CampaignWatcher, Interrupted
    from loadsim.capacity.runs import Wanted
    from loadsim.capacity.runs import find_capacity as search_capacity

    _check_no_event_loop("find_capacity")
    for name, value, least, greatest in (("width", width, 0.01, 1), ("pause_s", pause_s or 0, 0, math.inf)):
        if not least <= value <= greatest:
            raise ConfigError(f"{name}: expected a number from {least:g} to {greatest:g}, found {value!r}")
    shown = watcher or SILENT
    scenario = load_scenario(source, overrides)
    for warning in (*scenario.exposed, *scenario.findings):
        shown.warning(warning.text)
    given = _settings(overrides)

    def read(settings: Sequence[str]) -> Scenario:
        return scenarios.load_scenario(os.fspath(source), [*given, *settings])

    wanted = Wanted(first, most, width, pause_s, engines, pin, quick=quick)
    try:
        return search_capacity(read, wanted, None if out is None else Path(out), watcher=CampaignWatcher(shown))
    except Interrupted:
        raise KeyboardInterrupt from None


def _check_no_event_loop(function: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{function} blocks this thread's event loop: await asyncio.to_thread(loadsim.{function}, ...)")


def analyse(
    logs: Recorded | Sequence[Recorded],
    *,
    weights: Mapping[str, float] | None = None,
    criteria: str | Path | None = None,
    begin_s: float | None = None,
    end_s: float | None = None,
    commands: bool = False,
) -> Summary:
    """Compute a run's summary from its timing logs.

    The parameters are the options of `loadsim log answer`. Weights, window and criteria default to the run's own; times
    are in seconds from the common start. Raises `LogError` and other `ConfigError`.
    """
    from loadsim.analysis.summary import summarise
    from loadsim.scenario.weights import weights_of

    if begin_s is not None and begin_s < 0:
        raise ConfigError(f"begin_s: expected a number of at least 0, found {begin_s}")
    return summarise(
        _paths(logs),
        weights=None if weights is None else weights_of(dict(weights), "weights"),
        criteria=None if criteria is None else Path(criteria),
        begin_s=begin_s,
        end_s=end_s,
        commands=commands,
    )


def compare(
    base: Recorded | Sequence[Recorded],
    new: Recorded | Sequence[Recorded],
    *,
    max_regression: float | None = None,
    looks: int = 1,
    across_drivers: bool = False,
) -> Comparison:
    """Compare two sets of runs: is the second slower, and by how much?

    `max_regression` is a share: 0.05 allows a score 5 % worse. `looks` is the planned number of comparisons of the
    growing sets; intervals and p are corrected for it. `across_drivers` allows runs of the same load with different
    drivers. Raises `ConfigError` for runs that cannot be read or compared.
    """
    from loadsim.comparison.comparison import compare_runs
    from loadsim.statistics.comparison import MOST_LOOKS

    if max_regression is not None and not 0 <= max_regression <= 1:
        raise ConfigError(f"max_regression: expected a share from 0 to 1, found {max_regression}")
    if looks not in range(1, MOST_LOOKS + 1):
        raise ConfigError(f"looks: expected a whole number from 1 to {MOST_LOOKS}, found {looks}")
    return compare_runs(
        _paths(base), _paths(new), max_regression=max_regression, looks=looks, across_drivers=across_drivers
    )


def _paths(runs: Recorded | Sequence[Recorded]) -> list[str | Path]:
    from loadsim.runs.result import RunResult

    several = [runs] if isinstance(runs, str | Path | RunResult) else runs
    if not several:
        raise ConfigError("runs: expected at least one, found none")
    return [run.directory if isinstance(run, RunResult) else run for run in several]
