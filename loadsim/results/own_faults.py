"""Failures of the generator itself, over a whole run: each one makes the run invalid.

A task says so by its outcome. What is in no record, since it befell a user between tasks or the engine, engines tell
as facts of their logs.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from loadsim.results.records import GENERATOR, OUTCOME
from loadsim.results.timinglog import TimingLog

OUTSIDE_TASKS, USERS_GIVEN_UP = "own_faults", "users_given_up"
"""Facts of an engine: how many failures of its own are in no task record, by kind; how many users it gave up."""

MOST_KINDS = 3
"""A reason names so many kinds."""


def own_faults(log: TimingLog, client: str | None = None) -> list[str]:
    """Return the reasons for which the log's runs, or the part that a client machine made of them, are invalid."""
    sources = [source for source in log.sources if client in (None, source.client)]
    in_tasks, outside = _in_tasks(log, client), Counter[str]()
    for source in sources:
        outside.update({str(kind): int(times) for kind, times in (source.facts.get(OUTSIDE_TASKS) or {}).items()})
    given_up = sum(int(source.facts.get(USERS_GIVEN_UP) or 0) for source in sources)
    users = sum(source.users for source in sources)
    reasons = []
    if in_tasks:
        reasons.append(f"the generator itself failed in {_count(in_tasks.total(), 'task')}: {_kinds(in_tasks)}")
    if outside:
        reasons.append(
            f"the generator itself failed {_count(outside.total(), 'time')} between tasks: {_kinds(outside)}"
        )
    if given_up:
        reasons.append(f"the generator gave up {given_up} of {users} users after an internal error")
    return reasons


def _in_tasks(log: TimingLog, client: str | None) -> Counter[str]:
    """Count the tasks in which the generator failed, by kind."""
    number = log.strings.index(client) if client in log.strings else None
    times = np.zeros(len(log.strings), np.int64)
    for tasks in log.pieces("tasks"):
        failed = tasks["outcome"] == OUTCOME[GENERATOR]
        if number is not None:
            failed &= tasks["client"] == number
        if failed.any():
            times += np.bincount(tasks["error"][failed], minlength=len(times))
    return Counter({log.strings[error]: int(times[error]) for error in np.flatnonzero(times)})


def _kinds(times: Counter[str]) -> str:
    """Name the most frequent kinds, and how often each came where there are several."""
    if len(times) == 1:
        return next(iter(times))
    named = [f"{kind} ({often})" for kind, often in times.most_common(MOST_KINDS)]
    more = [_count(len(times) - MOST_KINDS, "more kind")] if len(times) > MOST_KINDS else []
    return ", ".join(named + more)


def _count(many: int, what: str) -> str:
    return f"{many} {what}" + ("" if many == 1 else "s")
