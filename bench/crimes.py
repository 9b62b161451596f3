"""`python -m bench.crimes`: which verdict does each crime of a server get?

Runs in virtual time on the in-memory mail system, which does one of `misdeeds.CRIMES`: 40 Medium users, a day of four
minutes, three of them scored. `--write` puts the table into docs/explanation/verdicts.md. `--healthy` makes many runs
on a server that does nothing wrong, each with a seed of its own; all of them have to pass.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.audit_in_memory import audit_in_memory
from bench.misdeeds import ACCEPTED, BEGIN_S, CRIMES, NONE, Command, Crime
from bench.table import put_into, table
from loadsim.analysis.summary import summarise, summary_of
from loadsim.audit.audit import record_of
from loadsim.dryrun.plan import DayPlan, make_plan
from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.engine.control import StandaloneControl
from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.errors import ServerLost, TaskFailed
from loadsim.model.content.compose import Contents
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.runs.log_header import run_header
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.reader import read_log
from loadsim.timinglog.writer import TimingLogWriter

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "verdicts.md"
MARK = "<!-- Made by `python -m bench.crimes --write`; do not edit. -->"

USERS = 40
SERVICE_S = 0.020
"""Of a command, on average."""

SHOWN_REASONS = 3

BEGUN = "2026-01-05T08:00:00+00:00"
"""When these runs begin, by their logs, unless they are compared."""


def scenario_of(place: Path, seed: int = 1) -> Scenario:
    """The scenario of every run, written below `place`; with the default criteria and limits."""
    nowhere = {"host": "localhost"}
    document = {
        "name": "crimes",
        "server": {"imap": nowhere, "smtp": nowhere},
        "accounts": {"user": "user{index}", "password": "any"},
        "topology": [{"profile": "loadsim-5.5/medium", "users": USERS, "protocol": "fake"}],
        "run": {"day_length": "240s", "ramp_up": "4s", "warm_up": "40s", "window": "180s", "seed": seed},
    }
    path = place / "crimes.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    return load_scenario(str(path))


class _Scene(StandaloneControl):
    """The place of a crime: what the in-memory mail system asks about each command. Also the engine's control."""

    def __init__(self, crime: Crime, clock: VirtualLoop) -> None:
        super().__init__(clock)
        self._crime = crime
        self._start_ns: int | None = None
        self.driver: InMemoryDriver
        self.engine: Engine

    async def common_start(self) -> int:
        """From then on, the crime has its time."""
        self._start_ns = start_ns = await super().common_start()
        if self._crime.breaks:
            asyncio.get_running_loop().call_later(BEGIN_S, self._break_sessions)
        if self._crime.strikes is not None:
            asyncio.get_running_loop().call_later(BEGIN_S, self._crime.strikes, self.driver)
        return start_ns

    def fault(self, user: int, name: str, number: int) -> TaskFailed | None:
        """`InMemoryDriver.fault`."""
        task = self.engine.users[user - 1].recorder.performing
        command = Command(user, task, name, number, self._at_s(self.engine.now_ns()))
        return self._crime.fails(command) if self._crime.affects(user) else None

    def pace(self, user: int, _: str, at_ns: int, service_s: float) -> float:
        """`InMemoryDriver.pace`."""
        return self._crime.takes_s(self._at_s(at_ns), service_s) if self._crime.affects(user) else service_s

    def _at_s(self, at_ns: int) -> float:
        """The instant, from the common start; -1 before it."""
        return -1.0 if self._start_ns is None else (at_ns - self._start_ns) * 1e-9

    def _break_sessions(self) -> None:
        for user, mailbox in self.driver.mailboxes.items():
            if self._crime.affects(user):
                mailbox.break_off(ServerLost("connection lost"))


def commit(
    crime: Crime, plan: DayPlan, log: Path, contents: Contents, *, run: str = "run", begun: str = BEGUN
) -> InMemoryDriver:
    """Make a run of this plan in virtual time on a server that does this, recorded in a timing log. Return the server.

    `run` and `begun` are its name and time in the log.
    """
    scenario = plan.scenario
    workload = Workload(scenario)
    header = run_header(workload, run, "in memory", plan.digest, None, load=plan.tally.load())
    own = {"client": "virtual", "engines": 1, "engine": "1", "engine_users": scenario.users}

    servers: list[InMemoryDriver] = []

    async def main(clock: VirtualLoop) -> None:
        scene = _Scene(crime, clock)
        scene.driver = driver = InMemoryDriver(
            workload, contents, SERVICE_S, fault=scene.fault, pace=scene.pace, limit_s=scenario.limits.command_s
        )
        driver.post = crime.post and crime.post(driver)
        driver.mailbox_type = crime.mailbox_type
        writer = TimingLogWriter(log, {**header, **own, "wall_clock_start": begun}, clock.now_ns())
        load = EngineLoad(workload, range(1, scenario.users + 1), {"fake": driver}, contents, "run")
        options = EngineOptions(clock, control=scene, owns_process=False)  # in virtual time, nothing of ours is late
        scene.engine = Engine(load, EngineRecords(writer, Events(None)), options)
        await scene.engine.run()
        writer.close()
        servers.append(driver)

    run_virtual(main)
    return servers[0]


@dataclass(frozen=True, slots=True)
class Row:
    """A crime, and what the answer to its run says."""

    crime: Crime
    score: dict[str, Any]
    audited: dict[str, Any]
    """The score of the same run with an audit."""

    @property
    def passes(self) -> bool:
        """Return whether the run is believed, and meets the criteria."""
        return _passes(self.score)

    @property
    def passes_audited(self) -> bool:
        """Return the same with an audit."""
        return _passes(self.audited)

    @property
    def verdict(self) -> str:
        """Its validity, and whether criteria were met."""
        return _verdict(self.score)

    @property
    def reasons(self) -> list[str]:
        """The load made, if it is too small, the missed criteria, those of mail first, and other faults."""
        verdict = self.score["verdict"]
        missed = [each for each in verdict["criteria"] if not each["passed"]]
        names = [f"tasks' {each['name'].rpartition('.')[2]}" if each["each"] else each["name"] for each in missed]
        names.sort(key=lambda name: not name.startswith("delivery."))
        load = [f"{self.score['load']['share']:.1%} of the load"] if verdict["validity"] != "valid" else []
        missed = [each["code"] for each in self.score["findings"] if each["severity"] == "missed"]
        return [*load, *dict.fromkeys(names), *(code for code in missed if "criterion-" not in code)]


def _passes(score: dict[str, Any]) -> bool:
    verdict = score["verdict"]
    return verdict["validity"] != "invalid" and bool(verdict["passed"])


def _verdict(score: dict[str, Any]) -> str:
    verdict = score["verdict"]
    return f"{verdict['validity']}, {'met' if verdict['passed'] else 'missed'}"


def judged(crimes: Iterable[Crime], seed: int = 1) -> list[Row]:
    """Make a run for each crime, and read its answer."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        plan = make_plan(scenario_of(Path(place), seed))
        contents = Contents(seed)
        for number, crime in enumerate(crimes):
            log = Path(place) / f"{number}.tlog"
            driver = commit(crime, plan, log, contents)
            records = read_log(log)
            with audit_in_memory(log.with_suffix(".sqlite"), records, driver, "run") as (file, totals):
                audited = replace(records, audit=record_of("run", plan.scenario, totals, file))
            rows.append(Row(crime, summarise([records]).score, summary_of(audited).score))
    return rows


def document(rows: Iterable[Row]) -> str:
    """The table as Markdown."""
    head = ["crime", "score, ms", "response score, ms", "validity, criteria", "with an audit", "why"]
    return table(head, map(_cells, rows))


def _cells(row: Row) -> list[str]:
    scores = [_ms(row.score[name]) for name in ("score_ms", "response_score_ms")]
    first, others = row.reasons[:SHOWN_REASONS], row.reasons[SHOWN_REASONS:]
    why = ", ".join(first) + (f", {len(others)} more" if others else "")
    if row.passes:
        why = ACCEPTED.get(row.crime.title, "")
    return [row.crime.title, *scores, row.verdict, _verdict(row.audited), why]


def _ms(figure: float | str | None) -> str:
    return "none" if figure is None else "infinite" if figure == "inf" else f"{float(figure):,.0f}"


def healthy(runs: int) -> bool:
    """Return whether as many healthy runs pass, audited or not, each with its own seed; print how, or why not."""
    rows = []
    for seed in range(1, runs + 1):
        rows += judged([NONE], seed)
        if rows[-1].reasons:
            print(f"seed {seed}: {rows[-1].verdict}: {'; '.join(rows[-1].reasons)}", flush=True)
    passed = sum(row.passes and row.passes_audited for row in rows)
    figures = [(row.score["score_ms"], row.score["response_score_ms"], row.score["load"]["share"]) for row in rows]
    scores_ms, responses_ms, loads = zip(*figures, strict=True)
    print(
        f"{passed} of {runs} healthy runs pass: score {_ms(min(scores_ms))} to {_ms(max(scores_ms))} ms,"
        f" response score {_ms(min(responses_ms))} to {_ms(max(responses_ms))} ms,"
        f" {min(loads):.1%} to {max(loads):.1%} of the plan's load"
    )
    return passed == runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or write it; or make healthy runs, and return 1 when one does not pass."""
    parser = argparse.ArgumentParser(prog="python -m bench.crimes", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    parser.add_argument("--healthy", type=int, metavar="RUNS", help="no table, but so many runs without a crime")
    args = parser.parse_args(arguments)
    if args.healthy is not None:
        return 0 if healthy(args.healthy) else 1
    text = document(judged(CRIMES))
    if args.write:
        put_into(PAGE, text, MARK)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
