"""Words for the figures of `score.json` that a criterion or a limit names."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, str] = {
    "score_ms": "score",
    "response_score_ms": "score from due times",
    "failed_share": "failed tasks",
    "done_share": "tasks that succeeded",
    "attempted_share": "share of the tasks that were begun",
    "down_share": "users' time without a session",
    "logon_failed_share": "failed log-ons",
    "unserved_share": "users without usable service",
    "load.share": "load made of the load planned",
    "sessions_lost": "sessions that broke",
    "users_without_session": "users without a session at the end",
    "offered_per_s": "tasks due per second",
    "achieved_per_s": "successful tasks per second",
    "delivery.undelivered": "messages of the window not delivered",
    "delivery.undelivered_at_end": "messages not delivered by the end",
    "delivery.duplicates": "messages delivered twice",
    "delivery.missing": "stored messages that are missing or incomplete",
    "delivery.under_way_max": "most messages accepted and not delivered at once",
    "delivery.under_way_at_end": "messages accepted and not delivered at the end of the window",
    "lateness_p95_ms.busy": "95th percentile of lateness because the user was busy",
    "lateness_p95_ms.down": "95th percentile of lateness because the session was down",
    "lateness_p95_ms.generator": "95th percentile of lateness by the generator",
    "generator.lag_p99_ms": "99th percentile of the event loop's lag",
    "generator.cpu_share": "an engine's share of a core",
    "throughput.tasks_per_s": "tasks that succeeded per second",
    "throughput.messages_per_s": "messages per second",
    "throughput.deliveries_per_s": "deliveries per second",
    "hits": "hits",
    "failed": "tasks that failed",
    "planned": "tasks due",
    "done_per_s": "hits per second",
    "p50_ms": "median",
    "p90_ms": "90th percentile",
    "p95_ms": "95th percentile",
    "p99_ms": "99th percentile",
    "p99_9_ms": "99.9th percentile",
    "max_ms": "maximum",
    "mean_ms": "mean",
    "stddev_ms": "standard deviation",
}
"""Words for whole names, and for the last parts of names of a task, of deliveries and of Inboxes.

Figures that few scenarios limit are named as in `score.json`.
"""

_OF = {"delivery": "delivery times", "inbox": "times to work through the Inbox"}

_FROM_DUE = "response_"
"""The prefix of a time that counts from when a task was due."""


_STATISTICS = {
    "mean": "mean",
    "p50": "50th percentile",
    "p95": "95th percentile",
    "min": "minimum",
    "max": "maximum",
}


_OF_PROBES: Mapping[str, str] = {
    "oldest_message_s.max": "oldest message in the send queue",
    "send_queue_build_up_s.max": "longest build-up of the send queue",
    "send_queue_growth_s.max": "growth of the send queue over the window",
}
"""Words for the figures that the criterion `send_queue_empties` limits."""


def named(name: str) -> str:
    """Return the words for a figure; its name if there are none."""
    if name in NAMES:
        return NAMES[name]
    place, _, last = name.rpartition(".")
    if place.startswith("probes."):
        probe, _, figure = place.removeprefix("probes.").partition(".")
        if words := _OF_PROBES.get(f"{figure}.{last}"):
            return f"{words}, probe {probe}"
        return f"{figure} of the probe {probe}, {_STATISTICS.get(last, last)}"
    if place.startswith("by_protocol."):
        driver, _, own = name.removeprefix("by_protocol.").partition(".")
        return f"{named(own)} through {driver}"
    if place.startswith("tasks.") and last.removeprefix(_FROM_DUE) in NAMES:
        task = task_of(name)
        return f"{of_task(last)} of {'each scored task' if task == 'scored' else task}"
    if place in _OF and last in NAMES:
        return f"{NAMES[last]} of {_OF[place]}"
    if place == "throughput.by_task":
        return f"{last} per second"
    if place == "throughput.commands":
        return f"{last} commands per second"
    return name


def reason_in_words(reason: str) -> str:
    """Return a reason of a verdict with words for the figure whose name it begins with, if it does."""
    name, _, rest = reason.partition(" ")
    words = named(name) if named(name) != name else of_task(name)
    if words == name:
        return reason
    return f"{words} {rest}" if rest.startswith("of ") else f"{words}: {rest}"


def of_task(last: str) -> str:
    """Return the words for a figure of a task, by the last part of its name; that part if there are none."""
    own = last.removeprefix(_FROM_DUE)
    return f"{NAMES.get(own, own)} from due times" if own != last else NAMES.get(last, last)


def task_of(name: str) -> str:
    return name.rpartition(".")[0].removeprefix("tasks.")
