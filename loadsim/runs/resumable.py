"""A directory of several runs that is resumed after a crash: its lock, its finished runs, and its incomplete ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from loadsim.analysis.json_values import INFINITE
from loadsim.analysis.verdict import ENDED, FAULT
from loadsim.errors import ConfigError, RunInvalid
from loadsim.files import locked
from loadsim.runs.directory import create_directory, discard
from loadsim.runs.result import write_summary
from loadsim.runs.watcher import SILENT
from loadsim.timinglog.json_checks import each_in, each_of, having, number, or_none, switch, text, word

INCOMPLETE = ".incomplete-"
"""The mark in the names of run directories that were set aside."""


NEW = ".new"
"""The suffix of a state file that is being written."""

_NUMBER = or_none(number(-1e15, 1e15))


def _time_ms(value: Any) -> str | None:
    return None if value == INFINITE else _NUMBER(value)


def _interval_ms(value: Any) -> str | None:
    return "two times" if not isinstance(value, list) or len(value) != 2 or None in value else each_of(_time_ms)(value)


_CRITERION = having(
    {
        **dict.fromkeys(("name", "wanted"), text),
        "each": switch,
        "figure": _time_ms,
        "passed": or_none(switch),
        **dict.fromkeys(("min", "max", "below"), _NUMBER),
    }
)
_INTERVAL = {"score_interval_ms": or_none(_interval_ms)}
_RESOURCE = having(
    {
        **dict.fromkeys(("name", "probe", "figure"), text),
        "machine": or_none(text),
        "server_here": or_none(switch),
        **dict.fromkeys(("mean", "p95", "share"), _NUMBER),
        "full": number(0, 1e15, above=True),
    },
    {"others_share": _NUMBER},
)


_MACHINE = having({}, {"shares_cpus": or_none(switch), "server_here": or_none(switch), "stolen_share": _NUMBER})


def _window_s(value: Any) -> str | None:
    if wrong := each_of(number(0, 1e15))(value):
        return wrong
    return None if len(value) == 2 and value[0] < value[1] else "two rising instants"


_PROBES = each_in(each_in(having({"mean": _NUMBER})))
_SCORE = having(
    {
        "verdict": having(
            {
                "validity": word("valid", "degraded", "invalid"),
                "passed": or_none(switch),
                "causes": each_of(text),
                "reasons": each_of(text),
                "criteria": each_of(_CRITERION),
            }
        ),
        "score_ms": _time_ms,
        "response_score_ms": _time_ms,
        "tasks_per_s": number(-1e15, 1e15),
        "window_s": _window_s,
        "delivery": having({"delivered": number(0, 1e15)}),
        "load_equivalent_users": _NUMBER,
        "by_protocol": each_in(having({"covers": having({"scored": each_of(text)})}, _INTERVAL)),
    },
    {
        "resources": or_none(each_of(_RESOURCE)),
        "probes": or_none(_PROBES),
        "machines": or_none(each_of(_MACHINE)),
        "load": or_none(having({}, {"share": _NUMBER})),
        "warnings": or_none(each_of(text)),
        "received_share": _NUMBER,
        **_INTERVAL,
    },
)
"""The check of the part of score.json that suites and searches read."""


class Interrupted(Exception):
    """A user ended a sequence of runs, which can be resumed.

    `kept`: the last run had done its work and is recorded. Else, it is repeated.
    """

    def __init__(self, *, kept: bool = False) -> None:
        super().__init__()
        self.kept = kept

    def in_words(self, noun: str, resume: str) -> str:
        """Return what happened in a run, which `noun` names, and what `resume` does."""
        if self.kept:
            return f"interrupted after a {noun}, which is kept: {resume} makes the others"
        return f"interrupted in a {noun}, which {resume} repeats"


@contextmanager
def own_directory(out: Path | None, name: str, state: str, noun: str) -> Iterator[Path]:
    """Yield the directory `out`, created unless it has the file `state`, and keep other processes out.

    None creates one with a name in `runs`. `noun` names the work of the others. A directory without the file at the end
    is given up. Raises `ConfigError` for a directory with other files, and while another process uses it.
    """
    unfinished = Path(state).with_suffix(NEW).name  # a crash may have come before the first file was whole
    created: list[Path] = []
    if out is None or not ((out / state).exists() or (out / unfinished).exists()):
        out, created = create_directory(out, name, unfinished)
    with locked(out, "--out", noun):
        if not (out / state).exists() and any(each.name != unfinished for each in out.iterdir()):
            raise ConfigError(f"--out {out}: expected a new or empty directory, found files in it")
        try:
            yield out
        finally:
            if not (out / state).exists():
                discard(out, created)  # still locked: no other process has begun to use it


def write_state(path: Path, document: Mapping[str, Any]) -> None:
    """Replace the file that has the state of a directory. Raises `ConfigError` if the directory does not take it."""
    new = path.with_suffix(NEW)
    try:
        new.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as failure:
        with suppress(OSError):
            new.unlink()
        raise ConfigError(f"{path}: expected to write it, found: {failure.strerror or failure}") from None


def finished_score(directory: Path) -> Mapping[str, Any] | None:
    """Return the content of score.json of a run that ended by itself; None for any other.

    A crash may have come between the end of a run and its score, or damaged it: it is computed then if the logs are
    complete.
    """
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((directory / "score.json").read_text(encoding="utf-8"))
        if _SCORE(found) is None:
            return None if ENDED in found["verdict"]["causes"] else dict(found)
    with suppress(RunInvalid, ConfigError):
        summary = write_summary(directory, SILENT).summary
        if summary.verdict.validity != "degraded" and not {ENDED, FAULT} & set(summary.verdict.causes):
            return summary.score
    return None


def set_aside(directory: Path) -> None:
    """Rename the directory of a run that did not end by itself, which stays for diagnosis."""
    number = 1
    while (aside := directory.with_name(f"{directory.name}{INCOMPLETE}{number}")).exists():
        number += 1
    directory.rename(aside)
