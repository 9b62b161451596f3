"""Sizing: the number of users at which each of a server's resources would be full, from one measured run.

The server's figures come from the `host` probe on its machine, its own counts from the `postfix` probe. A misleading
figure is left out, with the reason.
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
from loadsim.size.mailbox import MailboxDay, mailbox_day
from loadsim.size.resources import Demand, SizedResource, demands, left_to_server, resources_of
from loadsim.size.server_blocks import Rates, Series, host_of, hosts_of, means, rates_of
from loadsim.size.utilisation import NotKnown

OTHER_LOAD = 1.1
"""A server has other load if it counts this many times the mail that loadsim made."""

FULL = 0.95
"""From this utilisation on, a resource was full, and tasks may demand more than was measured."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The sizing of a server from one run; rates are per second of the window.

    `missed` has the findings that kept the run from passing with its own users. `server_cores` has the numbers of the
    server's and the machine's cores; None if the server may use all. `mailbox` is None without mail.
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
    mailbox: MailboxDay | None
    missed: Sequence[Finding]
    doubts: Sequence[Finding]
    not_covered: Sequence[Finding]

    @property
    def first(self) -> SizedResource | None:
        """The resource that the fewest users would fill.

        None if a resource without a number may come first, or if the run missed its criteria, as something else is
        slow.
        """
        if self.missed:
            return None
        known = [(resource.users.value, resource) for resource in self.resources if resource.users is not None]
        if not known:
            return None
        users, first = min(known, key=lambda pair: pair[0])
        return None if any(resource.may_be_full_before(users) for resource in self.resources) else first

    @property
    def next_step(self) -> str:
        return next_step((*self.missed, *self.doubts, *(() if self.first else self.not_covered)))

    @property
    def exit_status(self) -> int:
        """0, or 4 if it is unknown which resource is full first."""
        return 0 if self.first is not None else 4


def size(run: RecordedRun) -> Sizing:
    """Size a run's server.

    Raises `RunInvalid` for an invalid run, and `ConfigError` for logs from which no server can be sized.
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
        demands=demands(host, rates, users, window_s),
        mailbox=mailbox_day(rates, users, figures.day),
        missed=() if verdict.passed else (*verdict.defects, *verdict.missed),
        doubts=_doubts(run, series, rates, resources),
        not_covered=[
            *_not_covered(host, resources, window_s),
            *(finding(Code.MACHINE_WITHOUT_SERVER, other) for other in hosts_of(series) if other != probe),
        ],
    )


def _check(run: RecordedRun) -> None:
    """Raise unless this is a canonical, valid run with users."""
    figures, verdict, expected = run.figures, run.summary.verdict, f"size: {run.place}: expected"
    if figures.mode == STRESS:
        raise ConfigError(f"{expected} a canonical run, found a stress run: its users do as much as the server takes")
    if not figures.users:
        raise ConfigError(f"{expected} users, found none")
    if verdict.validity == "invalid":
        why = "; ".join(finding.text for finding in verdict.defects)
        raise RunInvalid(f"size: {run.place}: the run is invalid, so it cannot size a server: {why}")


def _doubts(
    run: RecordedRun, series: Mapping[str, Series], rates: Rates, resources: Sequence[SizedResource]
) -> list[Finding]:
    """Return the reasons why the figures may be wrong for this run."""
    doubts = [finding(Code.EMBEDDED)] if run.figures.embedded else []
    doubts += run.summary.verdict.defects
    doubts += [
        finding(Code.RESOURCE_FULL, resource.name)
        for resource in resources
        if resource.utilisation is not None and resource.utilisation.value >= FULL
    ]
    return [*doubts, *_other_load(series, rates, run.figures.window_s)]


def _other_load(series: Mapping[str, Series], rates: Rates, window_s: Window) -> list[Finding]:
    """Return a doubt for each Postfix that received more messages than loadsim sent."""
    doubts, ours = [], float(rates.messages.mean())
    for probe in series:
        if kind_of(probe) != "postfix":
            continue
        try:
            theirs = float(means(series[probe], "queued_per_s", window_s).mean())
        except NotKnown:
            continue
        if theirs > OTHER_LOAD * ours:
            doubts.append(finding(Code.OTHER_LOAD, probe, counted=round(theirs, 1), made=round(ours, 1)))
    return doubts


def _not_covered(host: Series, resources: Sequence[SizedResource], window_s: Window) -> list[Finding]:
    reasons = [resource.why_not for resource in resources if resource.why_not is not None]
    sampled = {resource.name.partition(" ")[0] for resource in resources}
    if "disk" not in sampled:
        reasons.append(finding(Code.NO_DISKS, "disks"))
    if "network" not in sampled:
        reasons.append(_network_without_speed(host, window_s))
    return reasons


def _network_without_speed(host: Series, window_s: Window) -> Finding:
    try:
        sent, received = (
            round(float(means(host, f"network_{way}_bytes_per_s", window_s).mean()) / 1e6, 2)
            for way in ("sent", "received")
        )
    except NotKnown:
        return finding(Code.NO_NETWORK, "network")
    return finding(Code.NETWORK_SPEED_UNKNOWN, "network", sent=sent, received=received)
