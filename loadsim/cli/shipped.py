"""`loadsim scenarios`, `profiles`, `programs`: list, show and copy what is shipped. `drivers`, `tasks`: list it."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.model.profile import load_weights
from loadsim.model.yaml_reader import known, shipped
from loadsim.protocols.registry import GROUP
from loadsim.users import tasks
from loadsim.users.tasks import Task

FILES = ("scenarios", "profiles", "programs")
"""The kinds that are files; the others are code."""

WIDTH = 80
"""Columns of a list."""


def add_arguments(parser: argparse.ArgumentParser, kind: str) -> None:
    if kind not in FILES:
        parser.set_defaults(run=partial(run_list, kind))
        return
    parser.add_argument("name", metavar="NAME", nargs="?", help="print this file; without it, the names are listed")
    parser.add_argument("--copy", type=Path, metavar="FILE", help="write it to a new file instead, to be changed")
    parser.set_defaults(run=partial(run_files, kind))


def run_list(kind: str, _: argparse.Namespace) -> int:
    print("\n".join(_list(_drivers() if kind == "drivers" else _tasks())))
    return 0


def run_files(kind: str, args: argparse.Namespace) -> int:
    """List the files, or print or copy one. Raises `ConfigError` for an unknown name, or a file that exists."""
    if args.name is None:
        if args.copy is not None:
            raise ConfigError(f"--copy {args.copy}: expected NAME, too, found none")
        print("\n".join(_list(_files(kind))))
    elif args.copy is None:
        sys.stdout.write(_text(kind, args.name))
    else:
        write_new(args.copy, _text(kind, args.name))
        print(f"Copied to {args.copy}")
    return 0


def write_new(file: Path, text: str) -> None:
    """Write a file that does not exist yet. Raises `ConfigError`."""
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise ConfigError(f"{file}: expected a new file, found one that exists") from None
    except OSError as failure:
        raise ConfigError(f"{file}: expected a file that can be created, found: {failure.strerror}") from None


def _text(kind: str, name: str) -> str:
    if name not in known(kind):
        raise ConfigError(f"{kind}: expected one of {', '.join(known(kind))}, found {name!r}")
    return (shipped(kind) / f"{name}.yaml").read_text(encoding="utf-8")


def _files(kind: str) -> Mapping[str, str]:
    """Return the first sentence of each file's first comment, by the name of the file."""
    return {name: _first_sentence(_text(kind, name)) for name in known(kind)}


def _first_sentence(text: str) -> str:
    comment = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(comment).partition(". ")[0].removesuffix(".")


def _drivers() -> Mapping[str, str]:
    """Return the first line of the docstring of each driver's module, by the driver's name."""
    found = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        module = sys.modules[entry.load().__module__]
        found[entry.name] = (module.__doc__ or "").partition("\n")[0].removeprefix(f"The driver `{entry.name}`: ")
    return found


def _tasks() -> Mapping[str, str]:
    """Return the words for each task, with its weight, by its name."""
    weights = load_weights()
    found = [each for each in vars(tasks).values() if isinstance(each, Task)]
    return {
        each.name: each.about + (f" (weight {weights[each.name]:g})" if weights.get(each.name) else "")
        for each in found
    }


def _list(about: Mapping[str, str]) -> list[str]:
    """Return a line for each name, with its words; further lines of long ones are indented."""
    column = max(map(len, about)) + 2
    lines = []
    for name, words in about.items():
        wrapped = textwrap.wrap(words, WIDTH - column) or [""]
        lines += [f"{name.ljust(column)}{wrapped[0]}".rstrip(), *(f"{' ' * column}{line}" for line in wrapped[1:])]
    return lines
