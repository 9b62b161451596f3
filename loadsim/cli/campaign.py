"""The options and the view of runs that `capacity` and `suite` share."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from loadsim.campaign.runner import CampaignWatcher, Interrupted, PlannedRun
from loadsim.campaign.runs import Campaign
from loadsim.campaign.tables import length_words, run_text
from loadsim.cli.live.figures import LiveRun
from loadsim.cli.live.run_view import RunView
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.shown_answer import shown, width_and_colours
from loadsim.errors import ConfigError, RunInvalid
from loadsim.findings.formats import count
from loadsim.report.document import Document
from loadsim.runs.watcher import Watcher
from loadsim.scenario.scenario import Scenario

C = TypeVar("C", bound=Campaign)

ENDED_EARLY = 3
"""The exit status of a campaign that was interrupted during a run."""


def add_campaign(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="directory for the runs, or the one to resume; default: a new one in runs",
    )
    parser.add_argument("--quiet", action="store_true", help="print only finished runs, answer, warnings and errors")


class CampaignView(CampaignWatcher):
    """Shows the finished runs of a campaign on standard output, and its progress on standard error."""

    def __init__(self, args: argparse.Namespace, name: str) -> None:
        super().__init__()
        self._args = args
        self._name = name
        self.campaign: Any = None

    @property
    def resume(self) -> str:
        return f"the same command with --out {shlex.quote(str(self.campaign.directory))}"

    def begun(self, campaign: Campaign) -> None:
        self.campaign = campaign
        resumed = f", resumed after {count(len(campaign.runs), 'run')}" if campaign.runs else ""
        self.message(f"Runs of {self._name} in {campaign.directory}{resumed}")

    def began(self, planned: PlannedRun) -> None:
        left = "" if planned.left_s is None else f"; about {length_words(planned.left_s)} left"
        self.message(f"{planned.words}{left}")

    def ended(self, campaign: Campaign) -> None:
        self.campaign = campaign
        print_line(run_text(campaign.runs[-1], width_and_colours()[0]), sys.stdout)

    def message(self, line: str) -> None:
        if not self._args.quiet:
            print_line(line)

    @contextmanager
    def watch(self, scenario: Scenario) -> Iterator[Watcher]:
        with closing(RunView(quiet=self._args.quiet)) as view:
            yield LiveRun(scenario, view)

    def made(self, make: Callable[[], C]) -> C | None:
        """Return the finished campaign, or None if it was interrupted; a line then says how to resume it."""
        try:
            return make()
        except Interrupted as interrupted:
            last = "after a run, which is kept" if interrupted.kept else "during a run, which will be repeated"
            print_line(f"loadsim: interrupted {last}; {self.resume} continues")
            return None
        except (KeyboardInterrupt, ConfigError, RunInvalid):
            if self.campaign is not None:
                print_line(f"loadsim: {self.resume} resumes these runs")
            raise

    def answer(self, campaign: Campaign, document: Document) -> None:
        print_line(f"\n{shown(document)}\n\nRuns: {campaign.directory}", sys.stdout)
