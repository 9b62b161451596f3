"""Failures of the generator itself, over a whole run: each one makes the run invalid.

A task in which the generator failed has the outcome `generator`. Engines count their failures outside of tasks in
facts of their logs.
"""

from __future__ import annotations

from collections import Counter

from loadsim.errors import SHORTAGES
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.records import GENERATOR
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import OUTCOME


def generator_failures(log: TimingLog) -> list[Finding]:
    """Return the failures of the generator itself in the runs of a log.

    They are a shortage if all of them are lacks of files, ports or memory.
    """
    kinds = Counter[str]()
    for (_, kind), times in _in_tasks(log).items():
        kinds[kind] += times
    for source in log.sources:
        kinds.update(source.facts.own_faults or {})
    given_up = sum(source.facts.users_given_up or 0 for source in log.sources)
    found = []
    if kinds:
        code = Code.SHORTAGE if kinds.keys() <= {*SHORTAGES.values()} else Code.GENERATOR_FAILED
        found.append(finding(code, times=kinds.total(), kinds=_named(kinds)))
    if given_up:
        users = sum(source.users for source in log.sources)
        found.append(finding(Code.USERS_GIVEN_UP, given_up=given_up, users=users))
    return found


def failing_clients(log: TimingLog) -> set[str]:
    by_client = ((source.client, source.facts) for source in log.sources)
    reported = {client for client, facts in by_client if facts.own_faults or facts.users_given_up}
    return reported | {client for client, _ in _in_tasks(log)}


def _in_tasks(log: TimingLog) -> Counter[tuple[str, str]]:
    times = Counter[tuple[str, str]]()
    for tasks in log.pieces("tasks"):
        failed = tasks["outcome"] == OUTCOME[GENERATOR]
        if failed.any():
            makers, errors = tasks["client"][failed].tolist(), tasks["error"][failed].tolist()
            times.update(
                (log.strings[client], log.strings[error]) for client, error in zip(makers, errors, strict=True)
            )
    return times


def _named(times: Counter[str]) -> tuple[str, ...]:
    """Return the kinds, the most frequent first; if there are several, with their counts."""
    by_number = sorted(times.items(), key=lambda one: (-one[1], one[0]))
    return tuple(f"{kind} ({often})" if len(times) > 1 else kind for kind, often in by_number)
