"""Completeness of logs: the users of each run, the users in its logs, and the lost users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from loadsim.analysis.generator_failures import USERS_GIVEN_UP
from loadsim.model.partition import Slice
from loadsim.model.records import NO_SESSION, SPANS
from loadsim.model.terms import WITHOUT_WINDOW
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import Source, TimingLog
from loadsim.timinglog.records import MAKERS, NEVER, OUTCOME, Records


def users_had(log: TimingLog, part: Slice | None = None) -> Mapping[str, int]:
    """Return the number of users of each run, or of a part of it, by its scenario: at least those of its logs.

    Logs that are merged have one scenario. Those that were forced together may not: an engine that was dealt its users
    says itself out of how many.
    """
    present = users_present(log)
    dealt: dict[str, int] = {}
    for source in log.sources:
        if source.assignment is not None and source.assignment.step != 1:
            dealt[source.run] = max(source.assignment.users, dealt.get(source.run, 0))
    stated = int(log.header.get("users") or 0)
    had = {run: max(dealt.get(run, stated), users) for run, users in present.items()}
    return {run: len(part.assignment(users)) for run, users in had.items()} if part else had


def users_present(log: TimingLog) -> Mapping[str, int]:
    """Return the number of users in the logs of each run."""
    present = Counter[str]()
    for source in log.sources:
        present[source.run] += source.users
    return present


def runs_outside(log: TimingLog, window_s: tuple[float, float]) -> list[str]:
    """The runs of which no task was due in the window: of several runs, one may have begun long after another."""
    without_window = np.isin(np.array(log.strings), (*WITHOUT_WINDOW, *SPANS))
    inside = np.zeros(len(log.strings), np.bool_)
    for tasks in log.pieces("tasks"):
        inside[tasks["run"][in_window(tasks["scheduled_us"], window_s) & ~without_window[tasks["task"]]]] = True
    found = {log.strings[run] for run in np.flatnonzero(inside)}
    return sorted({source.run for source in log.sources if source.simulates} - found)


def lost_users(log: TimingLog, part: Slice | None = None) -> int:
    """Return how many of the runs' users, or of that part of them, the generator has lost.

    Those are the users of engines whose log is missing or has no end, and users whom an engine gave up. Users whom the
    server left without a session are not counted: see `users_without_session`.
    """
    return sum(users_had(log, part).values()) - sum(users_present(log).values()) + sum(lost_by_source(log))


def lost_by_source(log: TimingLog) -> list[int]:
    """Return the same of the users of each of the log's sources, in their order."""
    return [int(source.facts.get(USERS_GIVEN_UP) or 0) if source.ended else source.users for source in log.sources]


def told(log: TimingLog, fact: str) -> int | None:
    """Return the sum of what all engines told at their end; None where one did not."""
    engines = [source.facts for source in log.sources if source.simulates]
    return sum(int(facts[fact]) for facts in engines) if all(fact in facts for facts in engines) else None


def told_at_least(log: TimingLog, fact: str) -> int:
    """Return the sum of what those engines told that lived to do so."""
    return sum(int(source.facts.get(fact, 0)) for source in log.sources if source.simulates)


def users_without_session(log: TimingLog) -> int:
    """Return how many users of engines that lived to the end had no session then.

    Engines say it themselves (`lost_users` among their facts); at least those that tried to log on and never got on.
    """
    logons = _logons(log)
    return sum(
        max(int(source.facts.get("lost_users", 0)), _never_on(log, logons, source))
        for source in log.sources
        if source.ended
    )


def heard_last_s(log: TimingLog) -> list[float | None]:
    """By when each of the log's sources has last told of its health, in their order; None: never in the run."""
    whose = [getattr(log.sources[0], maker) for maker in MAKERS]  # a log of one engine does not say it in each sample
    last: dict[tuple[str, ...], float] = {}
    for sample in log.health:
        if sample.get("at_s") is not None:
            maker = tuple(sample.get(key, own) for key, own in zip(MAKERS, whose, strict=True))
            last[maker] = max(last.get(maker, 0.0), sample["at_s"])
    return [last.get(tuple(getattr(source, maker) for maker in MAKERS)) for source in log.sources]


def without_logs(log: TimingLog, run: str) -> dict[str, int]:
    """The client machines of a run of which there are logs of fewer users than they had; how many users are missing."""
    dealt = {one["client"]: int(one["users"]) for one in log.header.get("machines") or ()}
    for source in log.sources:
        if source.run == run and source.client in dealt:
            dealt[source.client] -= source.users
    return {client: users for client, users in dealt.items() if users > 0}


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


def down_share(log: TimingLog, window_s: tuple[float, float], users: int) -> float | None:
    """Return the share of the window's user-seconds in which a user had no session; None without users.

    A server that is down gets little load, and answers it fast: other figures do not show the outage.
    `users` are those of all runs in the log. A session that never came back was missing to the end of the window.
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
