"""Rules for merging: the logs of one run have one set of terms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from loadsim.errors import LogError
from loadsim.timinglog.header_words import differences
from loadsim.timinglog.reader import Source, TimingLog

SAME = (
    *("mode", "submission", "programs", "log_on", "plugins", "groups", "scenario_digest", "plan_digest"),
    *("criteria", "limits", "weights", "window_s", "day_s", "night_s", "day_shape", "compression"),
    *("software", "start_state_digest", "duration_s"),
)
"""Header keys that must be equal in all logs of a run: the load, and the terms of score and verdict."""


def check_compatible(logs: Sequence[TimingLog]) -> None:
    """Raise `LogError` for logs of several runs, two of one engine, and logs that differ in `SAME`."""
    sources = sorted((log.sources[0] for log in logs), key=identity)
    if len(runs := sorted({source.run for source in sources})) > 1:
        raise LogError(
            f"merge: expected the logs of one run, found those of {', '.join(map(repr, runs))}: name one, or use"
            " loadsim report RUN RUN"
        )
    for one, following in pairwise(sources):
        if identity(one) == identity(following):
            raise LogError(f"merge: expected each log once, found {_named(one)} of run {one.run!r} twice")
    stated_first = logs[0].header.by_key()
    for log in logs[1:]:
        for key, *found in differences(stated_first, log.header.by_key(), SAME):
            places = (_named(each.sources[0]) for each in (logs[0], log))
            stated = " and ".join(f"{value!r} in {place}" for value, place in zip(found, places, strict=True))
            raise LogError(f"merge: {key}: expected the same in all logs of a run, found {stated}")


def identity(source: Source) -> tuple[str, str, str]:
    return source.run, source.client, source.engine


def _named(source: Source) -> str:
    return f"{source.client}.{source.engine}"
