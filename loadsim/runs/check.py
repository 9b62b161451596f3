"""Check a scenario's server and monitors; the embedded server is started for the purpose."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.monitor.collector import Collector
from loadsim.monitor.monitor_log import read_monitor_log
from loadsim.monitor.server_banner import greetings
from loadsim.processes.event_loop import run
from loadsim.protocols.registry import check_drivers, check_protocols
from loadsim.provisioning.preflight import check_sources
from loadsim.provisioning.server_check import WAIT_S, check_server
from loadsim.provisioning.server_report import Observation, ServerReport
from loadsim.runs.server import server_under_test
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.file import LogFile
from loadsim.users.plugin_tasks import check_plugin_tasks


def check_scenario(
    scenario: Scenario,
    progress: Callable[[str], None],
    wait_s: float = WAIT_S,
    ended: Callable[[str, ServerReport], object] = lambda *_: None,
) -> tuple[str, Mapping[str, Any], ServerReport]:
    """Return the server's name, its greetings, and the report. If the check fails, `ended` gets the name and report.

    Raises `ConfigError` for bad input, a server that does not answer, and a refused log-on.
    """
    check_protocols(scenario)
    check_plugin_tasks(scenario)
    workload = Workload(scenario)
    check_sources(scenario)
    with (
        tempfile.TemporaryDirectory(prefix="loadsim-check-") as directory,
        server_under_test(scenario, Path(directory)) as (services, name),
    ):
        check_drivers(scenario, services)
        report = run(check_server(workload, services, progress, wait_s, partial(ended, name)))
        if scenario.monitors:
            progress("monitors")
            report = replace(report, monitors=run(_try_monitors(scenario.monitors, Path(directory))))
        return name, greetings(services), report


async def _try_monitors(monitors: Mapping[str, Sequence[str]], directory: Path) -> tuple[Observation, ...]:
    return tuple(await asyncio.gather(*(_try_monitor(name, words, directory) for name, words in monitors.items())))


async def _try_monitor(name: str, words: Sequence[str], directory: Path) -> Observation:
    collector = Collector(name, words, directory / f"{name}.tlog")
    collector.start()
    try:
        no_sample = await asyncio.wrap_future(collector.sampled)
    finally:
        collector.end()
        why = await asyncio.wrap_future(collector.ended)
    if no_sample is not None:
        return Observation(name, no_sample, finding(Code.MONITOR_WITHOUT_SAMPLES, name, why=no_sample))
    seen = _probe_lines(read_monitor_log(collector.path, name))
    return Observation(name, "; ".join([*seen, *([why] if why else [])]))


def _probe_lines(log: LogFile) -> Iterator[str]:
    stated = log.facts.probes or {}
    figures: dict[str, set[str]] = {probe: set() for probe in stated}
    for sample in log.health:
        if "probe" in sample:
            figures.setdefault(sample.probe, set()).update(sample.figures)
    for probe, names in figures.items():
        seen = f"{len(names)} figures" if names else "no sample yet"
        if probe in stated and (failures := stated[probe].failures):
            seen = f"{failures} of {stated[probe].samples + failures} samples failed: {stated[probe].last_failure}"
        yield f"{probe}: {seen}"
