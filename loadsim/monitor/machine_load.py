"""The load of one machine: its engines, and the machine's log with samples of the machine and of its probes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from loadsim.engine.clock import MonotonicClock
from loadsim.engine.coordinator import Coordinator
from loadsim.engine.run_log import RunLog
from loadsim.monitor.host import watched_machine
from loadsim.monitor.probes import OnFigures, OnSample, OpenedProbe, sampled
from loadsim.processes.event_loop import calls_on_signal
from loadsim.provisioning.hold import Hold
from loadsim.timinglog.facts import ACCOUNTS_TAKEN, EarlyEnd


async def run_engines(
    coordinator: Coordinator,
    log: RunLog,
    probes: tuple[OpenedProbe, ...],
    facts: Mapping[str, Any],
    hold: Hold,
    settle: Callable[[], Awaitable[None]],
    *,
    more: Callable[[], Mapping[str, Any]] = dict,
    on_figures: OnFigures = lambda probe, figures: None,
    on_sample: OnSample = lambda probe, figures: None,
) -> None:
    """Run the engines of a coordinator until they end; a signal stops them. Write the machine's log meanwhile.

    `facts` and `more` are those of `watched_machine`, `on_figures` and `on_sample` those of `sampled`. At the end,
    `settle` renews or releases the hold on the accounts, which also shows if it was lost.
    """
    clock = MonotonicClock()
    with calls_on_signal(coordinator.stop), sampled(probes, log, clock, on_figures=on_figures, on_sample=on_sample):
        async with watched_machine(log, clock, lambda: coordinator.start_ns, facts, more):
            hold.used = True
            await coordinator.run()
        await settle()
    end = EarlyEnd(ACCOUNTS_TAKEN, hold.lost) if hold.lost else coordinator.early_end
    if end is not None:
        log.facts(end.facts)
