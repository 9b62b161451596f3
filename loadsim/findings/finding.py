"""A finding: a code of the catalogue, its values, and the place where it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadsim.findings.catalogue import Code
from loadsim.findings.formats import Value, in_short, shown_range
from loadsim.findings.severity import Cause, Severity

GREATEST = 1e15
"""No number of a document is greater: users, and times of a thousand years in ms."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that loadsim found out and that a reader should know.

    `values` has one for each field of the code's sentence; units are in their names. `where` is a run, client, engine,
    task or driver; "" if the finding is about none. `severity` is that of the code, unless a judge lowered it: limits
    of the generator are warnings on the embedded server. Raises `ValueError` for other values than those of the
    sentence.
    """

    code: Code
    values: Mapping[str, Value]
    where: str
    severity: Severity

    def __post_init__(self) -> None:
        if self.values.keys() != self.code.fields:
            raise ValueError(f"{self.code.id}: {sorted(self.code.fields)}, {sorted(self.values)}")

    @property
    def cause(self) -> Cause | None:
        """The cause of an invalid run; None for a finding that does not make one invalid."""
        return self.code.cause if self.severity is Severity.INVALID else None

    @property
    def words(self) -> str:
        return sentence([self])

    @property
    def text(self) -> str:
        return f"{self.words} [{self.code.id}]"

    @property
    def document(self) -> dict[str, Any]:
        """The finding as JSON, which has no infinity."""
        values = {name: "inf" if value == math.inf else value for name, value in self.values.items()}
        return {
            "code": self.code.id,
            "severity": self.severity,
            "cause": self.cause,
            "where": self.where,
            "values": values,
            "text": self.text,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Finding:
        """Return the finding of a document. Raises `ValueError`, `TypeError` or `LookupError` for any other."""
        values = {
            str(name): tuple(map(str, value)) if isinstance(value, list) else value
            for name, value in document["values"].items()
        }
        if not all(
            isinstance(value, str | tuple | None) or (type(value) in (int, float) and abs(value) <= GREATEST)
            for value in values.values()
        ):
            raise ValueError(values)
        return cls(Code.of(document["code"]), values, str(document["where"]), Severity(document["severity"]))


def finding(code: Code, where: str = "", severity: Severity | None = None, /, **values: Value) -> Finding:
    return Finding(code, values, where, severity or code.severity)


def sentence(alike: Sequence[Finding]) -> str:
    """Return the sentence of findings with one code and place, with the range of each value.

    A sentence without a field for the place has it in front.
    """
    first = alike[0]
    names_place = any(part.field == "where" for part in first.code.parts)
    parts = [] if names_place or not first.where else [f"{in_short(first.where)}: "]
    for text, name, noun in first.code.parts:
        parts.append(text)
        if name == "where":
            parts.append(in_short(first.where))
        elif name:
            parts.append(shown_range(name, [one.values[name] for one in alike], noun))
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Shared:
    """A kind of finding of several runs: the positions of its runs, and its sentence with the range of each value."""

    code: Code
    runs: tuple[int, ...]
    words: str


def shared(of_runs: Sequence[Sequence[Finding]]) -> list[Shared]:
    """Return the kinds of findings of the runs, those of most runs first; `of_runs` has a sequence for each run.

    Findings of one code, severity, place and texts are of one kind, with any numbers. A run may have several of a kind.
    """
    kinds: dict[tuple[Any, ...], list[tuple[int, Finding]]] = {}
    for run, findings in enumerate(of_runs):
        for one in findings:
            texts = tuple((name, value) for name, value in one.values.items() if isinstance(value, str))
            kinds.setdefault((one.code, one.severity, one.where, texts), []).append((run, one))
    merged = []
    for (code, *_), alike in kinds.items():
        runs = tuple(dict.fromkeys(run for run, _ in alike))
        merged.append(Shared(code, runs, sentence([one for _, one in alike])))
    return sorted(merged, key=lambda kind: -len(kind.runs))
