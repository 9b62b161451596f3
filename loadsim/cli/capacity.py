"""`loadsim capacity`: search for the largest number of users that passes."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import Measure
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.cli.compare import share
from loadsim.cli.options import add_scenario, duration, given_scenario, whole
from loadsim.cli.run_view import RunView
from loadsim.cli.shown_answer import width_and_colours
from loadsim.cli.stderr_lines import print_line
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.terms import MOST_USERS
from loadsim.report.capacity_text import capacity_text, step_text
from loadsim.runs.capacity import PAUSE_S, Interrupted, Wanted, find_capacity
from loadsim.runs.watcher import Watcher

ENDED_EARLY = 3
"""The exit status of a search that was interrupted in a step."""

DEFAULT_WIDTH = 0.2

users = whole(1, MOST_USERS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument(
        "--from", type=users, metavar="N", dest="first", help="first number of users; default: an eighth of --most"
    )
    parser.add_argument(
        "--most", type=users, metavar="N", help="largest number of users to measure; default: the scenario's users"
    )
    parser.add_argument(
        "--steps", type=_steps, default=(), metavar="N,N,...", help="measure only these numbers, until one fails"
    )
    parser.add_argument(
        "--width",
        type=_width,
        default=DEFAULT_WIDTH,
        metavar="SHARE",
        help="length of the interval, as a share of its middle; default: 20%%, which is +-10%%",
    )
    parser.add_argument(
        "--pause",
        type=_pause,
        default=PAUSE_S,
        metavar="TIME",
        help=f"pause before each step but the first, on a server that is not embedded; default: {PAUSE_S:g}s",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory of the search, new, or of one to resume; default: in runs"
    )
    parser.add_argument(
        "--engines", type=int, metavar="N", help="number of processes that make the load; default: one per core"
    )
    parser.add_argument(
        "--pin", action="store_true", help="run the load and a server on this machine on separate cores"
    )
    parser.add_argument("--json", action="store_true", help="print capacity.json instead of the text")
    parser.add_argument("--quiet", action="store_true", help="print only steps, answer, warnings and errors")
    parser.set_defaults(run=run_capacity)


def _steps(text: str) -> tuple[int, ...]:
    return tuple(users(part) for part in text.split(","))


def _width(text: str) -> float:
    value = share(text)
    if not 0.01 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 1% to 100%, found {text!r}")
    return value


def _pause(text: str) -> float:
    return 0.0 if text in ("0", "0s") else duration(text)


def run_capacity(args: argparse.Namespace) -> int:
    """Search, with a line for each step, and print the answer. Return 0, 1, 3 or 4."""
    given_scenario(args)  # warn of exposed passwords once, not for each step
    shown = _Shown(args)

    def read(settings: Sequence[str]) -> Scenario:
        return load_scenario(args.scenario, [*args.overrides, *settings])

    wanted = Wanted(args.first, args.most, args.steps, args.width, args.pause, args.engines, args.pin)
    try:
        capacity = find_capacity(
            read,
            wanted,
            args.out,
            watch=shown.watch,
            begun=shown.begun,
            began_step=shown.began_step,
            ended_step=shown.ended_step,
        )
    except Interrupted:
        print_line(f"loadsim: interrupted in a step, which {shown.resume} repeats")
        return ENDED_EARLY
    except KeyboardInterrupt:
        if shown.resume:
            print_line(f"loadsim: {shown.resume} resumes this search")
        raise
    shown.answer(capacity)
    return capacity.exit_status


class _Shown:
    """Shows a search: its steps and its answer on standard output, the progress of each run on standard error."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._width = width_and_colours()[0]
        self.resume = ""

    def begun(self, capacity: Capacity) -> None:
        settings = capacity.terms.settings
        self.resume = f"the same command with --out {shlex.quote(str(capacity.directory))}"
        numbers = f"from {settings.first:,} to at most {settings.most:,} users"
        self._progress(f"Search {numbers}, in {capacity.directory}")
        if capacity.steps:
            self._progress(f"Resumed after {len(capacity.steps)} steps, which are not repeated")

    def began_step(self, step: Measure) -> None:
        self._progress(f"Step: {step.users:,} users, {step.why}")

    def ended_step(self, step: MeasuredStep) -> None:
        self._print(step_text(step, self._width), sys.stderr if self._args.json else sys.stdout)

    def answer(self, capacity: Capacity) -> None:
        if self._args.json:
            self._print(json.dumps(capacity.document, indent=2), sys.stdout)
        else:
            self._print(f"\n{capacity_text(capacity, self._width)}\n\nSteps: {capacity.directory}", sys.stdout)

    @contextmanager
    def watch(self, scenario: Scenario) -> Iterator[Watcher]:
        with closing(RunView(scenario, quiet=self._args.quiet)) as view:
            yield view

    def _progress(self, line: str) -> None:
        if not self._args.quiet:
            print_line(line)

    def _print(self, text: str, stream: object) -> None:
        with suppress(BrokenPipeError):  # the reader closed the pipe; go on measuring
            print(text, file=stream, flush=True)  # type: ignore[call-overload]
