"""A finding: a code from the catalogue, its values, and the place it applies to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadsim.findings.catalogue import Code
from loadsim.findings.formats import Value, in_short, shown_range
from loadsim.findings.severity import Cause, Severity

GREATEST = 1e15
"""The largest number in a document: more than all users, and a thousand years in ms."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact about a run, server or machine that a reader should know.

    `values` has a value for each field of the code's sentence; units are in the names. `where` is a run, client,
    engine, task or driver; "" if the finding concerns none of these. `severity` is the code's, unless lowered: on the
    embedded server and in stress mode, the generator's limits only warn. Raises `ValueError` if the values do not match
    the sentence's fields.
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
        """Why the finding makes a run invalid; None if it does not."""
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
        """Read a finding from its document. Raises `ValueError`, `TypeError` or `LookupError` if it is malformed."""
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
    """Return one sentence for findings with the same code and place, with the range of each value.

    The place comes first unless the sentence has a field for it.
    """
    first = alike[0]
    names_place = any(part.field == "where" for part in first.code.parts)
    parts = [] if names_place or not first.where else [f"{in_short(first.where)}: "]
    for text, name, noun in first.code.parts:
        parts.append(text)
        if name == "where":
            parts.append(in_short(first.where))
        elif name:
            parts.append(shown_range(name, [item.values[name] for item in alike], noun))
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Shared:
    """Similar findings from several runs: these runs' positions, and a sentence with the range of each value."""

    code: Code
    runs: tuple[int, ...]
    words: str


def shared(of_runs: Sequence[Sequence[Finding]]) -> list[Shared]:
    """Group similar findings from several runs, the most widespread first; `of_runs` has a sequence for each run.

    Findings are similar if code, severity, place and texts are equal; numbers may differ. A run may have several.
    """
    kinds: dict[tuple[Any, ...], list[tuple[int, Finding]]] = {}
    for run, findings in enumerate(of_runs):
        for item in findings:
            texts = tuple((name, value) for name, value in item.values.items() if isinstance(value, str))
            kinds.setdefault((item.code, item.severity, item.where, texts), []).append((run, item))
    merged = []
    for (code, *_), alike in kinds.items():
        runs = tuple(dict.fromkeys(run for run, _ in alike))
        merged.append(Shared(code, runs, sentence([item for _, item in alike])))
    return sorted(merged, key=lambda group: -len(group.runs))
