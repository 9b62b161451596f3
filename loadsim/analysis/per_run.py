"""Counts and rates of several runs as means per run: a sum grows with the number of repeats, and says nothing about a
server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SUMMED = frozenset(
    (
        *("users", "engines", "load_equivalent_users", "made", "planned", "attempted", "done", "hits", "failed"),
        *("refused", "lost", "timeout", "unfinished", "skipped", "times", "count", "processings", "generator_failed"),
        *("offered_per_s", "achieved_per_s", "tasks_per_s", "done_per_s", "messages_per_s", "deliveries_per_s"),
        *("sessions_lost", "sessions_restored", "silent_activities", "clock_steps"),
        *("lost_users", "users_without_session", "log_ons", "found"),
        *("accepted", "delivered", "timed", "undelivered", "unwatched", "undelivered_at_end", "duplicates", "early"),
        "under_way_at_end",
    )
)
"""The keys of `score.json` that are sums over the records or engines of all runs."""

RATES = ("by_task", "commands")
"""Keys of a stress run's throughput: mappings of rates, which are sums, too."""


def per_run(figures: Mapping[str, Any], own: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of several runs together, with means per run in the place of sums; `own` has those of each run.

    What was highest at any instant is that of the worst run. With one run, whose `own` is empty, nothing changes.
    """
    found: dict[str, Any] = mean(figures, len(own))
    if own:
        found["delivery"]["under_way_max"] = max(one["delivery"]["under_way_max"] for one in own)
    return found


def mean(found: Any, runs: int, summed: bool = False) -> Any:
    """Return the figures with each sum in it divided by the number of runs, if they are several."""
    if runs < 2:
        return found
    if isinstance(found, Mapping):
        rates = {key for key in RATES if isinstance(found.get(key), Mapping)}
        return {key: mean(value, runs, summed or key in SUMMED | rates) for key, value in found.items()}
    if isinstance(found, list):
        return [mean(one, runs) for one in found]
    if summed and isinstance(found, int | float):
        return found / runs if found % runs else found // runs
    return found


def in_tenths(found: Any) -> Any:
    """Return a mean for people: counts with one decimal at most, and one digit where that would be nought."""
    if isinstance(found, Mapping):
        return {key: _tenths(value) if key in SUMMED else in_tenths(value) for key, value in found.items()}
    return [in_tenths(one) for one in found] if isinstance(found, list) else found


def _tenths(count: Any) -> Any:
    if not isinstance(count, float):
        return in_tenths(count)
    return round(count, 1) if count >= 0.05 else float(f"{count:.1g}")
