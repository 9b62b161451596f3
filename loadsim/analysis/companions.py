"""Counts of companions: users' further mail programs, which are in no task and no delivery time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from loadsim.timinglog.reader import TimingLog


@dataclass(frozen=True, slots=True)
class Companions:
    """Counts of the whole run, from the engines that survived to report them."""

    count: float
    log_ons: float
    log_ons_failed: float
    sessions_lost: float
    failures: float
    looks: float
    listed: float
    """Companions; log-ons, and those that failed; lost sessions; failures, with the two before; looks for mail; new
    messages listed."""
    down_share: float | None
    """The share of the run without service; `null` if no engine reached the common start."""


def companions(log: TimingLog) -> Companions | None:
    """Return the sums over all engines that reported companions; None without one."""
    reported = [source.facts.companions for source in log.sources if source.facts.companions]
    if not reported:
        return None

    def total(key: str) -> int:
        return sum(getattr(each, key) for each in reported)

    planned_ns = total("planned_ns")
    counts = {one.name: total(one.name) for one in fields(Companions) if one.name != "down_share"}
    return Companions(**counts, down_share=total("down_ns") / planned_ns if planned_ns else None)
