"""`loadsim suite`: the runs of a matrix, in an order, with commands around each."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from loadsim.analysis.suite import FAILED, SuiteFigures, SuiteRun
from loadsim.analysis.summary import Tone
from loadsim.cli.live_figures import LiveRun, Page
from loadsim.cli.progress import shown_share, shown_work
from loadsim.cli.report_file import check_place, content, format_of, write
from loadsim.cli.run_view import RunView
from loadsim.cli.show import schema_file
from loadsim.cli.shown_answer import width_and_colours
from loadsim.cli.stderr_lines import print_line
from loadsim.cli.web.publish import add_web, shown_page
from loadsim.errors import ConfigError
from loadsim.model.scenario import Scenario
from loadsim.model.scenario_document import EMBEDDED
from loadsim.model.suite import GIVEN, Slot, Suite, load_suite
from loadsim.model.workload import Workload
from loadsim.report.digits import count
from loadsim.report.suite_report import describe_suite
from loadsim.report.suite_text import headline, run_text, suite_text, time_words, tone
from loadsim.report.table import table
from loadsim.runs.resumable import Interrupted
from loadsim.runs.suite import Scenarios, run_suite, status_of
from loadsim.runs.suite_cells import scenarios_of
from loadsim.runs.watcher import Watcher

ENDED_EARLY = 3
"""The exit status of a suite that was interrupted in a run."""

REPORT = "--report"


class _Schema(argparse.Action):
    """Prints the JSON Schema of suite files, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        sys.stdout.write(schema_file("suites").read_text(encoding="utf-8"))
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="a path, or the bare name of a shipped suite")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory of the suite, new, or of one to resume; default: in runs"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="print the order of the runs, their time and, with --out, what has been done; run nothing",
    )
    parser.add_argument(
        REPORT,
        type=Path,
        metavar="FILE",
        help="also write a report; its suffix is the format: .html, .md or .json",
    )
    parser.add_argument("--json", action="store_true", help="print suite.json instead of the text")
    parser.add_argument(
        "--quiet", action="store_true", help="print only the lines of runs, answer, warnings and errors"
    )
    add_web(parser)
    parser.add_argument("--schema", nargs=0, action=_Schema, help="print the JSON Schema of suites for editors")
    parser.set_defaults(run=run_command)


def run_command(args: argparse.Namespace) -> int:
    """List the runs of a suite, or make them with a line for each, and print the answer. Return 0, 1, 3 or 4."""
    suite = load_suite(args.suite)
    if args.list:
        for option, given in ((REPORT, args.report), ("--web", args.web)):
            if given:
                raise ConfigError(f"{option}: expected runs, found --list")
        return _list(suite, args)
    chosen = format_of(REPORT, args.report) if args.report else ""
    if args.report:
        check_place(REPORT, args.report)
    with shown_page(args, next(iter(scenarios_of(suite, passwords=False).values())), suite.name) as page:
        return _run(args, suite, _Shown(args, suite, page), page, chosen)


def _run(args: argparse.Namespace, suite: Suite, shown: _Shown, page: Page, chosen: str) -> int:
    try:
        figures = run_suite(
            suite,
            args.out,
            watch=shown.watch,
            planning=shown.planning,
            begun=shown.begun,
            began_run=shown.began_run,
            ended_run=shown.ended_run,
            began_commands=page.commands,
        )
    except Interrupted as interrupted:
        print_line(f"loadsim: {interrupted.in_words('run', shown.resume)}")
        return ENDED_EARLY
    except KeyboardInterrupt:
        if shown.resume:
            print_line(f"loadsim: {shown.resume} resumes this suite")
        raise
    shown.answer(figures)
    if args.report:
        with shown_work("Drawing the report"):
            document = describe_suite(figures)
        write(content(document, chosen), args.report, REPORT)
        if not args.json:
            _print(f"Report: {args.report}", sys.stdout)
    return figures.exit_status


class _Shown:
    """Shows a suite: its runs and its answer on standard output, the progress of each run on standard error."""

    def __init__(self, args: argparse.Namespace, suite: Suite, page: Page) -> None:
        self._args = args
        self._suite = suite
        self._page = page
        self._run = ""
        self._scenarios: Scenarios = {}
        self._figures: SuiteFigures | None = None
        self.resume = ""

    def begun(self, figures: SuiteFigures, scenarios: Scenarios) -> None:
        self._scenarios, self._figures = scenarios, figures
        self.resume = f"the same command with --out {shlex.quote(str(figures.directory))}"
        self._progress(f"Suite {figures.name}: {count(figures.left, 'run')} left, in {figures.directory}")
        if figures.runs:
            self._progress(f"Resumed after {count(len(figures.runs), 'run')}, which are not repeated")
        for run in figures.runs:
            self._show_ended(run)
        for warning in dict.fromkeys(
            warning for scenario in scenarios.values() for warning in (*scenario.exposed, *scenario.warnings)
        ):
            print_line(f"loadsim: warning: {warning}")

    def began_run(self, slot: Slot, attempt: int) -> None:
        assert self._figures is not None
        left_s = time_left_s(self._suite, self._figures, self._scenarios)
        retry = f", retry {attempt - 1}" if attempt > 1 else ""
        self._run = f"Run {slot.number} of {self._figures.total}: {slot.cell.name}, repeat {slot.repeat}{retry}"
        self._progress(f"{self._run}; about {time_words(left_s)} left")

    def ended_run(self, figures: SuiteFigures) -> None:
        self._figures = figures
        self._show_ended(figures.runs[-1])
        _print(run_text(figures.runs[-1], figures.total), sys.stderr if self._args.json else sys.stdout)

    def _show_ended(self, run: SuiteRun) -> None:
        assert self._figures is not None
        tones: Mapping[str | None, Tone] = {"valid": "good", "degraded": "doubtful"}
        tone = tones.get(run.validity, "bad") if run.passed else "bad"
        self._page.ended(run_text(run, self._figures.total), tone)

    def answer(self, figures: SuiteFigures) -> None:
        state = headline(figures)
        self._page.answered(f"Suite {figures.name}: {state}", tone(figures), figures.directory)
        text = f"\n{suite_text(figures, width_and_colours()[0])}\n\nSuite directory: {figures.directory}"
        _print(json.dumps(figures.document, indent=2) if self._args.json else text, sys.stdout)

    def planning(self) -> AbstractContextManager[Any]:
        return shown_share("Planning")

    @contextmanager
    def watch(self, scenario: Scenario) -> Iterator[Watcher]:
        with closing(RunView(quiet=self._args.quiet)) as view:
            yield LiveRun(scenario, self._page, view, title=f"{self._suite.name}: {self._run}")

    def _progress(self, line: str) -> None:
        if not self._args.quiet:
            print_line(line)


def _print(text: str, stream: object) -> None:
    with suppress(BrokenPipeError):  # the reader closed the pipe; go on measuring
        print(text, file=stream, flush=True)  # type: ignore[call-overload]


# --- the time ---------------------------------------------------------------------------------------------------------


def planned_s(scenario: Scenario) -> float:
    """Return the time of a run without preparation and commands: ramp-up and work."""
    return scenario.run.ramp_up_s + scenario.duration_s


def time_left_s(suite: Suite, figures: SuiteFigures, scenarios: Scenarios) -> float:
    """Return about how long the runs that are left take: as the cell's runs before, or as planned."""
    taken: dict[str, list[float]] = {}
    for run in figures.runs:
        if run.took_s is not None and run.result != FAILED:
            taken.setdefault(run.cell, []).append(run.took_s)
    done = figures.done
    left = [slot.cell.name for slot in suite.slots if slot.number not in done]
    each = {
        name: sum(taken[name]) / len(taken[name]) if name in taken else planned_s(scenarios[name]) for name in set(left)
    }
    return sum(each[name] for name in left) + suite.pause_s * max(0, len(left) - 1)


# --- the list ---------------------------------------------------------------------------------------------------------


def _list(suite: Suite, args: argparse.Namespace) -> int:
    """Print the order of the runs, their time, and what is prepared before them."""
    figures, scenarios = status_of(suite, args.out)
    runs = {run.number: run for run in figures.runs} if figures else {}
    if args.json:
        _print(json.dumps(_listed(suite, scenarios, runs), indent=2), sys.stdout)
        return 0
    order = "given order, every second repeat reversed" if suite.order == GIVEN else f"random order, seed {suite.seed}"
    total_s = sum(planned_s(scenarios[slot.cell.name]) for slot in suite.slots) + suite.pause_s * (len(suite.slots) - 1)
    lines = [
        f"Suite {suite.name}: {count(len(suite.slots), 'run')}: {count(len(suite.cells), 'cell')},"
        f" {count(suite.repeats, 'repeat')} each; {order}",
        f"Time: at least {time_words(total_s)} (preparation, mail in transit and commands not counted)",
        "",
        *table(
            [
                ("Run", "Repeat", "Time", "State"),
                *(
                    (
                        f"{slot.number:3} {slot.cell.name}",
                        str(slot.repeat),
                        time_words(planned_s(scenarios[slot.cell.name])),
                        runs[slot.number].result if slot.number in runs else "to do",
                    )
                    for slot in suite.slots
                ),
            ]
        ),
        "",
        "Before each run:",
        *(f"  {name}: {_prepared(suite, name, scenario)}" for name, scenario in scenarios.items()),
    ]
    _print("\n".join(lines), sys.stdout)
    return 0


PREPARED = {
    "auto": "{mailboxes} with {messages} are restored",
    "always": "{mailboxes} are filled with {messages}",
    "never": "nothing in {mailboxes} is prepared",
    "trust": "some of {mailboxes} with {messages} are inspected",
}
"""The preparation before a run, by the value of `initialise`."""


def _prepared(suite: Suite, name: str, scenario: Scenario) -> str:
    """Return what happens before the runs of a cell, in words."""
    cell = next(one for one in suite.cells if one.name == name)
    workload = Workload(scenario)
    messages = sum(sum(workload.start_state(user).values()) for user in range(1, scenario.users + 1))
    words = PREPARED["always" if scenario.server == EMBEDDED else scenario.initialise].format(
        mailboxes=f"{scenario.users:,} mailboxes", messages=count(messages, "message")
    )
    programs = [f"command {hook.program}" for hook in cell.before]
    after = [f"after the run, command {hook.program}" for hook in cell.after]
    return "; ".join([*programs, words, *after])


def _listed(suite: Suite, scenarios: Scenarios, runs: Mapping[int, SuiteRun]) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "number": slot.number,
            "cell": slot.cell.name,
            "repeat": slot.repeat,
            **slot.cell.levels,
            "planned_s": planned_s(scenarios[slot.cell.name]),
            "result": runs[slot.number].result if slot.number in runs else None,
        }
        for slot in suite.slots
    ]
