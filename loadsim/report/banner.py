"""The verdict of a run as a sentence that a reader may quote, followed by the words of the answer."""

from __future__ import annotations

from loadsim.analysis.criteria import judge_each
from loadsim.analysis.summary import Summary
from loadsim.analysis.verdict import ENDED_EARLY, FULL_LOAD, GENERATOR, server_failed
from loadsim.model.criteria import DEFAULT, documents
from loadsim.report.answer import NO_MEASUREMENT, missed_and_unjudged, passed_words
from loadsim.report.criterion_words import criteria_in_words, missed_in_words
from loadsim.report.digits import count, percent


def verdict_words(summary: Summary) -> str:
    return f"{summary.verdict.validity.capitalize()}, {passed_words(summary)}"


def banner(summary: Summary) -> str:
    """Return the sentence; in brackets, the verdict as the answer in a terminal states it."""
    words = verdict_words(summary).lower() + (NO_MEASUREMENT if summary.figures.embedded else "")
    return f"{_sentence(summary)} ({words})."


def _sentence(summary: Summary) -> str:
    figures, verdict = summary.figures, summary.verdict
    invalid = verdict.validity == "invalid"
    if verdict.passed is None:
        return f"This is {'an invalid' if invalid else 'one'} slice of a run: limits are judged with the other slices"
    users = count(figures.users, "user")
    if invalid:
        return _of_invalid(summary, users)
    # Only a run with a plan offers a load that a server can fail to keep up with.
    server = "the embedded server" if figures.embedded else "the server"
    if not summary.criteria:
        words = f"no limit was set for {server} with {users}"
    elif not verdict.passed:
        words = f"{server} {_missed(summary)} with {users}"
    elif off := _unjudged_defaults(summary):
        judged = count(len(criteria_in_words(summary.criteria)), "judged limit")
        pauses = ", who worked without pauses" if figures.stress else ""
        were = "was" if off.startswith("1 ") else "were"
        words = f"{server} kept {judged} with {users}{pauses}; {off} {were} not judged"
    elif figures.stress:
        words = f"{server} kept every limit with {users}, who worked without pauses"
    else:
        words = f"{server} kept every limit with {users}"
        if verdict.validity == "valid":
            words = f"in this run, {server} kept up with {users}: every limit was kept"
    if verdict.validity == "degraded":
        words = _degraded(words, summary)
    return f"{words[:1].upper()}{words[1:]}"


def _degraded(words: str, summary: Summary) -> str:
    """Return the sentence of a degraded run: a limit that was missed counts, one that was kept proves little."""
    load, reasons = summary.figures.load, len(summary.verdict.defects)
    share = 1.0 if load is None or load.share is None else load.share
    made = f"users made only {percent(share)} of the planned load" if share < FULL_LOAD else ""
    if not summary.verdict.passed or not summary.criteria:
        return f"{words}, although {made}" if made else words
    below = "the reason" if reasons == 1 else f"the {reasons} reasons"
    return f"not certain, {f'since {made}' if made and reasons == 1 else f'for {below} below'}: {words}"


def _unjudged_defaults(summary: Summary) -> str:
    """Return the number of limits of the default, at any value, that were not judged; "" for none."""
    judged = {one.name for one in summary.criteria}
    others = [one for one in judge_each(documents(DEFAULT), summary.score) if one.name not in judged]
    return count(len(criteria_in_words(others)), "default limit") if others else ""


def _of_invalid(summary: Summary, users: str) -> str:
    """Return that no score may be quoted, and for which of the causes that a reader must tell apart."""
    verdict = summary.verdict
    if server_failed(verdict.causes):
        return f"The server did not take the load of {users}: the run is invalid"
    if ENDED_EARLY in verdict.defects:
        return f"The run with {users} was ended early: it is invalid"
    missed = f", and {_missed(summary)}" if passed_words(summary) == "criteria missed" else ""
    figure = "throughput" if summary.figures.stress else "score"
    why = " because of the load generator" if verdict.causes == (GENERATOR,) else ""
    return f"No {figure} can be quoted for {users}: the run is invalid{why}{missed}"


def _missed(summary: Summary) -> str:
    """Return the number of limits that were missed; that of several runs is in the list of them."""
    judged, _ = missed_and_unjudged(summary)
    return "missed limits" if summary.verdict.missed_runs else f"missed {count(len(missed_in_words(judged)), 'limit')}"
