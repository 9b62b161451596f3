"""Failures of the generator itself, over a whole run: each one makes the run invalid.

A task in which the generator failed has the outcome `generator`. Engines count their failures outside of tasks in
facts of their logs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from loadsim.errors import SHORTAGES
from loadsim.model.records import GENERATOR
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import OUTCOME

OUTSIDE_TASKS, USERS_GIVEN_UP = "own_faults", "users_given_up"
"""Facts of an engine: the number of its own failures outside of tasks, by kind; the number of users it gave up."""

MOST_KINDS = 3
"""The most kinds that a reason names."""


@dataclass(frozen=True, slots=True)
class OwnFailure:
    """A reason for which runs are invalid. `shortage`: all it counts are lacks of files, ports or memory."""

    reason: str
    shortage: bool


def generator_failures(log: TimingLog) -> list[OwnFailure]:
    """Return the failures of the generator itself in the runs of a log."""
    in_tasks, outside = Counter[str](), Counter[str]()
    for (_, kind), times in _in_tasks(log).items():
        in_tasks[kind] += times
    for source in log.sources:
        outside.update({str(kind): int(times) for kind, times in (source.facts.get(OUTSIDE_TASKS) or {}).items()})
    given_up = sum(int(source.facts.get(USERS_GIVEN_UP) or 0) for source in log.sources)
    users = sum(source.users for source in log.sources)
    found = []
    if in_tasks:
        found.append(_failure(in_tasks, f"in {_count(in_tasks.total(), 'task')}"))
    if outside:
        found.append(_failure(outside, f"{_count(outside.total(), 'time')} between tasks"))
    if given_up:
        reason = f"the generator gave up {given_up:,} of {users:,} users after an internal error"
        found.append(OwnFailure(reason, shortage=False))
    return found


def _failure(kinds: Counter[str], where: str) -> OwnFailure:
    reason = f"the generator itself failed {where}: {_kinds(kinds)}"
    return OwnFailure(reason, shortage=kinds.keys() <= {*SHORTAGES.values()})


def failing_clients(log: TimingLog) -> set[str]:
    """Return the names of the client machines with failures of their own."""
    reported = {source.client for source in log.sources if source.facts.keys() & {OUTSIDE_TASKS, USERS_GIVEN_UP}}
    return reported | {client for client, _ in _in_tasks(log)}


def _in_tasks(log: TimingLog) -> Counter[tuple[str, str]]:
    """Count the tasks in which the generator failed, by client machine and kind."""
    times = Counter[tuple[str, str]]()
    for tasks in log.pieces("tasks"):
        failed = tasks["outcome"] == OUTCOME[GENERATOR]
        if failed.any():
            makers, errors = tasks["client"][failed].tolist(), tasks["error"][failed].tolist()
            times.update(
                (log.strings[client], log.strings[error]) for client, error in zip(makers, errors, strict=True)
            )
    return times


def _kinds(times: Counter[str]) -> str:
    """Return the most frequent kinds; if there are several, with their counts."""
    if len(times) == 1:
        return next(iter(times))
    by_number = sorted(times.items(), key=lambda one: (-one[1], one[0]))
    named = [f"{kind} ({often})" for kind, often in by_number[:MOST_KINDS]]
    more = [_count(len(times) - MOST_KINDS, "more kind")] if len(times) > MOST_KINDS else []
    return ", ".join(named + more)


def _count(many: int, what: str) -> str:
    return f"{many} {what}" + ("" if many == 1 else "s")
