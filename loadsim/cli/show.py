"""`loadsim show`: list shipped files, or show one."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence

from loadsim.documents.schema import with_nearest
from loadsim.documents.yaml_reader import known, shipped
from loadsim.errors import ConfigError

WIDTH = 80
"""The width of a list, in columns."""

KINDS = ("scenarios", "profiles", "programs", "suites", "storages")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the file to show; without it, list the names")
    parser.set_defaults(run=run_show)


def run_show(args: argparse.Namespace) -> int:
    """List the files of a kind, or show one. Raises `ConfigError` for an unknown name."""
    if args.name is not None:
        sys.stdout.write(_text(args.kind, args.name))
    else:
        print("\n".join(as_list([(name, _first_sentence(_text(args.kind, name))) for name in known(args.kind)])))
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


def as_list(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each name and its text, with the continuation lines of long texts indented."""
    column = max(len(name) for name, _ in rows) + 2
    lines = []
    for name, words in rows:
        wrapped = textwrap.wrap(words, WIDTH - column, break_on_hyphens=False) or [""]
        lines += [f"{name.ljust(column)}{wrapped[0]}".rstrip(), *(f"{' ' * column}{line}" for line in wrapped[1:])]
    return lines
