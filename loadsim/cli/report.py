"""`loadsim report`: make a report of one or several runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from loadsim.analysis.recorded_run import read_run
from loadsim.errors import ConfigError
from loadsim.report.charts import check_drawing
from loadsim.report.document import Document, to_json
from loadsim.report.html import FILE_NAME, to_html
from loadsim.report.many_runs import describe_runs
from loadsim.report.markdown import to_markdown
from loadsim.report.one_run import describe_run

FORMATS: Mapping[str, Callable[[Document], str]] = {
    "html": to_html,
    "md": to_markdown,
    "json": lambda document: json.dumps(to_json(document), indent=2) + "\n",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or timing logs")
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="file to write or replace; default: report.html, or standard output",
    )
    parser.add_argument("--format", choices=FORMATS, default="html", help="format of the report; default: html")
    parser.add_argument(
        "--note",
        action="append",
        default=[],
        type=note,
        dest="notes",
        metavar="NAME:TEXT",
        help="add a note to the disclosure section; repeatable",
    )
    parser.set_defaults(run=run_report)


def note(text: str) -> tuple[str, str]:
    name, colon, content = (part.strip() for part in text.partition(":"))
    if not (name and colon and content):
        raise argparse.ArgumentTypeError(f"expected NAME:TEXT, found {text!r}")
    return name, content


def run_report(args: argparse.Namespace) -> int:
    """Write the report, and print its path. Markdown and JSON go to standard output unless a file is named."""
    if args.format == "html":
        check_drawing()
    text = FORMATS[args.format](document_of(args.runs, dict(args.notes)))
    out = args.out
    if out is None and args.format == "html":
        only_run = Path(args.runs[0])
        out = only_run / FILE_NAME if len(args.runs) == 1 and only_run.is_dir() else Path(FILE_NAME)
    with suppress(BrokenPipeError):
        if out is None:
            sys.stdout.write(text)
        else:
            write(text, out)
            print(out)
    return 0


def document_of(paths: list[str], notes: Mapping[str, str]) -> Document:
    """Return the report on these runs. Raises `LogError` for one that cannot be read, and `ConfigError` for a slice."""
    runs = [read_run(path) for path in paths]
    for run in runs if len(runs) > 1 else ():
        if part := run.figures.slice:
            raise ConfigError(f"report: {run.place}: expected whole runs, found slice {part} of one: merge all slices")
    return describe_run(runs[0], notes) if len(runs) == 1 else describe_runs(runs, notes)


def write(text: str, path: Path) -> None:
    """Write a report, or replace one. Raises `ConfigError` if the file cannot be written."""
    opened = False
    try:
        with path.open("w", encoding="utf-8") as file:
            opened = True
            file.write(text)
    except OSError as failure:
        if opened and path.is_file():  # incomplete
            with suppress(OSError):
                path.unlink()
        raise ConfigError(f"-o {path}: expected a file to write, found: {failure.strerror}") from None
