"""The runner of campaigns: one run after another, between pauses and commands, each recorded when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from loadsim.analysis.summary import Summary
from loadsim.campaign.file import HOOKS, RUNS, finished_summary, set_aside, write
from loadsim.campaign.hooks import run_hook
from loadsim.campaign.quiet_down import QUIET_DOWN, QuietDown
from loadsim.campaign.runs import LONGEST_FAILURE, Campaign, CampaignRun, HookResult
from loadsim.errors import ConfigError, RunInvalid, printable
from loadsim.findings.severity import Cause
from loadsim.processes.signals import handled_by, noticed_signals
from loadsim.runs.result import RunResult
from loadsim.runs.watcher import SILENT, Watcher
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.suite import Hook

C = TypeVar("C", bound=Campaign)


class Runner(Protocol):
    """Makes a run in a new directory. Raises `ConfigError` and `RunInvalid`."""

    def __call__(self, scenario: Scenario, *, out: Path, watcher: Watcher) -> RunResult: ...


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The next run of a campaign: its record without figures, its scenario, and its description.

    The commands `before` and `after` it run in `place`, with these variables. `left_s` is about how long this run and
    the remaining ones will take, None if unknown.
    """

    run: CampaignRun
    scenario: Scenario
    words: str
    before: Sequence[Hook] = ()
    after: Sequence[Hook] = ()
    place: Path = Path()
    variables: Mapping[str, str] = field(default_factory=dict)
    left_s: float | None = None


class CampaignWatcher:
    """Receives the progress of a campaign, and passes on the progress of its runs. Override the methods of interest."""

    def __init__(self, watcher: Watcher = SILENT) -> None:
        self._watcher = watcher

    def begun(self, campaign: Campaign) -> None:
        """Report the campaign, with the runs that it already has, before its first new run."""

    def began(self, planned: PlannedRun) -> None:
        self._watcher.message(planned.words)

    def ended(self, campaign: Campaign) -> None:
        """Report that the last run of the campaign has ended."""

    def message(self, line: str) -> None:
        self._watcher.message(line)

    def watch(self, scenario: Scenario) -> AbstractContextManager[Watcher]:
        """Provide the watcher of a run with this scenario, for a block."""
        return nullcontext(self._watcher)


UNWATCHED = CampaignWatcher()
"""A watcher that ignores everything."""


class Interrupted(Exception):
    """A user interrupted a campaign, which can be resumed.

    `kept`: the last run had done its work and is recorded. Otherwise, it will be repeated.
    """

    def __init__(self, *, kept: bool = False) -> None:
        super().__init__()
        self.kept = kept


@dataclass(frozen=True, slots=True)
class Making:
    """Makes the runs of a campaign, with pauses in between.

    `finished` reads a run that a crash left behind. `goes_on`: a run that cannot be made is recorded; otherwise, it
    ends the campaign. The send queue cannot be seen from a cluster.
    """

    runner: Runner
    pause_s: float
    goes_on: bool
    on_cluster: bool = False
    watcher: CampaignWatcher = UNWATCHED
    quiet_down: QuietDown = QUIET_DOWN
    finished: Callable[[Path], Summary | None] = finished_summary

    def all(self, campaign: C, next_run: Callable[[C], tuple[C, PlannedRun | None]]) -> C:
        """Carry out the runs that `next_run` returns, until it returns None, and record each when it ends.

        Raises `Interrupted`, even if the last run had done its work when a signal arrived, and the exceptions that
        `next_run` and the runner raise.
        """
        self.watcher.begun(campaign)
        signalled = noticed_signals()
        while True:
            campaign, planned = next_run(campaign)
            if planned is None:
                return campaign
            if signalled():
                raise Interrupted(kept=True)
            self.watcher.began(planned)
            campaign = replace(campaign, runs=(*campaign.runs, self._made(campaign, planned, signalled)))
            write(campaign)
            self.watcher.ended(campaign)

    def _made(self, campaign: Campaign, planned: PlannedRun, signalled: Callable[[], bool]) -> CampaignRun:
        """Return a run that has already ended, or make it between its commands."""
        out = campaign.directory
        directory = out / planned.run.run
        run, began_s = planned.run, time.monotonic()
        before: tuple[HookResult, ...] = ()
        failure: str | None = None

        # 1. Read a run that a crash left behind, or set it aside.
        summary = self.finished(directory) if directory.exists() else None
        if summary is None:
            if directory.exists():
                set_aside(directory)
            if self.pause_s and (campaign.runs or any((out / RUNS).glob("*"))):
                self.watcher.message(f"Pausing for {self.pause_s:g} s, so that the server can deliver queued mail.")
                self.quiet_down.sleep(self.pause_s)

        # 2. Run between the commands.
        try:
            if summary is None:
                began_s = time.monotonic()
                run = replace(run, began=datetime.now(UTC).isoformat(timespec="seconds"))
                before, failure = self._hooks("before", out, planned)
                if failure is None:
                    summary, failure = self._measure(planned, directory)
            interrupted = signalled() if summary is None else Cause.ENDED in summary.verdict.causes
        finally:
            with handled_by(lambda _: None):  # a signal ends the campaign only after these commands
                after, _ = self._hooks("after", out, planned)

        # 3. Record it, unless a signal ended it or made it fail.
        if interrupted:
            if directory.exists():
                set_aside(directory)
            raise Interrupted
        run = replace(run, before=before, after=after)
        if run.began is not None:
            run = replace(run, took_s=round(time.monotonic() - began_s, 1))
        if summary is None:
            return replace(run, failure=printable(failure or "")[:LONGEST_FAILURE])
        return run.with_summary(summary)

    def _measure(self, planned: PlannedRun, directory: Path) -> tuple[Summary | None, str | None]:
        """Wait until the send queues that probes see are empty, and run. Return the summary, or why there is none."""
        with self.watcher.watch(planned.scenario) as watcher:
            try:
                if not self.on_cluster and (full := self.quiet_down.until_empty(planned.scenario, watcher)):
                    raise RunInvalid(
                        f"{full}, and the server would deliver the rest during this run; deliver (postqueue -f), delete"
                        " or hold it (postsuper -d or -h), and resume"
                    )
                return self.runner(planned.scenario, out=directory, watcher=watcher).summary, None
            except (ConfigError, RunInvalid) as error:
                if self.goes_on:
                    return None, str(error)
                raise

    def _hooks(
        self, when: Literal["before", "after"], out: Path, planned: PlannedRun
    ) -> tuple[tuple[HookResult, ...], str | None]:
        """Execute the commands before a run, up to the first that fails, or all commands after it.

        Return their results, and any failure before the run. Their outputs are files in the directory `HOOKS`, which
        also keeps the outputs of interrupted runs.
        """
        hooks = planned.before if when == "before" else planned.after
        results: list[HookResult] = []
        for number, hook in enumerate(hooks, 1):
            output = out / HOOKS / f"{Path(planned.run.run).name}.{when}-{number}.txt"
            output.parent.mkdir(exist_ok=True)
            if output.exists():
                set_aside(output)
            results.append(run_hook(hook, planned.place, planned.variables, output))
            if results[-1].failure is not None and when == "before":
                return tuple(results), f"command before the run failed: {results[-1].failure}"
        return tuple(results), None
