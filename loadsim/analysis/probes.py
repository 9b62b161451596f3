"""Figures of probes in a window, for the report: they are in no score and in no verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadsim.model.terms import Window
from loadsim.timinglog.reader import TimingLog

PROBE, FIGURES = "probe", "figures"
"""Keys of a sample of a probe: its name, and its figures by name."""


@dataclass(frozen=True, slots=True)
class ProbeFigure:
    """A figure of a probe over the samples in the window."""

    probe: str
    figure: str
    samples: int
    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """The package of a probe, its samples in the whole run, those that it failed to take, and the last reason."""

    probe: str
    package: str
    samples: int
    failures: int
    last_failure: str | None


def probe_figures(log: TimingLog, window_s: Window) -> tuple[ProbeFigure, ...]:
    """Return each figure of each probe, in the order of their names."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in log.health:
        at_s = sample.get("at_s")
        if PROBE in sample and at_s is not None and window_s.begin_s <= at_s < window_s.end_s:
            for figure, value in sample[FIGURES].items():
                found[sample[PROBE], figure].append(float(value))
    return tuple(
        ProbeFigure(probe, figure, len(values), sum(values) / len(values), min(values), max(values))
        for (probe, figure), values in sorted(found.items())
    )


def probe_facts(log: TimingLog) -> tuple[ProbeFacts, ...]:
    """Return the facts of all probes, summed over the machines and runs of a log."""
    found: dict[str, ProbeFacts] = {}
    for source in log.sources:
        probes: Mapping[str, Mapping[str, Any]] = source.facts.get("probes") or {}
        for name, facts in sorted(probes.items()):
            before = found.get(name)
            failures = facts["failures"] + (before.failures if before else 0)
            samples = facts["samples"] + (before.samples if before else 0)
            last = facts["last_failure"] or (before.last_failure if before else None)
            found[name] = ProbeFacts(name, facts["package"], samples, failures, last)
    return tuple(found.values())
