"""Sizing: the number of users at which each resource of a server would be full, from one measured run.

The figures of the server come from the probe `host` on its machine, its own counts from `postfix`. A figure that
would mislead is left out with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadsim.analysis.probes.resources import kind_of
from loadsim.analysis.probes.statistics import samples_of
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.errors import ConfigError, RunInvalid
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.next_step import next_step
from loadsim.model.terms import STRESS, Window
from loadsim.size.resources import Demand, SizedResource, demands, left_to_server, resources_of
from loadsim.size.server_blocks import Rates, Series, host_of, hosts_of, means, rates_of
from loadsim.size.utilisation import NotKnown

OTHER_LOAD = 1.1
"""A server that counts this many times as much mail as loadsim made has other load, too."""

FULL = 0.95
"""From this utilisation on, a resource was full: the demand of a task may be larger than measured."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The sizing of a server by one run; rates are per second of the window.

    `missed` has the findings by which the run did not pass with its own users. `server_cores` has the
    server's cores and those of the machine; None if the server may use all.
    """

    run: str
    validity: str
    embedded: bool
    users: int
    window_s: Window
    tasks_per_s: float
    messages_per_s: float
    server_cores: tuple[float, float] | None
    resources: Sequence[SizedResource]
    demands: Sequence[Demand]
    missed: Sequence[Finding]
    doubts: Sequence[Finding]
    not_covered: Sequence[Finding]

    @property
    def first(self) -> SizedResource | None:
        """The resource that fewest users fill.

        None if it may be another, which has no number, or if the run missed its criteria: then something else is slow.
        """
        if self.missed:
            return None
        known = [(each.users.value, each) for each in self.resources if each.users is not None]
        if not known:
            return None
        users, first = min(known, key=lambda each: each[0])
        return None if any(each.may_be_full_before(users) for each in self.resources) else first

    @property
    def next_step(self) -> str:
        return next_step((*self.missed, *self.doubts, *(() if self.first else self.not_covered)))

    @property
    def exit_status(self) -> int:
        """0, or 4 if it is not known which resource is full first."""
        return 0 if self.first is not None else 4


def size(run: RecordedRun) -> Sizing:
    """Return the sizing of a run's server.

    Raises `RunInvalid` for an invalid run, and `ConfigError` for logs that no server can be sized by.
    """
    _check(run)
    log, figures, verdict = run.log, run.figures, run.summary.verdict
    window_s, users = figures.window_s, int(figures.users)
    series = samples_of(log)
    probe = host_of(run.place, series)
    host = series[probe]
    rates = rates_of(log, window_s)
    resources = resources_of(host, users, window_s)
    return Sizing(
        run=run.place,
        validity=verdict.validity,
        embedded=figures.embedded,
        users=users,
        window_s=window_s,
        tasks_per_s=float(rates.tasks.mean()),
        messages_per_s=float(rates.messages.mean()),
        server_cores=left_to_server(host, window_s),
        resources=resources,
        demands=demands(host, rates, window_s),
        missed=() if verdict.passed else (*verdict.defects, *verdict.missed),
        doubts=_doubts(run, series, rates, resources),
        not_covered=[
            *_not_covered(host, resources, window_s),
            *(finding(Code.MACHINE_WITHOUT_SERVER, other) for other in hosts_of(series) if other != probe),
        ],
    )


def _check(run: RecordedRun) -> None:
    """Raise unless this is one run with due tasks that may be believed."""
    figures, verdict, expected = run.figures, run.summary.verdict, f"size: {run.place}: expected"
    if figures.mode == STRESS:
        raise ConfigError(f"{expected} a canonical run, found a stress run: its users do as much as the server takes")
    if not figures.users:
        raise ConfigError(f"{expected} users, found none")
    if verdict.validity == "invalid":
        why = "; ".join(one.text for one in verdict.defects)
        raise RunInvalid(f"size: {run.place}: the run is invalid, and sizes no server: {why}")


def _doubts(
    run: RecordedRun, series: Mapping[str, Series], rates: Rates, resources: Sequence[SizedResource]
) -> list[Finding]:
    """Return what may make the figures wrong for this run."""
    found = [finding(Code.EMBEDDED)] if run.figures.embedded else []
    found += run.summary.verdict.defects
    found += [
        finding(Code.RESOURCE_FULL, each.name)
        for each in resources
        if each.utilisation is not None and each.utilisation.value >= FULL
    ]
    return [*found, *_other_load(series, rates, run.figures.window_s)]


def _other_load(series: Mapping[str, Series], rates: Rates, window_s: Window) -> list[Finding]:
    """Return a doubt for each Postfix that took in more messages than loadsim made."""
    found, ours = [], float(rates.messages.mean())
    for probe in series:
        if kind_of(probe) != "postfix":
            continue
        try:
            theirs = float(means(series[probe], "queued_per_s", window_s).mean())
        except NotKnown:
            continue
        if theirs > OTHER_LOAD * ours:
            found.append(finding(Code.OTHER_LOAD, probe, counted=round(theirs, 1), made=round(ours, 1)))
    return found


def _not_covered(host: Series, resources: Sequence[SizedResource], window_s: Window) -> list[Finding]:
    found = [each.why_not for each in resources if each.why_not is not None]
    sampled = {each.name.partition(" ")[0] for each in resources}
    if "disk" not in sampled:
        found.append(finding(Code.NO_DISKS, "disks"))
    if "network" not in sampled:
        found.append(_network_without_speed(host, window_s))
    return found


def _network_without_speed(host: Series, window_s: Window) -> Finding:
    try:
        sent, received = (
            round(float(means(host, f"network_{way}_bytes_per_s", window_s).mean()) / 1e6, 2)
            for way in ("sent", "received")
        )
    except NotKnown:
        return finding(Code.NO_NETWORK, "network")
    return finding(Code.NETWORK_SPEED_UNKNOWN, "network", sent=sent, received=received)
