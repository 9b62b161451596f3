"""Differences between runs: server, settings, machines, versions, and keys of the scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report.disclosure import UNKNOWN, disclosure, scenario_keys
from loadsim.report.document import Block, Column, Table

SCENARIO_KEY = "Scenario key "
"""The prefix of scenario keys among the facts."""

SAME = "The runs have the same server, settings, machines and versions, as far as loadsim knows."

Facts = Mapping[str, Sequence[str]]
"""The values of each fact, in the order of the runs."""


def facts_of(runs: Sequence[RecordedRun]) -> Facts:
    """Return the disclosures of all runs, with the keys of their scenarios if all scenarios are known."""
    disclosed = [disclosure(run) for run in runs]
    facts = {name: [of_run.get(name, UNKNOWN) for of_run in disclosed] for own in disclosed for name in own}
    if all(run.scenario for run in runs):
        keys = [dict(scenario_keys(run.scenario)) for run in runs]
        facts |= {
            f"{SCENARIO_KEY}{key}": [of_run.get(key, "not set") for of_run in keys] for own in keys for key in own
        }
    return facts


def same_table(facts: Facts) -> Table:
    """Return the facts that are the same in all runs, except scenario keys."""
    rows = tuple(
        (name, values[0])
        for name, values in facts.items()
        if len(set(values)) == 1 and not name.startswith(SCENARIO_KEY)
    )
    return Table("The same in all runs", (Column("Fact"), Column("Value")), rows)


def what_differs(facts: Facts, groups: Sequence[str], each: str = "Run") -> Block:
    """Return the facts whose values differ between groups of runs, and the groups of each value; else `SAME`.

    `groups` has the group of each run; `each` is the word for a group.
    """
    rows = []
    for name, values in facts.items():
        of_values: dict[str, dict[str, None]] = {}
        for value, group in zip(values, groups, strict=True):
            of_values.setdefault(value, {})[group] = None
        if any(len(of_value) < len(set(groups)) for of_value in of_values.values()):
            for items, of_value in zip(_differing_items([*of_values]), of_values.values(), strict=True):
                rows.append((name, ", ".join(of_value), items))
    columns = (Column("Fact"), Column(each), Column("Value (of lists, the items that differ)"))
    return Table("What differs, as far as loadsim knows", columns, tuple(rows)) if rows else SAME


def _differing_items(values: Sequence[str]) -> list[str]:
    """Return lists, such as capabilities, without the items they share, and other values unchanged."""
    between_items = "; " if any("; " in value for value in values) else ", "
    lists = [value.split(between_items) for value in values]
    if max(map(len, lists)) == 1:
        return list(values)
    of_all = set[str].intersection(*map(set, lists))
    shown = [between_items.join(item for item in items if item not in of_all) or "nothing more" for items in lists]
    return shown if len(set(shown)) == len(set(values)) else list(values)  # if lists differ only in order
