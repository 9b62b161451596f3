"""Warnings about machines that were busier in one set of runs than in the other: what they took changes the times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loadsim.analysis.figures import Figures
from loadsim.analysis.probes.resources import HOST, kind_of
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding

APART_SHARE = 0.1
"""The least distance between two sets of runs, as a share of all cores, of what counts as busier."""

STOLEN_APART_SHARE = 0.05
"""The least distance of what others on the same hardware took: it stops programs on all cores."""

ShareOf = Callable[[Figures], float | None]


def unequal_machines(sides: Mapping[str, Sequence[Figures]]) -> list[Finding]:
    """Return a finding for each of these: what others on the hardware took, and what other programs took.

    Where the server shares the machine and no probe `host` ran, its part is unknown: then the finding has what all
    programs took. Sides whose runs overlap are equal.
    """
    found = [
        _more(Code.MORE_STOLEN, _apart(sides, _stolen_share, STOLEN_APART_SHARE)),
        _more(Code.MORE_OTHER_WORK, _apart(sides, _others_share, APART_SHARE)),
    ]
    if not _known(sides, _others_share):
        found.append(_more(Code.BUSIER_MACHINE, _apart(sides, _busy_share, APART_SHARE)))
    return [one for one in found if one is not None]


def _more(code: Code, apart: tuple[tuple[str, str], tuple[str, str]] | None) -> Finding | None:
    if apart is None:
        return None
    (busier, more), (other, less) = apart
    return finding(code, busier=busier, more=more, other=other, less=less)


def _stolen_share(figures: Figures) -> float | None:
    return _most([machine.stolen_share for machine in figures.machines])


def _busy_share(figures: Figures) -> float | None:
    return _most([machine.cpu_share for machine in figures.machines])


def _others_share(figures: Figures) -> float | None:
    """Return the most that programs took of a machine, besides the server and loadsim; None if unknown."""
    elsewhere = all(machine.server_here is False for machine in figures.machines)
    by_probe: list[float | None] = []
    for name, probe in (figures.probes or {}).items():
        # Without the server's processes, the others include them.
        found = {"others_cpu_cores", "cores"} <= probe.keys() and (elsewhere or "server_cpu_cores" in probe)
        if kind_of(name) == HOST and found:
            others, cores = probe["others_cpu_cores"].mean, probe["cores"].mean
            by_probe.append(others / cores if others is not None and cores else None)
    if by_probe:
        return _most(by_probe)
    if not elsewhere:
        return None
    return _most(
        [
            None
            if machine.cpu_share is None or machine.engines_share is None
            else max(0.0, machine.cpu_share - machine.engines_share)
            for machine in figures.machines
        ]
    )


def _most(shares: Sequence[float | None]) -> float | None:
    """Return the largest share; None if there is none, or if one is unknown."""
    known = [share for share in shares if share is not None]
    return max(known) if known and len(known) == len(shares) else None


def _known(sides: Mapping[str, Sequence[Figures]], share_of: ShareOf) -> bool:
    return all(share_of(figures) is not None for of_side in sides.values() for figures in of_side)


def _apart(
    sides: Mapping[str, Sequence[Figures]], share_of: ShareOf, least: float
) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """Return name and range of the busier side and of the other one; None if they are not apart, or not known."""
    if not _known(sides, share_of):
        return None
    shares = {side: sorted(share_of(figures) or 0.0 for figures in of_side) for side, of_side in sides.items()}
    (other, low), (busier, high) = sorted(shares.items(), key=lambda one: one[1][0])
    if high[0] - low[-1] < least:
        return None
    return (busier, _range(high)), (other, _range(low))


def _range(shares: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (shares[0], shares[-1]))
    return f"{' to '.join(ends)} %"
