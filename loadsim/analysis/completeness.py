"""Completeness of logs: the users of each run, the users in its logs, and the lost users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from loadsim.analysis.generator_failures import USERS_GIVEN_UP
from loadsim.model.partition import Slice
from loadsim.model.records import NO_SESSION, SPANS
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import Source, TimingLog
from loadsim.timinglog.records import MAKERS, NEVER, OUTCOME, Records


def users_had(log: TimingLog, part: Slice | None = None) -> Mapping[str, int]:
    """Return the number of users of each run, or of a slice of it, by its scenario; at least those of its logs.

    Logs that were merged by force may have several scenarios. An assignment of an engine has the users of its run.
    """
    present = users_present(log)
    assigned: dict[str, int] = {}
    for source in log.sources:
        if source.assignment is not None and source.assignment.step != 1:
            assigned[source.run] = max(source.assignment.users, assigned.get(source.run, 0))
    stated = int(log.header.get("users") or 0)
    had = {run: max(assigned.get(run, stated), users) for run, users in present.items()}
    return {run: len(part.assignment(users)) for run, users in had.items()} if part else had


def users_present(log: TimingLog) -> Mapping[str, int]:
    """Return the number of users in the logs of each run."""
    present = Counter[str]()
    for source in log.sources:
        present[source.run] += source.users
    return present


def runs_outside(log: TimingLog, window_s: Window) -> list[str]:
    """Return the runs without a task in the window: of several runs, one may begin long after another."""
    without_window = np.isin(np.array(log.strings), (*WITHOUT_WINDOW, *SPANS))
    inside = np.zeros(len(log.strings), np.bool_)
    for tasks in log.pieces("tasks"):
        inside[tasks["run"][in_window(tasks["scheduled_us"], window_s) & ~without_window[tasks["task"]]]] = True
    found = {log.strings[run] for run in np.flatnonzero(inside)}
    return sorted({source.run for source in log.sources if source.simulates} - found)


def lost_users(log: TimingLog, part: Slice | None = None) -> int:
    """Return the number of users of the runs, or of a slice, that the generator lost.

    These are the users of engines whose log is missing or has no end, and users that an engine gave up. The server can
    also leave users without a session: see `users_without_session`.
    """
    return sum(users_had(log, part).values()) - sum(users_present(log).values()) + sum(lost_by_source(log))


def lost_by_source(log: TimingLog) -> list[int]:
    """Return the number of lost users of each of the log's sources, in their order."""
    return [int(source.facts.get(USERS_GIVEN_UP) or 0) if source.ended else source.users for source in log.sources]


def reported_sum(log: TimingLog, fact: str) -> int | None:
    """Return the sum of a fact that engines report at their end; None if one is missing."""
    engines = [source.facts for source in log.sources if source.simulates]
    return sum(int(facts[fact]) for facts in engines) if all(fact in facts for facts in engines) else None


def reported_at_least(log: TimingLog, fact: str) -> int:
    """Return the sum of a fact over the engines that survived to report it."""
    return sum(int(source.facts.get(fact, 0)) for source in log.sources if source.simulates)


def users_without_session(log: TimingLog) -> int:
    """Return how many users of surviving engines had no session at the end.

    It is the fact `lost_users` of each engine, or the number of its users that never logged on, if that is larger.
    """
    logons = _logons(log)
    return sum(
        max(int(source.facts.get("lost_users", 0)), _never_on(log, logons, source))
        for source in log.sources
        if source.ended
    )


def last_sample_s(log: TimingLog) -> list[float | None]:
    """Return the time of the last health sample of each source, in their order; None without one in the run."""
    whose = [getattr(log.sources[0], maker) for maker in MAKERS]  # samples of a single engine's log lack them
    last: dict[tuple[str, ...], float] = {}
    for sample in log.health:
        if sample.get("at_s") is not None:
            maker = tuple(sample.get(key, own) for key, own in zip(MAKERS, whose, strict=True))
            last[maker] = max(last.get(maker, 0.0), sample["at_s"])
    return [last.get(tuple(getattr(source, maker) for maker in MAKERS)) for source in log.sources]


def without_logs(log: TimingLog, run: str) -> dict[str, int]:
    """Return the number of users without logs by client, for the clients of a run that have any."""
    assigned = {one["client"]: int(one["users"]) for one in log.header.get("machines") or ()}
    for source in log.sources:
        if source.run == run and source.client in assigned:
            assigned[source.client] -= source.users
    return {client: users for client, users in assigned.items() if users > 0}


def _logons(log: TimingLog) -> Records:
    number = log.strings.index("LOGON") if "LOGON" in log.strings else -1
    return np.concatenate([tasks.kept(tasks["task"] == number).records() for tasks in log.pieces("tasks")])


def _never_on(log: TimingLog, logons: Records, source: Source) -> int:
    """Return the number of an engine's users that tried to log on and never succeeded."""
    number = {name: index for index, name in enumerate(log.strings)}
    of_source = np.logical_and.reduce([logons[maker] == number.get(getattr(source, maker), -1) for maker in MAKERS])
    own = logons[of_source]
    got_on = np.unique(own["user"][own["outcome"] == OUTCOME["ok"]])
    return len(np.setdiff1d(own["user"], got_on))


def down_share(log: TimingLog, window_s: Window, users: int) -> float | None:
    """Return the share of the window's user-seconds in which a user had no session; None without users.

    A server that is down gets little load, and answers it fast: other figures do not show the outage.
    `users` are those of all runs in the log. A session that was not restored was missing to the end of the window.
    """
    if not users:
        return None
    begin_us, end_us = (round(at_s * 1_000_000) for at_s in window_s)
    is_down = np.array(log.strings) == NO_SESSION
    down_us = 0
    for tasks in log.pieces("tasks"):
        spans = tasks.kept(is_down[tasks["task"]])
        ended_us = spans["ended_us"]
        up_us = np.where(ended_us == NEVER, end_us, np.minimum(ended_us, end_us))
        down_us += int(np.maximum(up_us - np.maximum(spans["scheduled_us"], begin_us), 0).sum())
    return down_us / (users * (end_us - begin_us))
