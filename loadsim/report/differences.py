"""Differences between runs: server, settings, machines, versions, and keys of the scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report.document import Column, Table
from loadsim.report.test_environment import UNKNOWN, comparable_facts, scenario_keys

SCENARIO_KEY = "Scenario key "
"""Precedes a key of a scenario among the facts."""

NOT_SET = "not set"
"""The value of a key that a scenario lacks."""

NO_MORE = "nothing more"
"""The value of a list that has only what all lists have."""

OF_LISTS = "; of lists, the items that differ"
"""Ends the caption of a table of differences."""

MOST_VALUES = 3
"""The most different values of a set of runs in one cell."""

Facts = Mapping[str, Sequence[str]]
"""The values of each fact in all runs, in the order of the runs."""


def facts_of(runs: Sequence[RecordedRun], notes: Mapping[str, str]) -> Facts:
    """Return the disclosure of all runs, and the keys of their scenarios if all scenarios are known."""
    disclosed = [{**comparable_facts(run), **notes} for run in runs]
    found = {name: [one.get(name, UNKNOWN) for one in disclosed] for one in disclosed for name in one}
    if all(run.scenario for run in runs):
        keys = [dict(scenario_keys(run.scenario)) for run in runs]
        found |= {f"{SCENARIO_KEY}{key}": [one.get(key, NOT_SET) for one in keys] for one in keys for key in one}
    return found


def differing(facts: Facts) -> Facts:
    """Return the facts that are not the same in all runs."""
    return {name: values for name, values in facts.items() if len(set(values)) > 1}


def same_table(facts: Facts) -> Table:
    """Return the facts that are the same in all runs, without keys of scenarios."""
    rows = tuple(
        (name, values[0])
        for name, values in facts.items()
        if len(set(values)) == 1 and not name.startswith(SCENARIO_KEY)
    )
    return Table("The same in all runs", (Column("Fact"), Column("Value")), rows)


def differing_table(facts: Facts, names: Sequence[str]) -> Table:
    """Return a row for each value of each differing fact, with the names of its runs, which several may share."""
    rows = []
    for name, values in facts.items():
        for value, items in zip(dict.fromkeys(values), _differing_items(list(dict.fromkeys(values))), strict=True):
            of_value = dict.fromkeys(run for run, of_run in zip(names, values, strict=True) if of_run == value)
            rows.append((name, items, ", ".join(of_value)))
    return Table(f"Not the same in all runs{OF_LISTS}", (Column("Fact"), Column("Value"), Column("Runs")), tuple(rows))


def between(facts: Facts, base: int) -> list[tuple[str, str, str]]:
    """Return the facts that differ between the first `base` runs and the others, with their values on both sides."""
    found = []
    for name, values in facts.items():
        first, second = (list(dict.fromkeys(side)) for side in (values[:base], values[base:]))
        if set(first) != set(second):
            items = _differing_items([*first, *second])
            found.append((name, _cell(items[: len(first)]), _cell(items[len(first) :])))
    return found


def _differing_items(values: Sequence[str]) -> list[str]:
    """Return lists, such as capabilities, without the items that all have; other values as they are."""
    between_items = "; " if any("; " in value for value in values) else ", "
    lists = [value.split(between_items) for value in values]
    if max(map(len, lists)) == 1:
        return list(values)
    of_all = set[str].intersection(*map(set, lists))
    shown = [between_items.join(item for item in items if item not in of_all) or NO_MORE for items in lists]
    return shown if len(set(shown)) == len(set(values)) else list(values)  # lists may differ in their order only


def _cell(values: Sequence[str]) -> str:
    shown = " / ".join(values[:MOST_VALUES])
    return shown + (f" / {len(values) - MOST_VALUES} more" if len(values) > MOST_VALUES else "")
