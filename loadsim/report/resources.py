"""The resources nearest to saturation: a line in the answer, and a table in the report."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.analysis.probes.resources import INSTEAD, UNMEASURED
from loadsim.errors import printable
from loadsim.model.figures import Resource
from loadsim.report.document import Table, table_of

NOT_SAMPLED = "not sampled; --set 'probes.host={}' samples the server"
"""Replaces the resources if a probe could have sampled the server's machine."""

MOST_NAMED = 3
"""The most resources that a machine's line names."""

MUCH_BY_OTHERS = 0.05
"""Other programs' share of the server's cores is mentioned if it is at least this."""

NO_PROOF = (
    "The order is by means over the window; other programs on the machine count, too. A limit in the server's"
    " configuration, a lock or one of its threads may still come first."
)


def resource_facts(resources: Sequence[Resource] | None) -> list[tuple[str, str]]:
    """Return a name and words for each machine: the resources that were nearest to saturation.

    The words also name resources that were not measured over the whole window, as they may have been nearer.
    """
    facts = []
    for machine in dict.fromkeys(map(_machine, resources or ())):
        own = [one for one in resources or () if _machine(one) == machine]
        known = [one for one in own if one.mean is not None]
        named = [f"{_name(one)} {_percent(one.mean)} ({_more(one)})" for one in known[:MOST_NAMED]]
        unknown = "".join(f"; {one.name} not measured over the whole window" for one in own if one.mean is None)
        if named:
            facts.append((f"Nearest to full on {machine}", f"{', '.join(named)}{unknown}"))
    return facts


def _name(resource: Resource) -> str:
    """Return the name, which tells the server's cores from all cores."""
    return UNMEASURED.get(resource.figure, resource.name) if resource.figure in INSTEAD.values() else resource.name


def _more(resource: Resource) -> str:
    """Return the 95th percentile and, if large, the processor share that other programs took."""
    p95 = f"95th {_percent(resource.p95)}"
    others = resource.others_share or 0.0
    return f"{p95}; others than the server took {_percent(others)}" if others >= MUCH_BY_OTHERS else p95


def resource_table(resources: Sequence[Resource], with_figures: bool = True) -> Table:
    """Return the table of the resources; `with_figures` adds their names in criteria and `score.json`."""
    return table_of(
        "Resources, the nearest to saturation first",
        resources,
        ("Resource", None, _name),
        ("Machine", None, _machine),
        ("Mean of full (%)", 1, lambda one: None if one.mean is None else 100 * one.mean),
        ("95th percentile (%)", 1, lambda one: None if one.p95 is None else 100 * one.p95),
        ("By others than the server (%)", 1, lambda one: None if one.others_share is None else 100 * one.others_share),
        *([("Figure", None, lambda one: printable(f"{one.probe}: {one.figure}"))] if with_figures else []),
    )


def _machine(resource: Resource) -> str:
    name = resource.machine or "an unknown machine"
    return {True: f"{name}, where the server is", False: f"{name}, where the server is not", None: name}[
        resource.server_here
    ]


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"
