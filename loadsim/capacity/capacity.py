"""A capacity search as a value: its terms, its steps, and its result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from loadsim.campaign.runs import FAILED, GENERATOR, PASSED, VOID, CampaignRun, Findings
from loadsim.capacity.search import Found, Settings, StoppedBy, interval
from loadsim.documents.json_values import to_json
from loadsim.documents.typed import value_of
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.formats import Value
from loadsim.findings.next_step import next_step
from loadsim.model.terms import MOST_USERS


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """The terms of a search, which must not change when it is resumed.

    `scenario` is the scenario's digest, `seed` its plan's seed. The limits are the criteria's, None if off. `pause_s`
    precedes each step but the first. `clients` is the number of a cluster's clients; None on this machine.
    """

    software: str
    name: str
    scenario: str
    seed: int
    embedded: bool
    day_s: float
    compression: float
    score_limit_ms: float | None
    response_score_limit_ms: float | None
    settings: Settings
    pause_s: float
    engines: int | None
    pin: bool
    clients: int | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity search, with the runs so far. `found` is None until it ends.

    `refused` has a finding for each number with which no run can be made here. A resumed search retries it, since more
    hits, memory or open files may be available by then.
    """

    KIND: ClassVar[str] = "capacity"
    directory: Path
    terms: SearchTerms
    runs: tuple[CampaignRun, ...]
    found: Found | None = None
    refused: tuple[Finding, ...] = ()

    @classmethod
    def read(cls, directory: Path, document: Mapping[str, Any], runs: tuple[CampaignRun, ...]) -> Capacity:
        """Read a search from its document. Raises one of `DAMAGED` for a malformed one."""
        findings = value_of(Findings, document["findings"])
        refused = tuple(finding for finding in findings if finding.code is Code.NUMBER_REFUSED)
        return cls(directory, value_of(SearchTerms, document["terms"]), runs, _found(document, runs), refused)

    @property
    def refused_users(self) -> Sequence[int]:
        return [int(str(finding.values["users"])) for finding in self.refused]

    @property
    def users(self) -> int | None:
        """The largest number of users that passed; None if none did, or until the search ends."""
        return self.found.low if self.found else None

    @property
    def at_capacity(self) -> Sequence[CampaignRun]:
        return [run for run in self.runs if run.users == self.users and run.result == PASSED]

    @property
    def tasks_per_s(self) -> float | None:
        """The mean throughput with the largest number that passed."""
        rates = [run.tasks_per_s or 0.0 for run in self.at_capacity]
        return sum(rates) / len(rates) if rates else None

    @property
    def load_equivalent_users(self) -> int | None:
        """The lowest load-equivalent, in users with an 8 h day, of runs with the largest number that passed."""
        return min((run.load_equivalent_users or 0 for run in self.at_capacity), default=None)

    @property
    def nearest_to_full(self) -> CampaignRun | None:
        """The last run with measured resources at the smallest failed number, or else at the largest that passed."""
        found = self.found
        for users, result in ((found.high, FAILED), (found.low, PASSED)) if found else ():
            runs = [run for run in self.runs if (run.users, run.result) == (users, result) and run.resources]
            if runs:
                return runs[-1]
        return None

    @property
    def interval(self) -> tuple[int | None, int | None] | None:
        """The interval of the search (`search.interval`); None until it ends."""
        return interval(self.runs, self.found) if self.found else None

    @property
    def not_measured(self) -> Sequence[tuple[int, int]]:
        """The ranges of numbers below the result that were not measured: the server may fail there."""
        below = (run.users for run in self.judged if run.users <= (self.users or 0))
        measured = sorted({self.terms.settings.least - 1, *below})
        return [(low + 1, high - 1) for low, high in pairwise(measured) if high - low > 1]

    @property
    def certain(self) -> bool:
        """True if the interval states every end that the search found, and at least one."""
        found, stated = self.found, self.interval
        if found is None or stated is None:
            return False
        return [end is None for end in stated] == [end is None for end in (found.low, found.high)]

    @property
    def contended(self) -> bool:
        """True if most runs that decided an end of the search shared the server's cores with other work."""
        ends = ((self.found.low, PASSED), (self.found.high, FAILED)) if self.found else ()
        deciding = [[run.contended for run in self.runs if (run.users, run.result) == end] for end in ends]
        return any(2 * contended.count(True) > len(contended) for contended in deciding)

    @property
    def judged(self) -> Sequence[CampaignRun]:
        """The runs that reveal something about the server."""
        return [run for run in self.runs if run.result not in (GENERATOR, VOID)]

    @property
    def answer(self) -> tuple[Finding, ...]:
        """The capacity or the reason why there is none, and why it is doubtful; empty until the search ends."""
        found, most = self.found, self.terms.settings.most
        if found is None:
            return ()
        low, high, why = found.low, found.high, _WHY.get(found.stopped_by)
        if found.stopped_by in ("broken", "order", "noise"):
            first = finding(Code.CAPACITY_UNDECIDED, low=low or 0, high=high or most)
        elif low and high and self.certain:
            ends = dict(zip(("low", "high"), self.interval or (), strict=True))
            first = finding(Code.CAPACITY_FOUND, users=low, failed=high, **ends)
        elif low and high:
            first = finding(Code.CAPACITY_ABOUT, users=low)
        elif high:
            first = finding(Code.CAPACITY_NONE, failed=high)
        else:
            first = finding(Code.CAPACITY_AT_LEAST, users=low) if low else finding(Code.CAPACITY_UNKNOWN)
        of_why: dict[StoppedBy, dict[str, Value]] = {
            "limit": {"most": most},
            "refused": {"which": "fewer" if high else "more"},
        }
        reasons = [finding(why, **of_why.get(found.stopped_by, {}))] if why else []
        return (first, *reasons, *([finding(Code.CORES_CONTENDED)] if self.contended else []))

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """The limits of the result, without the warnings of single runs."""
        doubts = []
        if self.found and self.found.stopped_by == "broken":
            broken = [run for run in self.judged if run.broken and run.users <= (self.users or 0)]
            doubts += [finding(Code.BROKEN_RUN, run.run, why=run.reasons[0]) for run in broken]
        doubts += self.refused
        if self.terms.embedded:
            doubts.append(finding(Code.EMBEDDED))
        elif not any(run.resources for run in self.runs):
            doubts.append(finding(Code.SERVER_NOT_MEASURED))
        return tuple(doubts)

    @property
    def next_step(self) -> str:
        return next_step((*self.answer, *self.doubts))

    @property
    def exit_status(self) -> int:
        """0 with a capacity and its interval, 1 if no number passed, 4 if the interval is open, wide or not stated."""
        if self.found is None or self.found.stopped_by != "criteria" or not self.certain:
            return 4
        return 0 if self.found.low is not None else 1

    @property
    def document(self) -> dict[str, Any]:
        found = self.found
        return {
            "kind": self.KIND,
            "exit_status": self.exit_status if found else None,
            "users": self.users,
            "failed_users": found.high if found else None,
            "interval": self.interval and [*self.interval],
            "not_measured": to_json(self.not_measured),
            "stopped_by": found.stopped_by if found else None,
            "certain": self.certain if found else None,
            "contended": self.contended if found else None,
            "tasks_per_s": self.tasks_per_s,
            "load_equivalent_users": self.load_equivalent_users,
            "findings": to_json((*self.answer, *self.doubts)),
            "next_step": self.next_step,
            "resources": to_json(self.nearest_to_full.resources) if self.nearest_to_full else None,
            "terms": to_json(self.terms),
            "runs": to_json(self.runs),
        }


_WHY: Mapping[StoppedBy, Code] = {
    "broken": Code.MUST_NEVER_HAPPEN,
    "order": Code.ORDER_MATTERS,
    "noise": Code.RESULTS_DIFFER,
    "generator": Code.GENERATOR_TOO_SLOW,
    "limit": Code.MOST_MEASURED,
    "refused": Code.NOT_MEASURABLE,
}
"""The reasons why a search ended, other than its criteria."""


def _found(document: Mapping[str, Any], runs: Collection[CampaignRun]) -> Found | None:
    """Return the end of a search, or None if it has not ended. Raises `ValueError` if its runs contradict the end."""
    if document["stopped_by"] is None:
        return None
    ends = [document[name] for name in ("users", "failed_users", "stopped_by")]
    found = Found(*value_of(tuple[int | None, int | None, StoppedBy], ends))
    for end, result in ((found.low, PASSED), (found.high, FAILED)):
        if end is not None and not any((run.users, run.result) == (end, result) for run in runs):
            raise ValueError(ends)
    if (found.high is None and found.stopped_by == "criteria") or (found.low or 0) >= (found.high or MOST_USERS + 1):
        raise ValueError(ends)
    return found
