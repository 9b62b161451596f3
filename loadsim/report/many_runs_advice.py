"""The advice of the report on several runs: what to do next to learn how many users the server takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadsim.analysis.compare import FIRST_LOOK
from loadsim.analysis.figures import DriverFigures
from loadsim.analysis.generator_limits import START_AGAIN
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.verdict import server_failed
from loadsim.report.first_screen import YOUR_OWN
from loadsim.report.repeats_words import are_repeats, only_one_way

MEND = "mend what the reports on the single runs name, and run again."
"""The advice for runs that cannot be judged, for different reasons."""

OF_ACCOUNTS = "on a server with an account for each"
"""Ends the advice to try more users."""

SHOW_A_DRIFT = 5
"""The scores of this number of equal runs only rise or only fall by chance in 1 of 60 cases."""


def next_step(runs: Sequence[RecordedRun], loads: Sequence[str]) -> str:
    """Return the advice to a reader who asks how many users the server takes, or how far repeats differ."""
    judged = [run for run in runs if run.summary.verdict.validity != "invalid" or misses(run)]
    if not judged:
        causes = {run.summary.verdict.causes for run in runs}
        advice = [run.summary.verdict.advice for run in runs]
        # Of one cause, the longest advice has the measures of the others, but for a start that was late.
        longest = max(advice, key=lambda one: (START_AGAIN not in one, len(str(one))))
        return f"{'; '.join(longest)}." if len(causes) == 1 and all(advice) else MEND
    if any(loads):
        return "compare only runs whose scores are comparable, or run again with one scenario."
    if any(run.summary.verdict.passed is None and not misses(run) for run in judged):
        return "merge the logs of the other slices with these."
    if any(run.figures.embedded for run in judged):
        return YOUR_OWN
    missed = [run.figures.users for run in judged if misses(run)]
    met = [run.figures.users for run in judged if meets(run) and run.figures.users not in missed]
    if not missed and not met:
        return MEND
    if not missed and len({run.figures.users for run in runs}) == 1 and len(runs) > 1:
        if len(met) < FIRST_LOOK:
            return f"repeat the run until at least {FIRST_LOOK} are valid: two may be alike by chance."
        counted = [run for run in runs if meets(run)]
        if not are_repeats(counted):
            return "compare the runs with what differs between them: loadsim compare --base RUN... --new RUN..."
        if any(only_one_way([module.score_ms or 0.0 for module in each]) for each in _by_driver(counted)):
            if len(counted) < SHOW_A_DRIFT:
                return "make more runs: so far, a change of the server from run to run is not to be told from chance."
            return "find out what changes from run to run, before you compare this server with another."
        return (
            "compare this server with another, or with another setting, by runs that take turns (loadsim"
            f" compare); or find out how many users this server takes (loadsim capacity, {OF_ACCOUNTS})."
        )
    if not missed:
        beyond = [run.figures.users for run in runs if not meets(run) and run.figures.users > max(met)]
        if beyond:
            return (
                f"between {max(met):,} and {min(beyond):,} users, find where a run misses a criterion (loadsim capacity"
                f" does so by itself). The report on the run with {min(beyond):,} says why it decides nothing."
            )
        return (
            f"run with more than {max(met):,} users, until a criterion is missed (loadsim capacity does so by itself,"
            f" {OF_ACCOUNTS})."
        )
    if not met:
        return f"run with fewer than {min(missed):,} users, or look into the report on that run for what was missed."
    if max(met) > min(missed):
        return f"repeat the runs from {min(missed):,} to {max(met):,} users: fewer users missed what more users met."
    return (
        f"the limit is between {max(met):,} and {min(missed):,} users. Measure numbers between them, each at least"
        " three times (loadsim capacity does so by itself)."
    )


def _by_driver(runs: Sequence[RecordedRun]) -> Iterable[Sequence[DriverFigures]]:
    """Return the figures of each driver in all runs, which have the same drivers."""
    return zip(*(run.figures.by_protocol.values() for run in runs), strict=True)


def misses(run: RecordedRun) -> bool:
    """Return whether a run shows too many users: also an invalid one, if the server did not take the load."""
    verdict = run.summary.verdict
    return server_failed(verdict.causes) or (verdict.validity != "invalid" and verdict.passed is False)


def meets(run: RecordedRun) -> bool:
    """Return whether a run shows that the server takes its users: a degraded one decides nothing."""
    return run.summary.verdict.validity == "valid" and bool(run.summary.verdict.passed)
