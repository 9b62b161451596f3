"""Warnings about machines that were busier in one set of runs than in the other: what they took changes the times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from loadsim.analysis.figures import Figures
from loadsim.analysis.probes.resources import HOST, kind_of
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding

APART_SHARE = 0.1
"""The least distance between two sets of runs, as a share of all cores, of what counts as busier."""

STOLEN_APART_SHARE = 0.05
"""The least distance of what others on the same hardware took: it stops programs on all cores."""

Sides = Mapping[str, Sequence[Figures]]


def unequal_machines(sides: Sides) -> list[Finding]:
    """Return a finding for each of these: what others on the hardware took, and what other programs took.

    Where the server shares the machine and no probe `host` ran, its part is unknown: then the finding has what all
    programs took. Sides whose runs overlap are equal.
    """
    stolen = _shares(sides, lambda figures: _most(machine.stolen_share for machine in figures.machines))
    others = _shares(sides, _others_share)
    busy = _shares(sides, lambda figures: _most(machine.cpu_share for machine in figures.machines))
    return [
        *_busier(Code.MORE_STOLEN, stolen, STOLEN_APART_SHARE),
        *_busier(Code.MORE_OTHER_WORK, others, APART_SHARE),
        *_busier(Code.BUSIER_MACHINE, {} if others else busy, APART_SHARE),
    ]


def _shares(sides: Sides, share_of: Callable[[Figures], float | None]) -> dict[str, list[float]]:
    """Return the rising shares of the runs of each side; nothing if that of a run is unknown."""
    found: dict[str, list[float]] = {}
    for side, of_side in sides.items():
        shares = [share for figures in of_side if (share := share_of(figures)) is not None]
        if len(shares) < len(of_side):
            return {}
        found[side] = sorted(shares)
    return found


def _busier(code: Code, shares: Mapping[str, Sequence[float]], least: float) -> list[Finding]:
    """Return a finding with the ranges of both sides if they are apart by the least distance."""
    if not shares:
        return []
    (other, low), (busier, high) = sorted(shares.items(), key=lambda side: side[1][0])
    apart = high[0] - low[-1] >= least
    return [finding(code, busier=busier, more=_range(high), other=other, less=_range(low))] if apart else []


def _others_share(figures: Figures) -> float | None:
    """Return the most that programs took of a machine, besides the server and loadsim; None if unknown."""
    elsewhere = all(machine.server_here is False for machine in figures.machines)
    by_probe: list[float | None] = []
    for name, probe in (figures.probes or {}).items():
        # Without the server's processes, the others include them.
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
    """Return the largest share; None if there is none, or if one is unknown."""
    found = [*shares]
    known = [share for share in found if share is not None]
    return max(known) if known and len(known) == len(found) else None


def _range(shares: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (shares[0], shares[-1]))
    return f"{' to '.join(ends)} %"
