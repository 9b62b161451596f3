"""The demands of a unit of load, such as a task, on a server: processor time, and operations of its disks."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding
from loadsim.model.terms import Window
from loadsim.size.resources import DISK, work_cores
from loadsim.size.server_blocks import Rates, Series, means
from loadsim.size.utilisation import Blocks, Estimate, NotKnown, ratio

STACKED = re.compile(r"(?:md|dm_|drbd|bcache|loop|zd)[_0-9].*")
"""Block devices of Linux that keep their data on others: RAID, volumes, replicas, caches, images."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The use of a resource for one unit of load, such as processor time in ms for each task."""

    name: str
    unit: str
    value: Estimate | None
    why_not: Finding | None = None


@dataclass(frozen=True, slots=True)
class DiskOperations:
    """Operations of all sampled disks.

    A figure is None if it is unknown. If all are, `why_not` has the reason.
    """

    per_s: Estimate | None = None
    read_share: float | None = None
    per_message: Estimate | None = None
    per_delivery: Estimate | None = None
    why_not: Finding | None = None


def demands(host: Series, rates: Rates, window_s: Window) -> list[Demand]:
    """Return the processor time of the server's processes for each task, message and IMAP command.

    All of it is divided by each of them in turn: the figures describe the same time, and do not add up.
    """
    found = []
    for name, blocks in (
        ("task", rates.tasks),
        ("submitted message", rates.messages),
        ("IMAP command", rates.imap_commands),
    ):
        try:
            taken = ratio(work_cores(host, window_s), blocks)
            found.append(Demand(name, "ms of processor", taken.times(1000)))
        except NotKnown as reason:
            found.append(Demand(name, "ms of processor", None, reason.of(name)))
    return found


def disk_operations(host: Series, rates: Rates, window_s: Window) -> DiskOperations:
    """Return the operations of all sampled disks."""
    disks = [disk[1] for figure in sorted(host) if (disk := DISK.fullmatch(figure))]
    try:
        if not disks:
            raise NotKnown(Code.NO_DISKS)
        if len(disks) > 1 and (stacked := [disk for disk in disks if STACKED.fullmatch(disk)]):
            raise NotKnown(Code.DISKS_STACKED, disks=tuple(disks), stacked=tuple(stacked))
        reads = sum((means(host, f"disk_{disk}_reads_per_s", window_s) for disk in disks), np.zeros(1))
        writes = sum((means(host, f"disk_{disk}_writes_per_s", window_s) for disk in disks), np.zeros(1))
        both = reads + writes
        per_s = ratio(both, 1.0)
    except NotKnown as reason:
        return DiskOperations(why_not=reason.of("disks"))
    return DiskOperations(
        per_s=per_s,
        read_share=float(reads.sum() / both.sum()) if both.any() else None,
        per_message=_for_each(both, rates.messages),
        per_delivery=_for_each(both, rates.deliveries),
    )


def _for_each(operations: Blocks, units: Blocks) -> Estimate | None:
    """Return the operations for each unit of load; None without such units, or if the ratio drifts."""
    try:
        return ratio(operations, units)
    except NotKnown:
        return None
