"""Reasons not to compare two sets of runs, and warnings about a comparison."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from loadsim.analysis.criteria import Result
from loadsim.analysis.generator.limits import LOOP_SHARE
from loadsim.analysis.probes.resources import HOST, kind_of
from loadsim.comparison.compared_run import BASE, NEW, ComparedRun, Criteria, Sides, of_both
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.severity import Severity
from loadsim.model.figures import Figures
from loadsim.scenario.limits import Limits
from loadsim.timinglog.header_words import LABELS, LIMITS, OFF, differences, shown

SAME = tuple(key for key in LABELS if key not in ("profiles", "mailbox"))
"""Header keys that must be equal in all runs."""

LOAD = ("scenario_digest", "plan_digest", "start_state_digest")
"""Header keys that depend on the seed: each value must occur equally often on both sides."""

NOT_LOAD = frozenset(
    (
        *("name", "server", "accounts", "weights", "criteria", "limits", "probes"),
        *("client.check_state", "client.source_addresses", "client.trace", "run.audit", "run.audit_allow"),
    )
)
"""Scenario keys that do not change the load, except `OF_SERVER`."""

FiguresOf = Mapping[str, Sequence[Figures]]
"""The figures of each side's runs."""

OF_DRIVERS = ("submission", "log_on", "plugins")
"""Header keys that may differ between drivers."""

OF_LOAD = ("topology", "lists", "run", "client", "initialise", "mailbox")
"""Scenario keys that determine the load."""

OF_SERVER = ("server.imap.ignore_capabilities", "server.smtp.connection")
"""Keys of the server that change the users' commands."""

APART_SHARE = 0.1
"""Machines count as busier if the two sets of runs are at least this far apart, as a share of all cores."""

STOLEN_APART_SHARE = 0.05
"""For time taken by other guests of the hardware, which stops programs on all cores, this distance is enough."""


def check_distinct(runs: Sides) -> None:
    """Raise `ConfigError` if a run occurs twice."""
    seen: dict[str, tuple[str, ComparedRun]] = {}
    for side, of_side in runs.items():
        for run in of_side:
            name = run.entry.run or str(Path(run.entry.path).resolve())
            if name in seen:
                other, first = seen[name]
                where = f"twice in {side}" if side == other else "in base and in new"
                paths = " and ".join(dict.fromkeys((first.entry.path, run.entry.path)))
                raise ConfigError(f"compare: expected each run once, found {name} {where} ({paths})")
            seen[name] = side, run


def complaints(runs: Sides, across_drivers: bool = False) -> list[Finding]:
    """Return the findings that forbid a comparison. Different loads count as one, unless a differing key explains them.

    With `across_drivers`, base and new may differ in their drivers and in all that depends on them.
    """
    found = [
        finding(Code.COMPARED_INVALID, run.entry.path, why=_words(run.verdict.defects))
        for run in of_both(runs)
        if run.verdict.validity == "invalid"
    ]
    by_key = _differing_keys(runs, [key for key in SAME if not across_drivers or key not in OF_DRIVERS])
    alike = [{BASE: of_side} for of_side in runs.values()] if across_drivers else [runs]
    differences_found = [
        *by_key,
        *(one for runs_alike in alike for one in _differing(runs_alike, "drivers", _drivers)),
        *_differing(runs, "tasks in the score", _scored),
        *_differing(runs, "clock of the tasks", _clock),
    ]
    found += [finding(Code.COMPARED_UNLIKE, difference=one) for one in differences_found]
    return found if by_key else [*found, *_differing_loads(runs, across_drivers)]


def terms_digest(run: ComparedRun) -> str:
    """Return a digest of all that `complaints` compares: it allows runs with equal digests, unless one is invalid."""
    terms = {
        **{key: _stated(run, key) for key in SAME},
        **{key: getattr(run.header, key) for key in LOAD},
        **{"drivers": _drivers(run), "scored": _scored(run), "clock": _clock(run)},
    }
    return sha256(json.dumps(terms, sort_keys=True, default=str).encode()).hexdigest()


def _differing_keys(runs: Sides, keys: Iterable[str]) -> list[str]:
    first = runs[BASE][0]
    by_key: dict[str, str] = {}
    for key, run in product(keys, of_both(runs)):
        if unlike := _difference(key, first, run):
            by_key.setdefault(key, unlike)
    return [*by_key.values()]


def _drivers(run: ComparedRun) -> str:
    return ", ".join(run.figures.by_protocol)


def _difference(key: str, one: ComparedRun, another: ComparedRun) -> str | None:
    """Describe how the headers of two runs differ in a key; None if they do not."""
    values_of = [_stated(run, key) for run in (one, another)]
    words = []
    for name, *values in differences({key: values_of[0]}, {key: values_of[1]}, (key,)):
        entry = name.partition(".")[2]
        first, second = shown(entry or key, values)
        label = f"{key}.{entry}" if entry else LABELS[key]
        words.append(f"{label}: {first} in {one.name}, {second} in {another.name}")
    return "; ".join(words) or None


def _stated(run: ComparedRun, key: str) -> Any:
    """Return a header key's value; of the limits, with the defaults of those that are not stated."""
    stated = run.header.by_key().get(key)
    if key != LIMITS:
        return stated
    limits = {**Limits().in_header(), **(stated or {})}
    return {name: "off" if limit is None else limit for name, limit in limits.items()}


def _scored(run: ComparedRun) -> str:
    return "; ".join(", ".join(driver.covers.scored) for driver in run.figures.by_protocol.values())


def _clock(run: ComparedRun) -> str:
    """Return what timed the run's tasks. The event loop adds its own lateness, the kernel does not."""
    loop_share = run.figures.generator.loop_share
    return "kernel" if loop_share is None or loop_share <= LOOP_SHARE else "event loop"


def _differing(runs: Sides, key: str, value_of: Callable[[ComparedRun], Any]) -> list[str]:
    first = runs[BASE][0]
    others = [run for run in of_both(runs) if value_of(run) != value_of(first)]
    return [f"{key}: {value_of(first)} in {first.name} and {value_of(other)} in {other.name}" for other in others[:1]]


def _differing_loads(runs: Sides, across_drivers: bool) -> list[Finding]:
    """Return the differing keys of `LOAD` as one finding, unless each load occurs equally often on both sides.

    With `across_drivers`, the recorded scenario without the drivers replaces its digest.
    """

    def load(run: ComparedRun) -> tuple[Any, ...]:
        digest, *others = (getattr(run.header, key) for key in LOAD)
        scenario = run.recorded.scenario if across_drivers else None
        return (repr(_without_drivers(scenario)) if scenario else digest, *others)

    first = runs[BASE][0]
    others = [run for run in of_both(runs) if load(run) != load(first)]
    if not others or Counter(map(load, runs[BASE])) == Counter(map(load, runs[NEW])):
        return []
    other = others[0]
    differing = [key for index, key in enumerate(LOAD) if any(load(run)[index] != load(first)[index] for run in others)]
    one, another = (run.recorded.scenario for run in (first, other))
    keys = None
    if one and another:
        if across_drivers:
            one, another = _without_drivers(one), _without_drivers(another)
        names = [name for name, *_ in differences(one, another, sorted({*one, *another}, key=str))]
        keys = tuple(name for name in names if _of_load(name))
    return [finding(Code.LOADS_DIFFER, first=first.name, other=other.name, digests=tuple(differing), keys=keys)]


def _without_drivers(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a recorded scenario that determine its load, without the drivers of the groups."""
    keys = {key: scenario.get(key) for key in OF_LOAD}
    for key, value in keys.items():
        if isinstance(value, Mapping):
            keys[key] = {name: own for name, own in value.items() if _of_load(f"{key}.{name}")}
    groups = keys["topology"] if isinstance(keys["topology"], list) else []
    return {**keys, "topology": [{**group, "protocol": None} for group in groups if isinstance(group, Mapping)]}


def _of_load(name: str) -> bool:
    return name in OF_SERVER or NOT_LOAD.isdisjoint((name, name.partition(".")[0]))


def warnings_of(runs: Sides) -> list[Finding]:
    """Return the findings, besides `unequal_conditions`, that make a comparison doubtful."""
    found = []
    if any(run.figures.embedded for run in of_both(runs)):
        found.append(finding(Code.EMBEDDED, "", Severity.WARNING))
    for run in of_both(runs):
        verdict = run.verdict
        if verdict.validity == "degraded":  # the defects of an invalid run forbid the comparison
            found.append(finding(Code.COMPARED_DEGRADED, run.entry.path, why=_words(verdict.defects)))
        if verdict.missed:
            found.append(finding(Code.COMPARED_MISSED, run.entry.path, why=_words(verdict.missed)))
    found += _differing_criteria(runs)
    if any(run.header.start_state_digest is None for run in of_both(runs)):
        found.append(finding(Code.START_STATE_NOT_STATED))
    circumstances = {
        "software": {str(run.header.software) for run in of_both(runs)},
        "engines": {str(run.figures.engines) for run in of_both(runs)},
        "client machines": {str(run.figures.clients) for run in of_both(runs)},
    }
    for what, values in circumstances.items():
        if len(values) > 1:
            found.append(finding(Code.CIRCUMSTANCES_DIFFER, what=what, values=tuple(sorted(values))))
    return found


def _differing_criteria(runs: Sides) -> list[Finding]:
    names = list(dict.fromkeys(name for run in of_both(runs) for name in run.criteria))
    first: dict[tuple[str, str, str], str] = {}
    for run, name in product(of_both(runs), names):
        stated, judged_by = run.header.criteria, run.criteria
        own = _limit_words(name, stated) if name in stated else "not stated"
        common = _limit_words(name, judged_by) if name in judged_by else "nothing, as the figure is unknown"
        if own != common:
            first.setdefault((name, own, common), run.name)
    return [
        finding(Code.CRITERIA_DIFFER, name, own=own, run=run, common=common)
        for (name, own, common), run in first.items()
    ]


def _limit_words(name: str, criteria: Criteria) -> str:
    limits = criteria[name]
    return OFF if limits is None else Result(name, limits, None).wanted


def unequal_conditions(runs: Sides, stretch: float) -> list[Finding]:
    """Return a finding for each condition other than the server that differs between the sides.

    These are the drivers, the machines and the time. `stretch` is that of `run_order`.
    """
    found = unequal_machines({side: [run.figures for run in of_side] for side, of_side in runs.items()})
    if _differing(runs, "drivers", _drivers):
        base, new = ("; ".join(sorted(set(map(_drivers, of_side)))) for of_side in runs.values())
        unlike = _differing_keys(runs, OF_DRIVERS)
        found.insert(0, finding(Code.DRIVERS_DIFFER, base=base, new=new, differences=tuple(unlike)))
    return [*found, finding(Code.NO_TURNS, stretch=stretch)] if stretch > 1 else found


def _words(findings: Sequence[Finding]) -> tuple[str, ...]:
    return tuple(finding.words for finding in findings)


def unequal_machines(sides: FiguresOf) -> list[Finding]:
    """Return findings if other guests of the hardware, or other programs, took more on one side.

    If the server shares the machine and no `host` probe ran, the server's part is unknown: the finding then counts all
    programs. Sides whose ranges overlap count as equal.
    """
    stolen = _shares(sides, lambda figures: _most(machine.stolen_share for machine in figures.machines))
    others = _shares(sides, _others_share)
    busy = _shares(sides, lambda figures: _most(machine.cpu_share for machine in figures.machines))
    return [
        *_busier(Code.MORE_STOLEN, stolen, STOLEN_APART_SHARE),
        *_busier(Code.MORE_OTHER_WORK, others, APART_SHARE),
        *_busier(Code.BUSIER_MACHINE, {} if others else busy, APART_SHARE),
    ]


def _shares(sides: FiguresOf, share_of: Callable[[Figures], float | None]) -> dict[str, list[float]]:
    """Return the shares of each side's runs in rising order; nothing if any run's share is unknown."""
    sorted_shares: dict[str, list[float]] = {}
    for side, of_side in sides.items():
        shares = [share for figures in of_side if (share := share_of(figures)) is not None]
        if len(shares) < len(of_side):
            return {}
        sorted_shares[side] = sorted(shares)
    return sorted_shares


def _busier(code: Code, shares: Mapping[str, Sequence[float]], least: float) -> list[Finding]:
    """Return a finding with the ranges of both sides if they are at least this far apart."""
    if not shares:
        return []
    (other, low), (busier, high) = sorted(shares.items(), key=lambda side: side[1][0])
    apart = high[0] - low[-1] >= least
    return [finding(code, busier=busier, more=_range(high), other=other, less=_range(low))] if apart else []


def _others_share(figures: Figures) -> float | None:
    """Return the largest share of a machine that programs other than the server and loadsim took; None if unknown."""
    elsewhere = all(machine.server_here is False for machine in figures.machines)
    by_probe: list[float | None] = []
    for name, probe in (figures.probes or {}).items():
        # If the probe does not know the server's processes, it counts them among the others.
        known = {"others_cpu_cores", "cores"} <= probe.keys() and (elsewhere or "server_cpu_cores" in probe)
        if kind_of(name) == HOST and known:
            others, cores = probe["others_cpu_cores"].mean, probe["cores"].mean
            by_probe.append(others / cores if others is not None and cores else None)
    if by_probe or not elsewhere:
        return _most(by_probe)
    return _most(
        None
        if machine.cpu_share is None or machine.engines_share is None
        else max(0.0, machine.cpu_share - machine.engines_share)
        for machine in figures.machines
    )


def _most(shares: Iterable[float | None]) -> float | None:
    """Return the largest share; None if there is none, or if any is unknown."""
    given = [*shares]
    known = [share for share in given if share is not None]
    return max(known) if known and len(known) == len(given) else None


def _range(shares: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (shares[0], shares[-1]))
    return f"{' to '.join(ends)} %"
