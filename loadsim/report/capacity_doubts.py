"""The doubts about the answer of a capacity search, and what to do with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_confirmation import Level
from loadsim.analysis.capacity_search import FAILED, GENERATOR, PASSED, VOID
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
    if refused := [one for one in capacity.refused if one.percent is None]:
        numbers = ", ".join(f"{one.users:,}" for one in refused)
        with_last = f" (this is of {refused[-1].users:,})" if len(refused) > 1 else ""
        lines.append(f"{numbers} users cannot be measured: {printable(refused[-1].why)}{with_last}")
    if capacity.confirmed is False:
        lines += [
            f"Not confirmed: {_unconfirmed(capacity, level)}"
            for level in capacity.levels
            if level.result not in (PASSED, None) or level.percent in {one.percent for one in capacity.refused_levels}
        ]
    if capacity.terms.embedded:
        lines.append("The embedded server shares this machine: this measures no server.")
    runs = (*capacity.steps, *(one.step for one in capacity.confirming))
    return [*lines, *_of_runs([step for step in runs if step.result not in (GENERATOR, VOID)])]


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


def _unconfirmed(capacity: Capacity, level: Level) -> str:
    """Return what it means that a level did not confirm the capacity."""
    failed_users = capacity.found.high if capacity.found else None
    if level.users is None:
        return f"{level.percent} % are more than the {capacity.terms.settings.most:,} users that this search allows."
    users = f"{level.users:,} users"
    if why := next((one.why for one in capacity.refused_levels if one.percent == level.percent), ""):
        return f"{level.percent} % of the capacity, {users}, cannot be measured: {printable(why)}"
    if level.result == GENERATOR:
        return f"the load generator was too slow for {users}. Find out what else its machine did, and search again."
    if level.result != FAILED:
        return f"the runs with {users} do not decide: {_why_undecided(level)}."
    if level.percent <= 100:
        return (
            f"{users} must pass after the search, and did not. The server, its data or its machine changed: find out"
            " what, and search again."
        )
    if failed_users is not None and level.users >= failed_users:
        return (
            f"{users} must fail after the search, as {failed_users:,} users did in it, and passed. The server, its data"
            " or its machine changed: find out what, and search again."
        )
    return f"{users} are no worse than the capacity, so it may be higher. Search again with longer windows."


def _why_undecided(level: Level) -> str:
    """Return the reason of the last run that has one. A pass has none, and is undecided only above the capacity."""
    reasons = [step.reasons[0] for step in level.runs if step.reasons]
    return printable(reasons[-1]) if reasons else "they passed, and have no score to compare with that of the capacity"


def what_next(capacity: Capacity) -> str:
    """Return what to do with the answer."""
    found, settings = capacity.found, capacity.terms.settings
    assert found is not None
    if capacity.terms.embedded:
        return "search on a mail server of your own (loadsim new)."
    if capacity.confirmed is False:
        return "do not quote this number: it was not confirmed. The doubts say why."
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
    return "quote users, interval, day and scenario together. To raise the capacity, improve what the failures missed."


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
