"""The doubts about the answer of a capacity search, and what to do with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import GENERATOR, VOID
from loadsim.analysis.capacity_step import CONTENDED_SHARE, MeasuredStep
from loadsim.analysis.run_warnings import number_range, shared_warnings
from loadsim.errors import printable

NOTED_BY_OTHERS = 0.1
"""The part of the server's cores from which on the work of others is a doubt."""


def doubts(capacity: Capacity) -> list[str]:
    """Return what limits the meaning of the answer."""
    lines = []
    if capacity.found is not None and capacity.found.stopped_by == "noise":
        lines.append("Results contradict each other, or do not decide: longer windows give a shorter interval.")
    if capacity.found is not None and capacity.found.stopped_by == "order":
        lines.append(
            "Results depend on the order of the runs: the server drifts, or has good and bad hours. Equal results in a"
            " row are then no evidence."
        )
    elif (found := capacity.found) and (found.low or found.high) and not capacity.certain:
        lines.append("Chance may have decided: too few results agree at the ends of the search.")
    if refused := capacity.refused:
        numbers = ", ".join(f"{one.users:,}" for one in refused)
        with_last = f" (this is of {refused[-1].users:,})" if len(refused) > 1 else ""
        lines.append(f"{numbers} users cannot be measured: {printable(refused[-1].why)}{with_last}")
    if capacity.terms.embedded:
        lines.append("The embedded server shares this machine: this measures no server.")
    return [*lines, *_of_runs([step for step in capacity.steps if step.result not in (GENERATOR, VOID)])]


def _of_runs(steps: Sequence[MeasuredStep]) -> Iterator[str]:
    """Yield a sentence for work of others on the server's cores, and one for each kind of warning."""
    taken = [step.taken_share for step in steps if (step.taken_share or 0.0) > NOTED_BY_OTHERS]
    shares = [share for share in taken if share is not None]
    if shares:
        yield (
            f"In {_of_all(len(shares), steps)} others than the server (programs, the kernel, virtual machines) took"
            f" more than {100 * NOTED_BY_OTHERS:g} % of its cores"
            f" ({number_range([f'{100 * share:.0f}' for share in shares])} %): the server alone may take more users."
        )
    for one in shared_warnings([step.warnings for step in steps]):
        yield f"In {_of_all(len(one.runs), steps)}: {one.words}"


def _of_all(number: int, steps: Sequence[MeasuredStep]) -> str:
    return f"{number} of {len(steps)} runs"


def what_next(capacity: Capacity) -> str:
    """Return what to do with the answer."""
    found, settings = capacity.found, capacity.terms.settings
    assert found is not None
    if capacity.terms.embedded:
        return "search on a mail server of your own (loadsim new)."
    if found.stopped_by == "generator":
        apart = "" if capacity.terms.pin or capacity.terms.clients is not None else "--pin, "
        return f"take {apart}more cores, or another machine for the load: the server may take more."
    if capacity.contended:
        return f"do not take this number for the server's own: {_apart(capacity)}, and search again in a new directory."
    if found.stopped_by == "refused":
        return (
            "the doubts say what the other numbers need. Resume this search on a machine that has it, or search again"
            " with a scenario that has it."
        )
    if found.stopped_by == "limit":
        option = "larger --steps than" if settings.steps else "--most above"
        return f"create more accounts, and search again with {option} {settings.most:,}."
    if found.stopped_by == "noise":
        return "search again with longer windows, or accept the wider interval."
    if found.stopped_by == "order":
        return "find out what changes from run to run, such as a leak, a fuller disk or other guests, and search again."
    if found.low is None:
        return "read the reports of the steps: even the smallest number misses criteria. Or search from fewer users."
    if not capacity.certain:
        return "resume this search without --quick before you quote this number."
    levels = ", ".join(str(round(found.low * percent / 100)) for percent in (80, 100, 120))
    return (
        "quote users, interval, day and scenario together. To raise the capacity, improve what the failures missed. A"
        f" suite with users: [{levels}] on another day confirms it."
    )


def _apart(capacity: Capacity) -> str:
    """Return what keeps the server's cores for the server, by what shared them in runs of the search."""
    steps = [step for step in capacity.steps if step.contended]
    ways = []
    if any(step.on_generators_cores for step in steps):
        one_machine = capacity.terms.clients is None and not capacity.terms.pin
        ways.append("keep the load apart (--pin)" if one_machine else "make the load on another machine")
    if any(step.stolen for step in steps):
        ways.append("find a host whose other virtual machines are idle")
    if not ways or any((step.taken_share or 0.0) > CONTENDED_SHARE for step in steps):
        ways.append("end other programs on the server's machine")
    return " and ".join(ways)
