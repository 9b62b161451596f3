"""The warnings of single runs, for a report on several: each kind once, with the runs that have it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def warnings_of_runs(warnings: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return a line for each kind of warning of the runs, given the name and the warnings of each.

    Warnings that differ only in their numbers are of one kind; the line has those of the first run.
    """
    kinds: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, of_run in warnings:
        for warning in of_run:
            kinds[_NUMBER.sub("0", warning)].setdefault(name, warning)
    return [_line(by_run, len(warnings)) for by_run in kinds.values()]


def _line(by_run: dict[str, str], runs: int) -> str:
    name, warning = next(iter(by_run.items()))
    if len(by_run) == 1:
        return f"{name}: {warning}"
    here = f", here {name}" if len({*by_run.values()}) > 1 else ""
    return f"{len(by_run)} of {runs} runs{here}: {warning}"
