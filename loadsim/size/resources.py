"""A server's resources: how much of each is used, how many users fill it, and how much a unit of load demands."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding
from loadsim.model.terms import Window
from loadsim.size.server_blocks import Rates, Series, means
from loadsim.size.utilisation import (
    EXACT,
    LEAST_UTILISATION,
    Blocks,
    Estimate,
    NotKnown,
    block_means,
    levels,
    ratio,
    users_at,
)

ESTIMATE, AT_LEAST = "estimate", "at least"
"""The meanings of a number of users: an estimate, or a bound (shared resources, and parallel ones)."""

MOST_BY_OTHERS = 0.05
"""The largest share of the server's cores that others may take: their work, such as a filter's, may follow the load."""

MOST_TWICE = 0.1
"""The largest share of the server's work that may be counted twice: the kernel's counts are no more exact than this."""

BUSY_SHARE = "busy share"
"""The unit of a resource if only the share in use is known."""

DISK = re.compile(r"disk_(.+)_busy_share")

STACKED = re.compile(r"(?:md|dm_|drbd|bcache|loop|zd)[_0-9].*")
"""Linux block devices that keep their data on other devices: RAID, volumes, replicas, caches, images."""

THREAD, OF_OTHERS = re.compile(r"server_thread_(.+)_cores"), re.compile(r"others_(.+(?<!_cpu))_cores")
"""The figures for the busiest thread of the server's processes, and for the busiest other program."""

_CORES = "_cpu_cores"
_KNOWN_GROUPS = ("server", "loadsim", "others")


@dataclass(frozen=True, slots=True)
class SizedResource:
    """A server's resource over the window, and the number of users who would fill it.

    `used` and `available` are in `unit`. `available` is what background load leaves. `users` would fill it; if None,
    `why_not` is the reason. If the resource is hardly used, more than `users_beyond` fit. `bound` says whether `users`
    is an estimate, or whether more fit.
    """

    name: str
    unit: str
    bound: str
    used: float | None = None
    available: float | None = None
    utilisation: Estimate | None = None
    users: Estimate | None = None
    users_beyond: float | None = None
    why_not: Finding | None = None

    def may_be_full_before(self, users: float) -> bool:
        """Return True if this resource has no number, and may be full with fewer users."""
        return self.users is None and (self.users_beyond is None or self.users_beyond < users)


@dataclass(frozen=True, slots=True)
class Demand:
    """The use of a resource per unit of load, such as processor time in ms per task."""

    name: str
    unit: str
    value: Estimate | None
    why_not: Finding | None = None


def resources_of(host: Series, users: int, window_s: Window) -> list[SizedResource]:
    """Return the resources that the probe sampled, and always the processor and memory.

    All programs use disks and network, and many disks serve several requests at once: so more users may fit.
    """
    busy = {f"disk {disk[1]}": figure for figure in sorted(host) if (disk := DISK.fullmatch(figure))}
    if "network_busy_share" in host:
        busy["network"] = "network_busy_share"

    def processor(used: Blocks, available: Blocks | float) -> Estimate:
        """Return the estimate if others' work is constant; the interval also allows for work that follows the load."""
        constant, others = ratio(used, available), means(host, "server_cores_taken_by_others", window_s)
        return replace(constant, high=max(constant.high, float((used + others).mean() / (available + others).mean())))

    resources = [_resource("processor", "cores", ESTIMATE, users, lambda: _processor(host, window_s), processor)]
    busy |= _thread(host, window_s)
    if "quota_cores" in host:
        resources += [_resource("processor quota", BUSY_SHARE, AT_LEAST, users, lambda: (_quota(host, window_s), 1.0))]
    resources.append(_resource("memory", "GB", AT_LEAST, users, lambda: _memory(host, window_s), levels))
    for name, figure in busy.items():
        resources.append(_resource(name, BUSY_SHARE, AT_LEAST, users, partial(_busy, host, figure, window_s)))
    return resources


def named_groups(host: Series) -> list[str]:
    """Return the groups of processes that the scenario names (`probes.host.groups`)."""
    groups = [figure.removesuffix(_CORES) for figure in sorted(host) if figure.endswith(_CORES)]
    return [group for group in groups if group not in _KNOWN_GROUPS]


def work_cores(host: Series, window_s: Window) -> Blocks:
    """Return the cores taken by the server and the named groups, which count as part of it.

    Raises `NotKnown` if processes of a group also belong to the server or loadsim: they would count twice.
    """
    groups = named_groups(host)
    used = sum((means(host, group + _CORES, window_s) for group in groups), means(host, "server_cpu_cores", window_s))
    if not groups:
        return used
    # `others` is the busy time outside all groups: all add up to the busy time, unless a process is in two groups.
    parts = used + means(host, "loadsim_cpu_cores", window_s) + means(host, "others_cpu_cores", window_s)
    busy_share = means(host, "cpu_busy_share", window_s) - means(host, "cpu_steal_share", window_s)
    twice = float((parts - busy_share * means(host, "cores", window_s)).mean())
    if twice > MOST_TWICE * float(used.mean()):
        raise NotKnown(Code.GROUPS_OVERLAP, groups=tuple(groups), cores=round(twice, 2))
    return used


def server_cores(host: Series, window_s: Window) -> float:
    """Return the number of cores on which the server's processes may run: all of the machine's cores, or fewer.

    Raises `NotKnown` if it changed, or if processes may use different cores: some cores may be full before the rest.
    """
    cores = means(host, "server_cores", window_s)
    if float(np.ptp(cores)) > EXACT:
        raise NotKnown(Code.CORES_CHANGED, least=float(cores.min()), most=float(cores.max()))
    sets = float(means(host, "server_core_sets", window_s).max())
    if sets > 1 + EXACT:
        raise NotKnown(Code.CORES_OF_SOME)
    return float(cores.mean())


def left_to_server(host: Series, window_s: Window) -> tuple[float, float] | None:
    """Return the numbers of the server's and the machine's cores; None if the server may use all, or if unknown."""
    try:
        ours, all_cores = server_cores(host, window_s), float(means(host, "cores", window_s).mean())
    except NotKnown:
        return None
    return (ours, all_cores) if ours < all_cores - EXACT else None


def _resource(
    name: str,
    unit: str,
    bound: str,
    users: int,
    use: Callable[[], tuple[Blocks, Blocks | float]],
    estimate: Callable[[Blocks, Blocks | float], Estimate] = ratio,
) -> SizedResource:
    """Size a resource. `use` returns the used and available amounts, or raises `NotKnown`."""
    sized = SizedResource(name, unit, bound)
    try:
        used, available = use()
        sized = replace(
            sized,
            used=float(used.mean()),
            available=float(np.mean(available)),
            users_beyond=_hardly_used(used, available, users),
        )
        sized = replace(sized, utilisation=(utilisation := estimate(used, available)), users_beyond=None)
        return replace(sized, users=users_at(users, utilisation))
    except NotKnown as reason:
        return replace(sized, users_beyond=reason.users_beyond or sized.users_beyond, why_not=reason.of(name))


def _hardly_used(used: Blocks, available: Blocks | float, users: int) -> float | None:
    """Return a number of users that fit if no block uses the resource much, even if its use drifts; else None."""
    wholes = np.broadcast_to(np.asarray(available, np.float64), used.shape)
    if float(wholes.min()) > 0 and float((used / wholes).max()) < LEAST_UTILISATION:
        return users / LEAST_UTILISATION
    return None


def _processor(host: Series, window_s: Window) -> tuple[Blocks, Blocks]:
    """Return the server's work, and its cores minus what other programs and other virtual machines take."""
    used, cores = work_cores(host, window_s), server_cores(host, window_s)
    stolen = means(host, "server_cores_steal_share", window_s) * cores
    others = means(host, "server_cores_taken_by_others", window_s)
    if float((others + stolen).mean()) > MOST_BY_OTHERS * cores:
        busiest = _most(host, OF_OTHERS, window_s)
        taken = {"programs": round(float(others.mean()), 2), "machines": round(float(stolen.mean()), 2)}
        raise NotKnown(Code.CORES_OF_OTHERS, cores=cores, **taken, busiest=busiest[0] if busiest else "unknown")
    return used, cores - others - stolen


def _most(host: Series, figures: re.Pattern[str], window_s: Window) -> tuple[str, str] | None:
    """Return the name and key of the figure with the largest sum in the window; None if no figure matches."""
    sums = {
        (match[1], figure): sum(value for at_s, value in host[figure] if window_s.begin_s <= at_s < window_s.end_s)
        for figure in host
        if (match := figures.fullmatch(figure))
    }
    return max(sums, key=sums.__getitem__, default=None)


def _thread(host: Series, window_s: Window) -> dict[str, str]:
    """Return the figure for the server's busiest thread, by name; nothing if the thread changed, or was hardly used."""
    with suppress(NotKnown):
        busiest = _most(host, THREAD, window_s)
        if busiest and means(host, busiest[1], window_s).max() >= LEAST_UTILISATION:
            return {f"busiest thread of {busiest[0]}": busiest[1]}
    return {}


def _quota(host: Series, window_s: Window) -> Blocks:
    """Return the used share of quota of the control group nearest to its quota.

    Each sample may be of a different group, the one with the highest share of either kind, so no group used a larger
    share. All programs in a group count, so more users may fit.
    """
    if "quota_busy_share" not in host:
        raise NotKnown(Code.QUOTA_UNKNOWN)
    throttled = dict(host.get("quota_throttled_share", ()))
    nearest = [(at_s, max(busy, throttled.get(at_s, 0.0))) for at_s, busy in host["quota_busy_share"]]
    return block_means(nearest, window_s)


def _memory(host: Series, window_s: Window) -> tuple[Blocks, Blocks]:
    """Return the memory of the server's processes. Shared pages count for each process, so more users fit."""
    groups = ("server", *named_groups(host))
    used = sum((means(host, f"{group}_rss_bytes", window_s) / 1e9 for group in groups), np.zeros(1))
    return used, used + means(host, "memory_available_bytes", window_s) / 1e9


def _busy(host: Series, figure: str, window_s: Window) -> tuple[Blocks, float]:
    return means(host, figure, window_s), 1.0


MAILBOX, MEGACYCLES_PER_S, OPERATIONS_PER_S = "mailbox", "megacycles per second", "disk operations per second"
"""The name and units of the demands that planners use."""


def demands(host: Series, rates: Rates, users: int, window_s: Window) -> list[Demand]:
    """Return the server's processor time and disk operations per unit of load, and per mailbox.

    The whole is divided by each unit in turn: figures cover the same work, and do not add up.
    """

    def work_ms() -> Blocks:
        return 1000 * work_cores(host, window_s)

    def megacycles_per_s() -> Blocks:
        return work_cores(host, window_s) * means(host, "core_mhz", window_s)

    messages = "submitted message"
    by_processor = [
        _demand("task", "ms of processor", work_ms, rates.tasks),
        _demand(messages, "ms of processor", work_ms, rates.messages),
        _demand(MAILBOX, MEGACYCLES_PER_S, megacycles_per_s, users),
    ]
    try:
        reads, writes = (_disk_operations(host, kind, window_s) for kind in ("reads", "writes"))
    except NotKnown as reason:
        return [*by_processor, Demand("second", "disk operations", None, reason.of("disks"))]
    return [
        *by_processor,
        _demand("second", "disk reads", lambda: reads, 1.0),
        _demand("second", "disk writes", lambda: writes, 1.0),
        _demand(messages, "disk operations", lambda: reads + writes, rates.messages),
        _demand("delivered copy", "disk operations", lambda: reads + writes, rates.deliveries),
        _demand(MAILBOX, OPERATIONS_PER_S, lambda: reads + writes, users),
    ]


def _demand(name: str, unit: str, used: Callable[[], Blocks], units: Blocks | float) -> Demand:
    try:
        return Demand(name, unit, ratio(used(), units))
    except NotKnown as reason:
        return Demand(name, unit, None, reason.of(name))


def _disk_operations(host: Series, kind: str, window_s: Window) -> Blocks:
    """Return all disks' reads or writes per second. Raises `NotKnown` if there are no disks, or if any are stacked."""
    disks = [disk[1] for figure in sorted(host) if (disk := DISK.fullmatch(figure))]
    if not disks:
        raise NotKnown(Code.NO_DISKS)
    if len(disks) > 1 and (stacked := [disk for disk in disks if STACKED.fullmatch(disk)]):
        raise NotKnown(Code.DISKS_STACKED, disks=tuple(disks), stacked=tuple(stacked))
    return sum((means(host, f"disk_{disk}_{kind}_per_s", window_s) for disk in disks), np.zeros(1))
