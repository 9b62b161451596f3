"""One run, from its mailboxes to its answer: everything between what was asked for and what is printed."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from loadsim.analysis.summary import Summary, summarise
from loadsim.cli.live_view import Watch, shown_run
from loadsim.cli.progress import shown_progress
from loadsim.cli.scheduled_start_options import common_run, expectation, time_to_begin
from loadsim.engine.abort import AbortCheck
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.coordinator import Coordinator
from loadsim.engine.event_log import Events, closed_at_last
from loadsim.engine.event_loop import requests_are
from loadsim.engine.process import Begin
from loadsim.engine.scheduled_start import ScheduledStart
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError, LogError, RunInvalid
from loadsim.model.partition import Assignment, Slice, all_users
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload, plan_digest
from loadsim.monitor.filesystems import server_storage
from loadsim.monitor.host import open_machine_log, watched_machine
from loadsim.protocols.registry import check_drivers
from loadsim.provisioning.initialise import prepare
from loadsim.provisioning.preflight import check_submission
from loadsim.report.summary_text import answer_text
from loadsim.runs.log_header import run_header
from loadsim.timinglog.planned_load import PlannedLoad
from loadsim.timinglog.writer import TimingLogWriter


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario on a server that is there; `seen` are facts about where it is.

    `publish` is shown each snapshot, and so is a screen, unless it is `quiet`. `part` is the slice of it that this
    machine makes, and `start` the common start that was agreed on; None: all of it, and as soon as everybody is on.
    `load` is that of the plan, None if it is not known.
    """

    scenario: Scenario
    workload: Workload
    services: Services
    server: str
    seen: Mapping[str, Any]
    began: datetime
    out: Path
    engines: int
    quiet: bool
    publish: Watch
    part: Slice | None = None
    start: datetime | None = None
    load: PlannedLoad | None = None

    @property
    def hand(self) -> Assignment:
        """The users of this machine."""
        return self.part.assignment(self.scenario.users) if self.part else all_users(self.scenario.users)

    async def live(self) -> Summary:
        """Check and prepare the mailboxes, then make the load; what was measured stays whatever happens then.

        Raises `ConfigError` for everything that is wrong before there is any load, `RunInvalid` when the log is gone
        afterwards.
        """
        check_drivers(self.scenario, self.services)
        await check_submission(self.workload, self.services, self.hand)
        with shown_progress(quiet=self.quiet) as tell:
            prepared = await prepare(self.scenario, self.workload, self.services, tell, self.hand)
        if not self.quiet:
            print(prepared.describe(), file=sys.stderr)
        if self.start is not None:
            if not self.quiet:
                print(expectation(self.start), file=sys.stderr)
            await time_to_begin(self.start, self.scenario.run.ramp_up_s)
        begins = self._begins(prepared.start_state)
        try:
            await self._recorded(begins)
        except ConfigError:  # before there was any load
            withdraw(self.out)
            raise
        return summary_of(self.out)

    async def _recorded(self, begins: Sequence[Begin]) -> None:
        """Make the load, with all files that are about it but its answer. Raises `ConfigError` when it cannot begin."""
        try:
            (self.out / "logs").mkdir()
            (self.out / "scenario.yaml").write_text(self.scenario.to_yaml(), encoding="utf-8")
            told = (self.out / "events.jsonl").open("w", encoding="utf-8")
            machine_log = open_machine_log(self.out / "logs", begins[0].header)
        except OSError as failure:
            raise ConfigError(f"--out {self.out}: expected a directory to write to, found: {failure}") from None
        with closed_at_last(told):
            events = Events(told)
            for warning in self.scenario.in_the_clear:
                events.say("warning", what=warning)
            try:
                await self._make_load(begins, events, machine_log)
            finally:
                with suppress(OSError):  # a full disk; no figure of the answer but the machine's is from it
                    machine_log.close()
                if events.unwritten:
                    print(f"loadsim: {events.unwritten} lines of events.jsonl not written", file=sys.stderr)

    async def _make_load(self, begins: Sequence[Begin], events: Events, machine_log: TimingLogWriter) -> None:
        """Run the engines until their end, or until the user has had enough, or there is no hope for the run."""
        hopeless = AbortCheck(self.scenario.abort_on, len(self.hand))

        def watch(snapshot: LiveSnapshot) -> None:
            self.publish(snapshot)
            show(snapshot)
            why = hopeless.judge(snapshot) or (agreed and agreed.judge(snapshot))
            if why and not pool.stopped:
                give_up(why)

        def give_up(why: str) -> None:
            events.say("abort", why=why)
            machine_log.facts({"ended_why": why})
            pool.stop()

        agreed = self._agreed(give_up)
        with shown_run(self.scenario, quiet=self.quiet) as show:
            pool = Coordinator(begins, events, watch, agreed)
            with requests_are(pool.stop):
                look = partial(server_storage, self.services)
                async with watched_machine(machine_log, MonotonicClock(), lambda: pool.start_ns, self.seen, look):
                    await pool.run()

    def _agreed(self, give_up: Callable[[str], None]) -> ScheduledStart | None:
        """What keeps this machine in step with others that it does not hear of, or at least to the instant."""
        if self.start is None:
            return None
        work_s = self.scenario.duration_s + self.scenario.limits.grace_s
        return ScheduledStart(self.start, work_s=work_s, part=self.part is not None, give_up=give_up)

    def _begins(self, start_state: str | None) -> list[Begin]:
        """What each engine is told to begin with."""
        agreed = self.part and self.start
        run_id = common_run(agreed, self.scenario) if agreed else new_run_name(self.began)
        client = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "client"
        client += f"-slice{self.part.number}" if self.part else ""
        header = {
            **run_header(
                self.workload,
                run_id,
                self.server,
                plan_digest(self.workload),
                start_state,
                self.part,
                self.start,
                self.load,
            ),
            "client": client,
            "engines": self.engines,
        }
        begins = []
        for engine, hand in enumerate(self.hand.cut([1] * self.engines), 1):
            own = {"engine": str(engine), "engine_users": len(hand), "hand": asdict(hand)}
            log = self.out / "logs" / f"{client}.{engine}.tlog"
            begins.append(Begin(self.scenario, self.services, hand, str(log), {**header, **own}))
        return begins


def withdraw(out: Path) -> None:
    """Remove the files of a run that did not begin."""
    shutil.rmtree(out / "logs", ignore_errors=True)
    for name in ("scenario.yaml", "events.jsonl"):
        (out / name).unlink(missing_ok=True)


def new_run_name(began: datetime) -> str:
    """A name for a run that nobody else has to come to by himself."""
    return f"{began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def summary_of(out: Path) -> Summary:
    """The answer of the logs in a run directory, written there, too. Raises `RunInvalid` when they are gone."""
    try:
        summary = summarise([out])
    except LogError as failure:
        raise RunInvalid(f"the run has ended, but what it measured is gone: {failure}") from None
    _write(out / "score.json", json.dumps(summary.score, indent=2))
    _write(out / "answer.txt", answer_text(summary))
    return summary


def _write(path: Path, text: str) -> None:
    """Write a file of results, or none: where the disk does not take it whole, the results are still printed."""
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as failure:
        with suppress(OSError):
            path.unlink()
        print(f"loadsim: {path} not written: {failure.strerror}", file=sys.stderr)
