"""A run's test environment: the facts that vendors disclose in their papers, as far as known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.findings.formats import length
from loadsim.report.answer_facts import day_words, window_words
from loadsim.report.document import Column, Table
from loadsim.timinglog.facts import FileSystem, LogFacts

UNKNOWN = "not known to loadsim"


def disclosure(run: RecordedRun) -> dict[str, str]:
    """Return a run's disclosed facts by name, including unknown ones, so that runs can be compared."""
    return {name: value or UNKNOWN for name, value in [*_server(run), *_load(run), *_generator(run)]}


def _server(run: RecordedRun) -> Iterator[tuple[str, str | None]]:
    figures, facts = run.figures, _machine_facts(run)
    yield "Server", figures.server
    if figures.submission is not None:  # otherwise users contact neither IMAP nor SMTP
        yield "IMAP greeting", facts.imap_greeting
        yield "SMTP greeting", facts.smtp_greeting
    here = {None: "", True: "the generator's machine", False: "another machine than the generator's"}
    yield "Server runs on", here[facts.server_here]


def _load(run: RecordedRun) -> Iterator[tuple[str, str | None]]:
    figures, header = run.figures, run.log.header
    yield "Users", f"{figures.users:,}, each with their own session"
    yield "Profiles", _words(_profiles(run) or header.profiles)
    yield "Mode", figures.mode
    yield "Day", "none: a closed loop, without pauses" if figures.stress else day_words(figures)
    yield "Duration", length(header.duration_s) if header.duration_s else None
    yield "Window", window_words(figures)
    yield "Drivers", ", ".join(run.figures.by_protocol)
    if figures.submission is not None:
        yield "Submission", figures.submission
    if header.programs:
        yield "Mail programs", header.programs
    if header.calendars:
        yield "Calendars", header.calendars
    if header.plugins:
        yield "Plug-ins", ", ".join(f"{name} of {package}" for name, package in sorted(header.plugins.items()))
    methods = sorted({used for source in run.log.sources for used in source.facts.log_on_methods or ()})
    if methods:
        yield "Log-on", ", ".join(methods)
    yield "Scenario digest", header.scenario_digest
    yield "Plan digest", header.plan_digest
    yield "Start state digest", header.start_state_digest


def _generator(run: RecordedRun) -> Iterator[tuple[str, str | None]]:
    figures, header, facts = run.figures, run.log.header, _machine_facts(run)
    yield "Software", header.software
    yield "Libraries", ", ".join(f"{name} {version}" for name, version in (facts.libraries or {}).items())
    yield "Python", facts.python
    yield "Event loop", header.event_loop
    yield "Acknowledgements", figures.acknowledgements
    yield "Clients and engines", f"{figures.clients} and {figures.engines}"
    yield "Generator's machine", _words([machine.name for machine in figures.machines])
    yield "Processor", facts.processor
    yield "Cores", _words([machine.cores for machine in figures.machines if machine.cores])
    memory_bytes = facts.memory_bytes
    yield "Memory", f"{memory_bytes / 2**30:.1f} GiB" if memory_bytes else ""
    yield "Operating system", facts.system
    yield "Run directory on", file_system(facts.run_file_system) if facts.run_file_system else ""
    yield "Server and generator on separate cores", _apart(facts)


def _machine_facts(run: RecordedRun) -> LogFacts:
    """Return the facts in the first machine's log, about the machine and about the server as seen from it."""
    watched = [source for source in run.log.sources if source.observes]
    return watched[0].facts if watched else LogFacts()


def _profiles(run: RecordedRun) -> list[str]:
    groups = run.scenario.get("topology")
    if not isinstance(groups, list):
        return []
    return [f"{group.get('users')} {group.get('profile')}" for group in groups if isinstance(group, dict)]


def _apart(facts: LogFacts) -> str:
    if facts.pinned is None:
        return ""
    if not facts.pinned:
        return "no"
    return f"generator on {_words(facts.generator_cpus)}, server on {_words(facts.server_cpus)}"


def file_system(system: FileSystem) -> str:
    """Describe a file system."""
    disk = f" ({system.model})" if system.model else ""
    return f"{system.type} on {system.source}{disk}, mounted at {system.mounted_at} ({system.options})"


def _words(value: object) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def disclosure_table(run: RecordedRun) -> Table:
    rows = tuple(disclosure(run).items())
    return Table("The circumstances of this run", (Column("Fact"), Column("Value")), rows)


def scenario_table(scenario: Mapping[str, Any]) -> Table:
    return Table(
        "The scenario: every key, passwords masked", (Column("Key"), Column("Value")), tuple(scenario_keys(scenario))
    )


def scenario_keys(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key's path and value in a scenario, or in the part below `path`."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from scenario_keys(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value):
            yield from scenario_keys(each, f"{path}.{number}")
    elif isinstance(value, Mapping | list) and not value:
        yield path, "none"
    else:
        yield path, "null" if value is None else _words(value)
