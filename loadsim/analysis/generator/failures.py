"""Failures of the generator itself, over a whole run: each one makes the run invalid.

A task in which the generator failed has the outcome `generator`. Failures outside tasks are facts in the logs of their
engines.
"""

from __future__ import annotations

from collections import Counter

from loadsim.errors import SHORTAGES
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.records import GENERATOR
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import OUTCOME


class OwnFailures:
    """Counts the tasks in which the generator failed, by client and kind of error."""

    def __init__(self, log: TimingLog) -> None:
        self._log, self._times = log, Counter[tuple[int, int]]()

    def add(self, tasks: Columns) -> None:
        if (failed := tasks["outcome"] == OUTCOME[GENERATOR]).any():
            self._times.update((tasks.client, error) for error in tasks["error"][failed].tolist())

    def findings(self) -> list[Finding]:
        """Return findings on the failures: a shortage if all were for lack of files, ports or memory."""
        kinds = Counter[str]()
        for (_, error), times in self._times.items():
            kinds[self._log.strings[error]] += times
        for source in self._log.sources:
            kinds.update(source.facts.own_faults or {})
        given_up = sum(source.facts.users_given_up or 0 for source in self._log.sources)
        findings = []
        if kinds:
            code = Code.SHORTAGE if kinds.keys() <= {*SHORTAGES.values()} else Code.GENERATOR_FAILED
            findings.append(finding(code, times=kinds.total(), kinds=_named(kinds)))
        if given_up:
            users = sum(source.users for source in self._log.sources)
            findings.append(finding(Code.USERS_GIVEN_UP, given_up=given_up, users=users))
        return findings

    def clients(self) -> set[str]:
        by_client = ((source.client, source.facts) for source in self._log.sources)
        reported = {client for client, facts in by_client if facts.own_faults or facts.users_given_up}
        return reported | {self._log.strings[client] for client, _ in self._times}


def _named(times: Counter[str]) -> tuple[str, ...]:
    """Return the kinds, the most frequent first, with counts if there are several."""
    by_number = sorted(times.items(), key=lambda one: (-one[1], one[0]))
    return tuple(f"{kind} ({often})" if len(times) > 1 else kind for kind, often in by_number)
