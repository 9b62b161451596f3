"""The demands of a unit of load, such as a task, on a server: processor time, and operations of its disks."""

from __future__ import annotations

import re
from collections.abc import Callable
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


def demands(host: Series, rates: Rates, window_s: Window) -> list[Demand]:
    """Return the processor time of the server's processes for units of load, and the operations of all sampled disks.

    All of it is divided by each unit in turn: the figures describe the same time, and do not add up.
    """

    def work_ms() -> Blocks:
        return 1000 * work_cores(host, window_s)

    messages = "submitted message"
    found = [
        _demand("task", "ms of processor", work_ms, rates.tasks),
        _demand(messages, "ms of processor", work_ms, rates.messages),
        _demand("IMAP command", "ms of processor", work_ms, rates.imap_commands),
    ]
    try:
        reads, writes = (_disk_operations(host, kind, window_s) for kind in ("reads", "writes"))
    except NotKnown as reason:
        return [*found, Demand("second", "disk operations", None, reason.of("disks"))]
    return [
        *found,
        _demand("second", "disk reads", lambda: reads, 1.0),
        _demand("second", "disk writes", lambda: writes, 1.0),
        _demand(messages, "disk operations", lambda: reads + writes, rates.messages),
        _demand("delivered copy", "disk operations", lambda: reads + writes, rates.deliveries),
    ]


def _demand(name: str, unit: str, used: Callable[[], Blocks], units: Blocks | float) -> Demand:
    try:
        return Demand(name, unit, ratio(used(), units))
    except NotKnown as reason:
        return Demand(name, unit, None, reason.of(name))


def _disk_operations(host: Series, kind: str, window_s: Window) -> Blocks:
    """Return the reads or writes per second of all disks. Raises `NotKnown` without any, and for stacked ones."""
    disks = [disk[1] for figure in sorted(host) if (disk := DISK.fullmatch(figure))]
    if not disks:
        raise NotKnown(Code.NO_DISKS)
    if len(disks) > 1 and (stacked := [disk for disk in disks if STACKED.fullmatch(disk)]):
        raise NotKnown(Code.DISKS_STACKED, disks=tuple(disks), stacked=tuple(stacked))
    return sum((means(host, f"disk_{disk}_{kind}_per_s", window_s) for disk in disks), np.zeros(1))
