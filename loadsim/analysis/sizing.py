"""Sizing: the number of users at which each resource of a server would be full, from one measured run.

The figures of the server come from the probe `host` on its machine, its own counts from `postfix` and `dovecot`. A
figure that would mislead is left out with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.server_blocks import Rates, Series, host_of, means, rates_of, series_of
from loadsim.analysis.utilisation import (
    Blocks,
    Estimate,
    NotKnown,
    levels,
    ratio,
    users_at,
)
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.terms import STRESS, Window

POSTFIX, DOVECOT = "postfix", "dovecot"

ESTIMATE, AT_LEAST = "estimate", "at least"
"""The meanings of a number of users: an estimate; or a bound, as others use the resource or it serves in parallel."""

OTHER_LOAD = 1.1
"""A server that counts this many times as much mail or commands as loadsim made has other load, too."""

NOTED_OTHERS = 0.1
"""The least work of others that is a doubt, as a share of the server's: a part of it may be for the server."""

FULL = 0.95
"""From this utilisation on, a resource was full: the demand of a task may be larger than measured."""

MOST_BY_OTHERS = 0.5
"""The most of the processor that other programs may take: beyond, they would be sized, and not the server."""

_DISK = re.compile(r"disk_(.+)_busy_share")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the server over the window, and the users that fill it.

    `used` and `available` are in `unit`. `available` is what background load leaves. `users` fill it, and
    `users_at_target` use it to the share that was asked for. They are None with a reason, `why_not`; more than
    `users_beyond` fit into a resource that is hardly used. `bound` says if both are estimates, or if more users fit.
    """

    name: str
    unit: str
    bound: str
    used: float | None = None
    available: float | None = None
    utilisation: Estimate | None = None
    users: Estimate | None = None
    users_at_target: Estimate | None = None
    users_beyond: float | None = None
    why_not: str | None = None

    def may_be_full_before(self, users: float) -> bool:
        """Return whether this resource without a number may be full with fewer users."""
        return self.users is None and (self.users_beyond is None or self.users_beyond < users)


@dataclass(frozen=True, slots=True)
class Demand:
    """The use of a resource for one unit of load, such as processor time in ms for each task."""

    name: str
    unit: str
    value: Estimate | None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class DiskOperations:
    """Operations of all sampled disks; `per_mailbox_8h_per_s` is that of a user with a day of 8 h."""

    per_s: Estimate | None
    read_share: float | None
    per_message: Estimate | None
    per_delivery: Estimate | None
    per_mailbox_per_s: Estimate | None
    per_mailbox_8h_per_s: Estimate | None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class DataSet:
    """The mailboxes compared with the server's memory; None if unknown.

    `cache_bytes` is the memory that was available for files on average. `cache_resident`: all mailboxes fit into it,
    so that reads need no disk.
    """

    mailbox_bytes: int | None
    memory_bytes: int | None
    cache_bytes: int | None
    cache_resident: bool | None


@dataclass(frozen=True, slots=True)
class Sizing:
    """The sizing of a server by one run; rates are per second of the window.

    `equivalent` is the number of users with a day of 8 h that make the load of one of the run's. `missed` has the
    criteria that the run missed with its own users; None if it met them.
    """

    run: str
    validity: str
    embedded: bool
    users: int
    equivalent: float
    window_s: Window
    tasks_per_s: float
    messages_per_s: float
    target: float
    resources: Sequence[Resource]
    demands: Sequence[Demand]
    disk: DiskOperations
    data: DataSet
    missed: str | None
    doubts: Sequence[str]
    not_covered: Sequence[str]
    assumptions: Sequence[str]

    @property
    def first(self) -> Resource | None:
        """The resource that fewest users fill.

        None if it may be another, which has no number, or if the run missed its criteria: then something else is slow.
        """
        if self.missed is not None:
            return None
        known = [(each.users.value, each) for each in self.resources if each.users is not None]
        if not known:
            return None
        users, first = min(known, key=lambda each: each[0])
        return None if any(each.may_be_full_before(users) for each in self.resources) else first

    @property
    def exit_status(self) -> int:
        """0, or 4 if it is not known which resource is full first."""
        return 0 if self.first is not None else 4


def size(run: RecordedRun, mailbox_bytes: int | None, target: float) -> Sizing:
    """Return the sizing of a run's server; `mailbox_bytes` is the size of all mailboxes, None if unknown.

    Raises `RunInvalid` for an invalid run, and `ConfigError` for logs that no server can be sized by.
    """
    _check(run)
    log, figures, verdict = run.log, run.figures, run.summary.verdict
    window_s, users = figures.window_s, int(figures.users)
    series = series_of(log)
    host = series[host_of(run.place, series)]
    rates = rates_of(log, window_s)
    resources = [
        _processor(host, users, window_s, target),
        _memory(host, users, window_s, target),
        *_disks(host, users, window_s, target),
    ]
    equivalent = (figures.load_equivalent_users or 0) / users
    data = _data_set(host, window_s, mailbox_bytes)
    return Sizing(
        run=run.place,
        validity=verdict.validity,
        embedded=figures.embedded,
        users=users,
        equivalent=equivalent,
        window_s=window_s,
        tasks_per_s=float(rates.tasks.mean()),
        messages_per_s=float(rates.messages.mean()),
        target=target,
        resources=resources,
        demands=_demands(host, rates, window_s),
        disk=_disk_operations(host, rates, window_s, users, equivalent),
        data=data,
        missed="; ".join(verdict.reasons) if verdict.passed is False else None,
        doubts=_doubts(run, series, host, rates, resources, data),
        not_covered=_not_covered(host, resources, window_s),
        assumptions=ASSUMPTIONS,
    )


ASSUMPTIONS = (
    "the load grows in proportion to the users: same mix of tasks, same messages for each user, same mailboxes",
    "the demand of a task stays the same: no lock, cache or queue costs more under more load",
    "the same machine and configuration, with the load generator on another machine; each of its logical processors has"
    " the speed that it had",
    "other programs keep what they took in the window; all work of the server's processes is the users'",
)


def _check(run: RecordedRun) -> None:
    """Raise unless this is one whole run with due tasks that may be believed."""
    figures, verdict, expected = run.figures, run.summary.verdict, f"size: {run.place}: expected"
    if figures.runs != 1:
        raise ConfigError(f"{expected} one run, found {figures.runs}")
    if figures.slice:
        raise ConfigError(f"{expected} a whole run, found slice {figures.slice}: merge all slices")
    if figures.mode == STRESS:
        raise ConfigError(f"{expected} a canonical run, found a stress run: its users do as much as the server takes")
    if not figures.users:
        raise ConfigError(f"{expected} users, found none")
    if verdict.validity == "invalid":
        raise RunInvalid(f"size: {run.place}: the run is invalid, and sizes no server: {'; '.join(verdict.reasons)}")


# --- resources --------------------------------------------------------------------------------------------------------


def _resource(
    name: str,
    unit: str,
    bound: str,
    used: Blocks,
    available: Blocks | float,
    users: int,
    target: float,
    estimate: Callable[[Blocks, Blocks | float], Estimate] = ratio,
) -> Resource:
    known = Resource(name, unit, bound, float(used.mean()), float(np.mean(available)))
    try:
        utilisation = estimate(used, available)
    except NotKnown as reason:
        return replace(known, why_not=str(reason))
    try:
        full, at_target = (users_at(users, utilisation, share) for share in (1.0, target))
    except NotKnown as reason:
        return replace(known, utilisation=utilisation, users_beyond=reason.users_beyond, why_not=str(reason))
    return replace(known, utilisation=utilisation, users=full, users_at_target=at_target)


def _missing(name: str, unit: str, reason: object) -> Resource:
    return Resource(name, unit, ESTIMATE, why_not=str(reason))


def _processor(host: Series, users: int, window_s: Window, target: float) -> Resource:
    """Return the processor: all cores but what other programs and other virtual machines take."""
    try:
        used = means(host, "server_cpu_cores", window_s)
        cores = means(host, "cores", window_s)
        others = means(host, "others_cpu_cores", window_s)
        stolen = means(host, "cpu_steal_share", window_s) * cores
    except NotKnown as reason:
        return _missing("processor", "cores", reason)
    if float(others.mean()) > MOST_BY_OTHERS * float(cores.mean()):
        why_not = (
            f"other programs took {float(others.mean()):.2f} of {float(cores.mean()):.0f} cores, more than half:"
            " end them, and measure again"
        )
        left = float((cores - others - stolen).mean())
        return Resource("processor", "cores", ESTIMATE, float(used.mean()), left, why_not=why_not)
    return _resource("processor", "cores", ESTIMATE, used, cores - others - stolen, users, target)


def _memory(host: Series, users: int, window_s: Window, target: float) -> Resource:
    """Return the memory of the server's processes. Pages that they share count for each of them: more users fit."""
    try:
        used = means(host, "server_rss_bytes", window_s) / 1e9
        available = means(host, "memory_available_bytes", window_s) / 1e9
    except NotKnown as reason:
        return _missing("memory", "GB", reason)
    return _resource("memory", "GB", AT_LEAST, used, used + available, users, target, levels)


def _disks(host: Series, users: int, window_s: Window, target: float) -> list[Resource]:
    """Return the sampled disks. Their use is that of all programs, and many serve several requests at once."""
    found = []
    for figure in sorted(host):
        if disk := _DISK.fullmatch(figure):
            name = f"disk {disk[1]}"
            try:
                busy = means(host, figure, window_s)
            except NotKnown as reason:
                found.append(_missing(name, "busy share", reason))
                continue
            found.append(_resource(name, "busy share", AT_LEAST, busy, 1.0, users, target))
    return found


# --- demands ----------------------------------------------------------------------------------------------------------


def _demands(host: Series, rates: Rates, window_s: Window) -> list[Demand]:
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
            taken = ratio(means(host, "server_cpu_cores", window_s), blocks)
            found.append(Demand(name, "ms of processor", taken.times(1000)))
        except NotKnown as reason:
            found.append(Demand(name, "ms of processor", None, str(reason)))
    return found


def _disk_operations(host: Series, rates: Rates, window_s: Window, users: int, equivalent: float) -> DiskOperations:
    disks = [disk[1] for figure in sorted(host) if (disk := _DISK.fullmatch(figure))]
    try:
        if not disks:
            raise NotKnown("the probe sampled no disks")
        reads = sum((means(host, f"disk_{disk}_reads_per_s", window_s) for disk in disks), np.zeros(1))
        writes = sum((means(host, f"disk_{disk}_writes_per_s", window_s) for disk in disks), np.zeros(1))
        both = reads + writes
        per_s = ratio(both, 1.0)
        of_mailbox = per_s.times(1 / users)
        return DiskOperations(
            per_s=per_s,
            read_share=float(reads.sum() / both.sum()) if both.any() else None,
            per_message=ratio(both, rates.messages),
            per_delivery=ratio(both, rates.deliveries),
            per_mailbox_per_s=of_mailbox,
            per_mailbox_8h_per_s=of_mailbox.times(1 / equivalent) if equivalent else None,
        )
    except NotKnown as reason:
        return DiskOperations(None, None, None, None, None, None, str(reason))


def _data_set(host: Series, window_s: Window, mailbox_bytes: int | None) -> DataSet:
    try:
        available = float(means(host, "memory_available_bytes", window_s).mean())
        used_share = float(means(host, "memory_used_share", window_s).mean())
    except NotKnown:
        return DataSet(mailbox_bytes, None, None, None)
    memory = round(available / (1 - used_share)) if used_share < 1 else None
    resident = None if mailbox_bytes is None else mailbox_bytes <= available
    return DataSet(mailbox_bytes, memory, round(available), resident)


# --- limits of the answer ---------------------------------------------------------------------------------------------


def _doubts(
    run: RecordedRun,
    series: Mapping[str, Series],
    host: Series,
    rates: Rates,
    resources: Sequence[Resource],
    data: DataSet,
) -> list[str]:
    """Return what may make the figures wrong for this run."""
    found = []
    if run.figures.embedded:
        found.append("the embedded server shares the machine with the generator: this sizes no server")
    if run.summary.verdict.validity != "valid":
        found.append(f"the run is {run.summary.verdict.validity}: {'; '.join(run.summary.verdict.reasons)}")
    found += [
        f"{each.name} was full: a task may take more of it than measured"
        for each in resources
        if each.utilisation is not None and each.utilisation.value >= FULL
    ]
    found += _if_others_grow(host, run.figures.window_s, int(run.figures.users))
    for probe, figure, what, ours in (
        (POSTFIX, "queued_per_s", "messages", rates.messages),
        (DOVECOT, "commands_per_s", "IMAP commands", rates.imap_commands),
    ):
        try:
            theirs = float(means(series.get(probe, {}), figure, run.figures.window_s).mean())
        except NotKnown:
            continue
        if theirs > OTHER_LOAD * float(ours.mean()):
            found.append(
                f"{probe} counted {theirs:,.1f} {what} per second, loadsim made {float(ours.mean()):,.1f}: the rest is"
                " other load, which is taken as the users'"
            )
    if data.cache_resident:
        found.append(
            "the mailboxes are cache-resident: they fit into the server's memory, so reads hardly need the disk, and it"
            " was tested by writes only"
        )
    return found


def _if_others_grow(host: Series, window_s: Window, users: int) -> list[str]:
    """Return a doubt: the users that fill the processor if the work of others grows with them."""
    try:
        used, others, cores = (
            float(means(host, figure, window_s).mean()) for figure in ("server_cpu_cores", "others_cpu_cores", "cores")
        )
    except NotKnown:
        return []
    if others < NOTED_OTHERS * used:
        return []
    return [
        f"other programs, interrupts and the kernel's threads took {others:.2f} cores: if that grows with the users,"
        f" too, {users * cores / (used + others):,.0f} of them fill the processor"
    ]


def _not_covered(host: Series, resources: Sequence[Resource], window_s: Window) -> list[str]:
    """Return the resources without a figure."""
    found = [f"{each.name}: {each.why_not}" for each in resources if each.users is None]
    if not any(each.name.startswith("disk") for each in resources):
        found.append("disks: the probe sampled none")
    try:
        sent = float(means(host, "network_sent_bytes_per_s", window_s).mean()) / 1e6
        received = float(means(host, "network_received_bytes_per_s", window_s).mean()) / 1e6
        found.append(f"network: {sent:,.2f} MB/s sent and {received:,.2f} received; its speed is not known")
    except NotKnown:
        found.append("network: no figures")
    return [
        *found,
        "locks, limits of processes and connections, and single-threaded programs may be full before any resource",
        "a quota of a container for processor or disk",
    ]
