"""Counts and rates of several runs as means per run: sums grow with the number of repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from loadsim.analysis.figures import Figures

T = TypeVar("T")

SUMMED = frozenset(
    (
        *("users", "engines", "load_equivalent_users", "made", "planned", "attempted", "done", "hits", "failed"),
        *("refused", "lost", "timeout", "unfinished", "skipped", "times", "count", "processings", "generator_failed"),
        *("offered_per_s", "achieved_per_s", "tasks_per_s", "done_per_s", "messages_per_s", "deliveries_per_s"),
        *("sessions_lost", "sessions_restored", "silent_activities", "clock_steps"),
        *("lost_users", "unserved_users", "users_without_session", "log_ons", "found"),
        *("log_ons_failed", "failures", "looks", "listed"),  # of companions
        *("accepted", "delivered", "timed", "undelivered", "unwatched", "undelivered_at_end", "duplicates", "early"),
        *("missing", "left_out"),
        *("accepted_by_list", "undelivered_by_list", "undelivered_at_end_by_list", "under_way_at_end"),
    )
)
"""The keys of `score.json` that are sums over the records or engines of all runs."""

RATES = ("by_task", "commands")
"""Keys of a stress run's throughput: mappings of rates, which are sums, too."""


def per_run(figures: Figures, each_run: Sequence[Figures]) -> Figures:
    """Return the figures of several runs together, with means per run instead of sums.

    Maxima over time are those of the worst run. With one run, `each_run` is empty and nothing changes.
    """
    if not each_run:
        return figures
    found = mean(figures, len(each_run))
    most = max(one.delivery.under_way_max for one in each_run)
    return replace(found, delivery=replace(found.delivery, under_way_max=most))


def mean(found: T, runs: int) -> T:
    """Return the figures with each sum in them divided by the number of runs, if they are several."""
    found_mean: T = found if runs < 2 else _mapped(found, lambda count: _mean(count, runs))
    return found_mean


def in_tenths(found: T) -> T:
    """Return means for people: whole counts from 100 on, below with a decimal, or one digit if they are below 0.05."""
    rounded: T = _mapped(found, _tenths)
    return rounded


def _mapped(found: Any, change: Callable[[Any], Any], summed: bool = False) -> Any:
    if is_dataclass(found) and not isinstance(found, type):
        return replace(found, **_mapped({one.name: getattr(found, one.name) for one in fields(found)}, change, summed))
    if isinstance(found, Mapping):
        return {key: _mapped(value, change, summed or _is_summed(key, value)) for key, value in found.items()}
    if isinstance(found, list | tuple):
        values = [_mapped(one, change) for one in found]
        return type(found)(*values) if hasattr(found, "_fields") else type(found)(values)
    return change(found) if summed else found


def _is_summed(key: str, value: Any) -> bool:
    return key in SUMMED or (key in RATES and isinstance(value, Mapping))


def _mean(count: Any, runs: int) -> Any:
    if not isinstance(count, int | float):
        return count
    return count / runs if count % runs else count // runs


def _tenths(count: Any) -> Any:
    if not isinstance(count, float):
        return count
    if count >= 100:
        return round(count)
    return round(count, 1) if count >= 0.05 else float(f"{count:.1g}")
