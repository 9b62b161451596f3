"""Tuning: find the most reads and writes per second within the limits, by adding threads, then pauses.

1. Double the threads until a run exceeds the limits on times.
2. Halve the distance between the largest number that passed and the smallest that failed.
3. With the smallest number that failed, add a pause that should bring its rate down to that of the largest that passed.
   Then shorten or lengthen the pause, with `PAUSES` runs in all.

An interrupted tuning resumes in its directory: the same rules lead to the runs that it already has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from loadsim.findings.catalogue import Code
from loadsim.findings.severity import Cause
from loadsim.storage.recording import Recording
from loadsim.storage.scenario import StorageScenario
from loadsim.storage.verdict import BY_TIMES, judge

MOST_THREADS = 256
PAUSES = 3

Result = Literal["pass", "fail", "generator", "void"]
Setting = tuple[int, float]
"""The threads of each database, and the pause of a thread after each operation, in seconds."""


@dataclass(frozen=True, slots=True)
class Try:
    """A tuning run. `operations_per_s` are those of one database."""

    setting: Setting
    result: Result
    reached: bool  # each database reached its part of the target
    iops: float
    operations_per_s: float


def result_of(recording: Recording) -> Try:
    """Judge a run by its times, whether or not it reached the target."""
    verdict, together = judge(recording), recording.together
    result: Result = "pass"
    missed = {each.code for each in verdict.missed}
    if verdict.causes:
        result = "generator" if Cause.GENERATOR in verdict.causes else "void"
    elif codes := missed - {Code.BELOW_TARGET}:
        result = "fail" if codes <= BY_TIMES else "void"  # other misses do not show the disks' limit
    scenario, done = recording.scenario, sum(together.operations.values())
    rate = done / recording.window_s / scenario.databases if recording.window_s else 0.0
    setting = scenario.threads, scenario.pause_s
    return Try(setting, result, Code.BELOW_TARGET not in missed, together.iops, rate)


def next_setting(tries: Sequence[Try]) -> Setting | Code:
    """Return the setting of the next run, or the reason why the tuning ends."""
    if any(each.result == "void" for each in tries):
        return Code.TUNING_VOID
    if any(each.result == "generator" for each in tries):
        return Code.TUNING_GENERATOR
    plain = {each.setting[0]: each for each in tries if not each.setting[1]}
    low = max((threads for threads, each in plain.items() if each.result == "pass"), default=0)
    high = min((threads for threads, each in plain.items() if each.result == "fail"), default=None)
    if high is None:
        return (2 * low or 1, 0.0) if low < MOST_THREADS else Code.TUNING_NO_LIMIT
    if high - low > 1:
        return (low + high) // 2, 0.0
    if low == 0:
        return Code.TUNING_NONE
    paused = [each for each in tries if each.setting[1]]
    if len(paused) >= PAUSES:
        return Code.TUNING_FOUND
    # With this pause, `high` threads perform as many operations as `low` without, if the disks are as fast.
    longest_s = max(0.0, high / plain[low].operations_per_s - high / plain[high].operations_per_s)
    passed = [each.setting[1] for each in paused if each.result == "pass"]
    failed = [each.setting[1] for each in paused if each.result == "fail"]
    return high, (min(passed, default=longest_s) + max(failed, default=0.0)) / 2 or 1e-3


def best_of(tries: Sequence[Try]) -> Try | None:
    """Return the passing run with the most reads and writes, preferring those that reached the target."""
    passed = [each for each in tries if each.result == "pass"]
    return max(passed, key=lambda each: (each.reached, each.iops), default=None)


def exit_status(tries: Sequence[Try], why: Code) -> int:
    """Return 0 if a run reached the target, 1 if the disks prevented that, 3 if something else did."""
    best = best_of(tries)
    if best and best.reached and why is not Code.STOPPED:
        return 0
    return 1 if why in (Code.TUNING_FOUND, Code.TUNING_NONE) else 3


def tune(scenario: StorageScenario, make: Callable[[StorageScenario], Recording], tries: list[Try]) -> Code:
    """Add runs to `tries` until the rules end the tuning; return the reason."""
    while not isinstance(setting := next_setting(tries), Code):
        recording = make(replace(scenario, threads=setting[0], pause_s=setting[1]))
        tries.append(result_of(recording))
        if recording.end is not None and recording.end.stopped:
            return Code.STOPPED
    return setting
