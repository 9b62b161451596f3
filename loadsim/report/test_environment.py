"""Under which circumstances a run was made: what vendors' papers disclose, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.model.criteria import SCORED
from loadsim.model.scenario_sections import Limits
from loadsim.report.document import Column, Table
from loadsim.report.summary_text import clock, length, night_words

UNKNOWN = "not known to loadsim"

EMBEDDED_STORAGE = "the embedded server keeps mail in memory"


def disclosure(run: RecordedRun) -> dict[str, str]:
    """What to disclose of a run, by name; each name comes, whether or not it is known, so that runs can be compared."""
    return {name: value or UNKNOWN for name, value in [*_server(run), *_load(run), *_generator(run)]}


def _server(run: RecordedRun) -> Iterator[tuple[str, str]]:
    score, facts = run.score, _machine_facts(run)
    yield "Server", _words(score.get("server"))
    yield "IMAP greeting", _words(facts.get("imap_greeting"))
    yield "IMAP capabilities before log-on", _words(facts.get("imap_capabilities"))
    yield "IMAP server's identity", _words(facts.get("imap_identity"))
    yield "SMTP greeting", _words(facts.get("smtp_greeting"))
    yield "SMTP extensions before TLS and log-on", _words(facts.get("smtp_extensions"))
    yield "Storage and file system", EMBEDDED_STORAGE if score["embedded"] else _server_storage(run)
    here = {True: "the generator's machine", False: "another machine than the generator's"}
    yield "Server runs on", here.get(facts.get("server_here", "unknown"), "")


def _load(run: RecordedRun) -> Iterator[tuple[str, str]]:
    score, header = run.score, run.log.header
    begin_s, end_s = run.window_s
    yield "Users", f"{score['users']}, each with a session of his own"
    yield "Profiles", _words(_profiles(run) or header.get("profiles"))
    yield "Mode", str(score["mode"])
    yield "Day", _day(score)
    yield "Duration", _length(header.get("duration_s"))
    yield "Window", f"{clock(begin_s)} to {clock(end_s)} from the common start ({length(end_s - begin_s)})"
    yield "Client modules", ", ".join(run.modules)
    yield "Submission", _words(score.get("submission"))
    if not run.stress:
        yield "Weights", _pairs(header.get("weights") or {})
    yield "Criteria", ", ".join(_criteria(score["verdict"]["criteria"])) or "none"
    yield "Limits", _pairs({**Limits().in_header(), **(header.get("limits") or {})})
    yield "Scenario digest", _words(header.get("scenario_digest"))
    yield "Plan digest", _words(header.get("plan_digest"))
    yield "Start state digest", _words(header.get("start_state_digest"))


def _criteria(results: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Each criterion once: those of each scored task under their common name."""
    names = (SCORED + one["name"].rpartition(".")[2] if one["each"] else one["name"] for one in results)
    return dict.fromkeys(f"{name} {one['wanted']}" for name, one in zip(names, results, strict=True))


def _generator(run: RecordedRun) -> Iterator[tuple[str, str]]:
    score, header, facts = run.score, run.log.header, _machine_facts(run)
    yield "Software", _words(header.get("software"))
    yield "Libraries", _pairs(facts.get("libraries") or {})
    yield "Python", _words(facts.get("python"))
    yield "Event loop", _words(header.get("event_loop"))
    yield "Clients and engines", f"{score['clients']} and {score['engines']}"
    yield "Generator's machine", _words([machine["name"] for machine in score["machines"]])
    yield "Processor", _words(facts.get("processor"))
    yield "Cores", _words([machine["cores"] for machine in score["machines"] if machine["cores"]])
    memory_bytes = facts.get("memory_bytes")
    yield "Memory", f"{memory_bytes / 2**30:.1f} GiB" if memory_bytes else ""
    yield "Operating system", _words(facts.get("system"))
    yield "Run directory on", _file_system(facts["run_file_system"]) if facts.get("run_file_system") else ""
    yield "Cores kept apart", _apart(facts)


def _machine_facts(run: RecordedRun) -> Mapping[str, Any]:
    """What the log of the first machine that was watched says of it, and of the server as it was seen from there."""
    watched = [source for source in run.log.sources if not source.simulates]
    return watched[0].facts if watched else {}


def _profiles(run: RecordedRun) -> list[str]:
    """The groups of users, where the scenario is known."""
    groups = run.scenario.get("topology")
    if not isinstance(groups, list):
        return []
    return [f"{group.get('users')} {group.get('profile')}" for group in groups if isinstance(group, dict)]


def _day(score: Mapping[str, Any]) -> str:
    if score["mode"] == "stress":
        return "none: a closed loop, without pauses"
    day, pace = length(score["day_s"]) + night_words(score), score["compression"]
    if pace == 1:
        return f"{day}, not compressed"
    changed = f"compressed {pace:g}" if pace > 1 else f"stretched {1 / pace:g}"
    return f"{length(score['profile_day_s'])} in {day}, {changed} times"


def _apart(facts: Mapping[str, Any]) -> str:
    if "pinned" not in facts:
        return ""
    if not facts["pinned"]:
        return "no"
    return f"generator on {_words(facts.get('generator_cpus'))}, server on {_words(facts.get('server_cpus'))}"


def _server_storage(run: RecordedRun) -> str:
    """Where the server had files open when all users were logged on, as far as a machine of the run could see it."""
    return "; ".join(
        f"{_file_system(system)}, where {_words(system['open_by'])} had files open"
        for source in run.log.sources
        for system in source.facts.get("server_file_systems") or ()
    )


def _file_system(system: Mapping[str, Any]) -> str:
    disk = f" ({system['model']})" if system["model"] else ""
    return f"{system['type']} on {system['source']}{disk}, mounted at {system['mounted_at']} ({system['options']})"


def _length(length_s: object) -> str:
    return length(float(length_s)) if isinstance(length_s, int | float) else ""


def _words(value: object) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_figure(value)}" for name, value in values.items())


def _figure(value: object) -> str:
    return "off" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def disclosure_table(run: RecordedRun, notes: Mapping[str, str]) -> Table:
    """One row for each thing, and for each of the notes; a note replaces what has its name."""
    rows = tuple({**disclosure(run), **notes}.items())
    return Table("The circumstances of this run", (Column("What"), Column("As it was")), rows)


def disclosure_tables(runs: Sequence[RecordedRun], names: Sequence[str], notes: Mapping[str, str]) -> list[Table]:
    """What is the same in all of several runs, and in what they differ."""
    each = [{**disclosure(run), **notes} for run in runs]
    known = {name: [one.get(name, UNKNOWN) for one in each] for one in each for name in one}
    same = tuple((name, values[0]) for name, values in known.items() if len(set(values)) == 1)
    differing = tuple((name, *values) for name, values in known.items() if len(set(values)) > 1)
    tables = [Table("The same in all runs", (Column("What"), Column("As it was")), same)]
    if differing:
        columns = (Column("What"), *map(Column, names))
        tables.append(Table("Not the same in all runs", columns, differing))
    return tables


def scenario_table(scenario: Mapping[str, Any]) -> Table:
    """Every key of a scenario, with its path."""
    return Table("Every key, passwords masked", (Column("Key"), Column("Value")), tuple(_leaves(scenario)))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value):
            yield from _leaves(each, f"{path}.{number}")
    elif isinstance(value, Mapping | list) and not value:
        yield path, "none"
    else:
        yield path, "null" if value is None else _words(value)
