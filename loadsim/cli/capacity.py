"""`loadsim capacity`: search for the largest number of users that passes."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import FAILED, PASSED, Measure, Result
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.analysis.summary import Tone
from loadsim.cli.cluster_runs import add_cluster_runs, cluster_runner, refuse_cluster_options
from loadsim.cli.compare import share
from loadsim.cli.live_figures import LiveRun, Page
from loadsim.cli.options import add_scenario, duration, given_scenario, whole
from loadsim.cli.report import capacity_document
from loadsim.cli.report_file import check_place, content, format_of, write
from loadsim.cli.run_view import RunView
from loadsim.cli.shown_answer import width_and_colours
from loadsim.cli.stderr_lines import print_line
from loadsim.cli.web.publish import add_web, shown_page
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.terms import MOST_USERS
from loadsim.report.capacity_text import capacity_text, step_text
from loadsim.report.capacity_words import so_far, tone
from loadsim.runs.capacity import Runner, Wanted, find_capacity
from loadsim.runs.capacity_file import read_capacity
from loadsim.runs.quiet_down import PAUSE_S, SETTLING_S
from loadsim.runs.result import RunResult
from loadsim.runs.resumable import Interrupted
from loadsim.runs.watcher import Watcher

REPORT = "--report"

ENDED_EARLY = 3
"""The exit status of a search that was interrupted in a step."""

DEFAULT_WIDTH = 0.2

TONES: Mapping[Result, Tone] = {PASSED: "good", FAILED: "bad"}
"""The ratings of steps on the page; all other results are doubtful."""

PAGE_WIDTH = 1000
"""The page breaks lines itself."""

users = whole(1, MOST_USERS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument(
        "--from", type=users, metavar="N", dest="first", help="first number of users; default: an eighth of --most"
    )
    parser.add_argument(
        "--most",
        type=users,
        metavar="N",
        help="largest number of users to measure, whose accounts must exist; default: the scenario's users",
    )
    parser.add_argument(
        "--steps",
        type=_steps,
        default=(),
        metavar="N,N,...",
        help="measure only these numbers, until one fails; without --from and --most",
    )
    parser.add_argument(
        "--width",
        type=_width,
        default=DEFAULT_WIDTH,
        metavar="SHARE",
        help="length of the interval, as a share of its middle; default: 20%%, which is +-10%%",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="end with two equal results at each end, instead of five, usually without an interval (exit status 4)",
    )
    parser.add_argument(
        "--pause",
        type=_pause,
        metavar="TIME",
        help="pause before each step but the first, unless the server is embedded; with the probe postfix here,"
        f" until the send queue is empty; default: {SETTLING_S:g}s with it, else {PAUSE_S:g}s",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory of the search, new, or of one to resume; default: in runs"
    )
    parser.add_argument(
        "--engines",
        type=int,
        metavar="N",
        help="number of processes that make the load; default: one per core, or per 15,000 users",
    )
    parser.add_argument(
        "--pin",
        action="store_true",
        help="run the load and a server on this machine on separate cores; without root, the load only",
    )
    add_cluster_runs(parser)
    parser.add_argument(
        REPORT,
        type=Path,
        metavar="FILE",
        help="also write a report; its suffix is the format: .html, .md or .json",
    )
    add_web(parser)
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
    chosen = format_of(REPORT, args.report) if args.report else ""
    if args.report:
        check_place(REPORT, args.report)
    scenario = given_scenario(args)  # warns of exposed passwords once, not for each step
    runner = _runner(args, scenario)
    with shown_page(args, scenario) as page:
        shown = _Shown(args, page)
        capacity = _search(args, runner, shown)
        if capacity is None:
            return ENDED_EARLY
        shown.answer(capacity)
        if args.report:
            document = capacity_document(capacity, {}, args.report)
            write(content(document, chosen), args.report, REPORT)
            shown.report(args.report)
        return capacity.exit_status


def _search(args: argparse.Namespace, runner: Runner | None, shown: _Shown) -> Capacity | None:
    """Return the finished search; None if it was ended in a step."""

    def read(settings: Sequence[str]) -> Scenario:
        return load_scenario(args.scenario, [*args.overrides, *settings])

    wanted = Wanted(
        first=args.first,
        most=args.most,
        steps=args.steps,
        width=args.width,
        pause_s=args.pause,
        engines=args.engines,
        pin=args.pin,
        clients=args.clients,
        quick=args.quick,
    )
    try:
        return find_capacity(
            read,
            wanted,
            args.out,
            runner=runner,
            watch=shown.watch,
            begun=shown.begun,
            began_step=shown.began_step,
            ended_step=shown.ended_step,
        )
    except Interrupted as interrupted:
        print_line(f"loadsim: {interrupted.in_words('step', shown.resume)}")
        return None
    except KeyboardInterrupt:
        if shown.resume:
            print_line(f"loadsim: {shown.resume} resumes this search")
        raise
    except (ConfigError, RunInvalid):
        shown.stopped()
        raise


def _runner(args: argparse.Namespace, scenario: Scenario) -> Runner | None:
    """Return what makes the runs on a cluster; None for this machine. Raises `ConfigError`."""
    if args.cluster is None:
        refuse_cluster_options(args)
        return None
    on_cluster = cluster_runner(args, scenario, ("engines", "pin"))
    if args.clients is None:
        raise ConfigError("--clients: expected the number of clients, as all steps need the same ones, found none")

    def run(scenario: Scenario, directory: Path, watcher: Watcher) -> RunResult:
        return on_cluster(scenario, out=directory, watcher=watcher)

    return run


class _Shown:
    """Shows a search: its steps and its answer on standard output, the progress of each run on standard error."""

    def __init__(self, args: argparse.Namespace, page: Page) -> None:
        self._args = args
        self._page = page
        self._width = width_and_colours()[0]
        self.resume = ""
        self._capacity: Capacity | None = None

    def begun(self, capacity: Capacity) -> None:
        self._capacity = capacity
        settings = capacity.terms.settings
        self.resume = f"the same command with --out {shlex.quote(str(capacity.directory))}"
        numbers = f"from {settings.first:,} to at most {settings.most:,} users"
        self._progress(f"Search {numbers}, in {capacity.directory}")
        for step in capacity.steps:
            self._show_ended(step)
        if capacity.steps:
            self._progress(f"Resumed after {len(capacity.steps)} steps, which are not repeated")

    def began_step(self, step: Measure) -> None:
        self._progress(f"Step: {step.users:,} users, {step.why}")

    def ended_step(self, step: MeasuredStep) -> None:
        assert self._capacity is not None
        self._capacity = replace(self._capacity, steps=(*self._capacity.steps, step))
        self._show_ended(step)
        self._print(step_text(step, self._width), sys.stderr if self._args.json else sys.stdout)

    def _show_ended(self, step: MeasuredStep) -> None:
        self._page.ended(" ".join(step_text(step, PAGE_WIDTH).split()), TONES.get(step.result, "doubtful"))

    def stopped(self) -> None:
        """Print what an error in a step leaves: the answer, unless the error came before it, or else what is known."""
        if self._capacity is None:
            return
        with suppress(ConfigError):  # unfinished
            self.answer(read_capacity(self._capacity.directory))
            return
        if self._capacity.steps:
            print_line(f"loadsim: {so_far(self._capacity)}; {self.resume} goes on")

    def answer(self, capacity: Capacity) -> None:
        verdict = capacity_text(capacity, PAGE_WIDTH).partition("\n")[0]
        self._page.answered(verdict, tone(capacity), capacity.directory)
        if self._args.json:
            self._print(json.dumps(capacity.document, indent=2), sys.stdout)
        else:
            self._print(f"\n{capacity_text(capacity, self._width)}\n\nSteps: {capacity.directory}", sys.stdout)

    def report(self, path: Path) -> None:
        if not self._args.json:
            self._print(f"Report: {path}", sys.stdout)

    @contextmanager
    def watch(self, scenario: Scenario) -> Iterator[Watcher]:
        with closing(RunView(quiet=self._args.quiet)) as view:
            yield LiveRun(scenario, self._page, view, title=f"{scenario.name}, {scenario.users:,} users")

    def _progress(self, line: str) -> None:
        if not self._args.quiet:
            print_line(line)

    def _print(self, text: str, stream: object) -> None:
        with suppress(BrokenPipeError):  # the reader closed the pipe; go on measuring
            print(text, file=stream, flush=True)  # type: ignore[call-overload]
