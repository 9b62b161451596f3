"""`loadsim show`: list shipped files, drivers and tasks, or show one."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence

from loadsim.errors import ConfigError
from loadsim.model.documents.schema import with_nearest
from loadsim.model.documents.yaml_reader import known, shipped
from loadsim.model.profile import load_weights
from loadsim.plugins import Plugin, plugins, printing_to_stderr
from loadsim.users import tasks
from loadsim.users.plugin_tasks import task_of
from loadsim.users.tasks import Task

WIDTH = 80
"""Columns of a list."""

Row = tuple[str, str]
"""A name, and the words for it."""


SHIPPED_FILES = ("scenarios", "profiles", "programs", "suites", "storages")
"""The kinds of files; the others are code."""

KINDS = (*SHIPPED_FILES, "drivers", "tasks")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}")
    parser.add_argument(
        "name", metavar="NAME", nargs="*", default=[], help="show this one; without it, the names are listed"
    )
    parser.set_defaults(run=run_show)


def run_show(args: argparse.Namespace) -> int:
    """List a kind, or show one. Raises `ConfigError` for an unknown name."""
    if args.kind not in SHIPPED_FILES:
        return run_code(args.kind, " ".join(args.name))
    if len(args.name) > 1:
        raise ConfigError(f"{args.kind}: expected one name, found {' '.join(args.name)}")
    if args.name:
        sys.stdout.write(_text(args.kind, args.name[0]))
    else:
        print("\n".join(as_list([(name, _first_sentence(_text(args.kind, name))) for name in known(args.kind)])))
    return 0


def run_code(kind: str, asked: str) -> int:
    """List what is installed, or show one; a plug-in that cannot be used has its fault in place of its words.

    Raises `ConfigError` for an unknown name.
    """
    rows = [(driver.name, _words(driver)) for driver in plugins("driver")] if kind == "drivers" else _tasks()
    if asked:
        names = [name for name, _ in rows]
        rows = [row for row in rows if row[0].lower() == asked.lower()]
        if not rows:
            raise ConfigError(f"{kind}: expected one of {', '.join(names)}, found {with_nearest(asked, names)}")
        rows.append(("Details:", f"docs/reference/{kind}.md"))
    print("\n".join(as_list(rows)))
    return 0


def _text(kind: str, name: str) -> str:
    if name not in known(kind):
        raise ConfigError(f"{kind}: expected one of {', '.join(known(kind))}, found {with_nearest(name, known(kind))}")
    return (shipped(kind) / f"{name}.yaml").read_text(encoding="utf-8")


def _first_sentence(text: str) -> str:
    comment = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(comment).partition(". ")[0].removesuffix(".")


def _words(plugin: Plugin) -> str:
    try:
        with printing_to_stderr():
            words = task_of(plugin).about if plugin.kind == "task" else _first_words(plugin)
    except ConfigError as fault:
        words = f"cannot be used: {fault}"
    return words if plugin.is_own else f"{words} ({plugin.origin})".strip()


def _first_words(driver: Plugin) -> str:
    module = sys.modules[driver.load().__module__]
    return (module.__doc__ or "").partition("\n")[0].removeprefix(f"The driver `{driver.name}`: ")


def _tasks() -> list[Row]:
    weights = load_weights()
    rows = []
    for task in vars(tasks).values():
        if isinstance(task, Task):
            weight = f" (weight {weights[task.name]:g})" if weights.get(task.name) else ""
            rows.append((task.name, task.about + weight))
    return rows + [(task.name, _words(task)) for task in plugins("task")]


def as_list(rows: Sequence[Row]) -> list[str]:
    """Return a line for each name, with its words; further lines of long ones are indented."""
    column = max(len(name) for name, _ in rows) + 2
    lines = []
    for name, words in rows:
        wrapped = textwrap.wrap(words, WIDTH - column, break_on_hyphens=False) or [""]
        lines += [f"{name.ljust(column)}{wrapped[0]}".rstrip(), *(f"{' ' * column}{line}" for line in wrapped[1:])]
    return lines
