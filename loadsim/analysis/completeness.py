"""Completeness of logs and sessions: the users of a run, users in its logs, lost users, and lost sessions."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from loadsim.analysis.recovery import Interruptions
from loadsim.model.figures import Companions, Outside, Sessions
from loadsim.model.records import NO_SESSION
from loadsim.model.terms import Window
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER


def users_had(log: TimingLog) -> int:
    """Return the number of users in the scenario, or in the logs if there are more."""
    return max(log.header.users, users_present(log))


def users_present(log: TimingLog) -> int:
    return sum(source.users for source in log.sources)


def lost_users(log: TimingLog) -> int:
    """Return the number of users that the generator lost.

    These are users of engines whose log is missing or has no end, and users that an engine gave up on. Users whom the
    server left without a session are not among them: see `Sessions`.
    """
    return users_had(log) - users_present(log) + sum(lost_by_source(log))


def lost_by_source(log: TimingLog) -> list[int]:
    """Return each source's number of lost users, in the log's order."""
    return [source.facts.users_given_up or 0 if source.ended else source.users for source in log.sources]


def reported_sum(log: TimingLog, fact: str) -> int | None:
    """Return the sum of a fact that engines report at their end; None if any engine did not."""
    reported = [getattr(source.facts, fact) for source in log.sources if source.simulates]
    return None if None in reported else sum(reported)


def reported_at_least(log: TimingLog, fact: str) -> int:
    """Return the sum of a fact over the engines that reported it."""
    return sum(getattr(source.facts, fact) or 0 for source in log.sources if source.simulates)


def last_sample_s(log: TimingLog) -> list[float | None]:
    """Return the time of each source's last health sample in the run, in the log's order; None if it has none."""
    last: dict[tuple[str, ...], float] = {}
    for sample in log.health:
        if sample.get("at_s") is not None:
            last[sample.maker] = max(last.get(sample.maker, 0.0), sample.at_s)
    return [last.get(source.maker) for source in log.sources]


def without_logs(log: TimingLog) -> dict[str, int]:
    """Return the number of users without a log, by client; clients without any are left out."""
    assigned = {one.client: one.users for one in log.header.machines}
    for source in log.sources:
        if source.client in assigned:
            assigned[source.client] -= source.users
    return {client: users for client, users in assigned.items() if users > 0}


def sessions(log: TimingLog, down_share: float | None) -> Sessions:
    return Sessions(
        sessions_lost=reported_sum(log, "sessions_lost"),
        sessions_restored=reported_sum(log, "sessions_restored"),
        lost_users=lost_users(log),
        users_without_session=sum(source.facts.lost_users or 0 for source in log.sources if source.ended),
        down_share=down_share,
        companions=_companions(log),
    )


def _companions(log: TimingLog) -> Companions | None:
    """Return the sums over all engines that reported companions; None if no engine did."""
    reported = [source.facts.companions for source in log.sources if source.facts.companions]
    if not reported:
        return None

    def total(key: str) -> int:
        return sum(getattr(counts, key) for counts in reported)

    planned_ns = total("planned_ns")
    counts = {one.name: total(one.name) for one in fields(Companions) if one.name != "down_share"}
    return Companions(**counts, down_share=total("down_ns") / planned_ns if planned_ns else None)


def outside(log: TimingLog) -> Outside | None:
    """Return the number of outside senders, and the sums that engines reported; None without senders."""
    if not log.header.senders:
        return None
    reported = [source.facts.outside for source in log.sources if source.facts.outside]
    return Outside(
        log.header.senders,
        sum(counts.unknown_refused for counts in reported),
        sum(counts.unknown_accepted for counts in reported),
    )


class DownTime:
    """Adds up the time in the window that users spent without a session.

    A server that is down gets little load, and answers it fast: other figures do not show the outage. A session that
    was never restored counts as missing until the end of the window. The recovery from a stated outage does not count.
    """

    def __init__(self, log: TimingLog, window_s: Window, recovery: Interruptions | None = None) -> None:
        self._recovery = recovery
        self._begin_us, self._end_us = (round(at_s * 1_000_000) for at_s in window_s)
        self._log, self._down_us = log, 0

    def add(self, tasks: Columns) -> None:
        if self._log.strings[tasks["task"][0]] == NO_SESSION:
            due_us, ended_us = tasks["scheduled_us"], tasks["ended_us"]
            up_us = np.where(ended_us == NEVER, self._end_us, np.minimum(ended_us, self._end_us))
            down_us = np.maximum(due_us, self._begin_us)
            inside = up_us > down_us
            down_us, up_us, users = down_us[inside], up_us[inside], tasks["user"][inside]
            outside_us = up_us - down_us if self._recovery is None else self._recovery.down_us(users, down_us, up_us)
            self._down_us += int(outside_us.sum())

    def share(self, users: int) -> float | None:
        """Return this time as a share of all user-seconds in the window; None without users."""
        return self._down_us / (users * (self._end_us - self._begin_us)) if users else None
