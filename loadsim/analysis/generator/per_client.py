"""The clients of a run one by one: users, start, clock, and the generator's health.

A run is only as good as its worst client, which figures of all clients together may hide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from loadsim.analysis.clocks.correction import controller_clock
from loadsim.analysis.completeness import lost_by_source
from loadsim.analysis.generator.failures import OwnFailures
from loadsim.analysis.generator.health import EngineHealth
from loadsim.analysis.generator.lateness import LateTasks
from loadsim.analysis.generator.limits import exceeded
from loadsim.model.figures import ClientFigures
from loadsim.model.terms import STRESS
from loadsim.scenario.limits import Limits
from loadsim.timinglog.reader import TimingLog


def by_number(client: str) -> tuple[list[str | int], str]:
    """Return the sort key of a client's name: load2 comes before load10."""
    return [int(piece) if at % 2 else piece for at, piece in enumerate(re.split("([0-9]+)", client))], client


def client_figures(
    log: TimingLog,
    engines: Sequence[EngineHealth],
    late_tasks: LateTasks,
    own_failures: OwnFailures,
    limits: Limits,
    most_lag_ms: float | None,
) -> list[ClientFigures]:
    """Return the figures of each client, in the order of names; empty unless the log has several clients.

    `engines` has the health of the log's engines, in its order; `limits` are the run's (`verdict.limits_of`).
    `most_lag_ms` is the limit on an engine's lag.
    """
    generator_counts = not (log.header.embedded or log.header.mode == STRESS)
    makers = [source for source in log.sources if source.simulates]
    assigned = {one.client: one.users for one in log.header.machines}
    names = sorted({source.client for source in makers} | assigned.keys(), key=by_number)
    if len(names) < 2:
        return []
    lost = list(zip(log.sources, lost_by_source(log), strict=True))
    clocks = controller_clock(log).machines
    late_ms = late_tasks.of_clients_ms()
    health = list(zip(makers, engines, strict=True))
    failing = own_failures.clients()
    figures = []
    for name in names:
        # 1. Its users: those assigned to it, or those of its logs if there are more.
        lost_by_engine = [(source, users) for source, users in lost if source.client == name and source.simulates]
        logged = sum(source.users for source, _ in lost_by_engine)
        users = max(assigned.get(name, logged), logged)
        lost_users = users - logged + sum(of_engine for _, of_engine in lost_by_engine)
        # 2. Its start and its clock.
        own_engines = [engine for source, engine in health if source.client == name]
        start = clocks[name].there(0) if name in clocks else None
        began_late_ms = _most([engine.began_late_ms for engine in own_engines]) or 0.0
        # 3. Its validity.
        late = generator_counts and bool(exceeded(late_ms.get(name), own_engines, limits.generator, most_lag_ms))
        too_many = lost_users and lost_users / users > limits.lost_users
        figures.append(
            ClientFigures(
                client=name,
                users=users,
                engines=len(lost_by_engine),
                lost_users=lost_users,
                start_late_ms=round(start.ahead_ns / 1e6 + began_late_ms, 3) if start else None,
                start_error_ms=round(start.error_ns / 1e6, 3) if start else None,
                lag_p99_ms=_most([engine.lag_p99_ms for engine in own_engines]),
                cpu_share=_most([engine.cpu_share for engine in own_engines]),
                lateness_p95_ms=late_ms.get(name),
                validity="invalid" if late or name in failing or too_many else "degraded" if lost_users else "valid",
            )
        )
    return figures


def _most(figures: Sequence[float | None]) -> float | None:
    return max((figure for figure in figures if figure is not None), default=None)
