"""`loadsim run`: a scenario on a server, from the preflight to the score."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loadsim import __version__
from loadsim.cli import VERBS
from loadsim.cli.live import shown_run
from loadsim.cli.progress import shown_progress
from loadsim.client.clock import MonotonicClock
from loadsim.client.engine import Engine
from loadsim.client.events import Events
from loadsim.client.modules import check_protocols, open_modules
from loadsim.errors import ConfigError, LogError, RunInvalid
from loadsim.model.content import Contents
from loadsim.model.population import distribution_lists
from loadsim.model.ports import ClientModule, Services
from loadsim.model.scenario import Scenario, Server, load_scenario
from loadsim.model.workload import Workload, plan_digest
from loadsim.report.answer import Summary, summarise
from loadsim.results.timinglog import TimingLogWriter
from loadsim.servers.embedded import start_embedded
from loadsim.topology.initialise import prepare
from loadsim.topology.mailboxes import services_of
from loadsim.topology.preflight import check_submission

ENGINE = "1"

FILES_PER_USER = 2
"""A mailbox session, and the connection of a message under way."""

OTHER_FILES = 64


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `run`."""
    parser = subparsers.add_parser("run", help=VERBS["run"])
    parser.add_argument("scenario", metavar="SCENARIO", help="a path, or the bare name of a shipped scenario")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run directory; default: runs/DATE-NAME")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY.PATH=VALUE")
    parser.add_argument("--json", action="store_true", help="print score.json instead of the answer")
    parser.set_defaults(run=run_scenario)


def run_scenario(args: argparse.Namespace) -> int:
    """Run, print the answer and where everything lies; the exit status is the verdict's."""
    scenario = load_scenario(args.scenario, args.overrides)
    check_protocols(scenario)
    workload = Workload(scenario)
    check_open_files(scenario.users)
    began = datetime.now(UTC)
    out = args.out or Path("runs") / f"{began:%Y%m%dT%H%M%S}-{part_of_a_path(scenario.name)}"
    made = [place for place in (out, *out.parents) if not place.exists()]
    new_run_directory(out)
    try:
        with (
            shown_server(scenario, out) as (services, server),
            asyncio.Runner(loop_factory=fastest_loop()) as runner,
        ):
            summary = runner.run(Run(scenario, workload, services, server, began, out).live())
    finally:
        if not any(out.rglob("*.tlog")):
            discard(out, made)
    with suppress(BrokenPipeError):  # whoever has seen enough of it gets the verdict all the same
        print(json.dumps(summary.score, indent=2) if args.json else f"{summary.text.rstrip()}\n\nRun directory: {out}")
    return summary.exit_status


def check_open_files(users: int) -> None:
    """Refuse what the limit of open files cannot hold. Raises `ConfigError` with the command that raises it."""
    needed = FILES_PER_USER * users + OTHER_FILES
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise ConfigError(
            f"open files: expected a limit of at least {needed} for {users} users, found {limit}:"
            f" raise it with `ulimit -n {needed}`"
        )


def part_of_a_path(name: str) -> str:
    """A scenario's name as it may stand in the name of a directory: no slash in it leads out of `runs`."""
    return re.sub(r"[^\w.-]+", "-", name)[:60]


def new_run_directory(path: Path) -> None:
    """Make the run directory. Raises `ConfigError` unless it is new, or empty."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigError(f"--out {path}: expected a new or empty directory, found files in it")
    except OSError as error:
        raise ConfigError(f"--out {path}: expected a directory to write to, found: {error.strerror}") from None


def discard(out: Path, made: Sequence[Path]) -> None:
    """Remove the directories made for a run that never began; what a server left to read stays, and so do they."""
    with suppress(OSError):
        for left in out.iterdir():
            if left.is_file() and not left.stat().st_size:
                left.unlink()
        for place in made:
            place.rmdir()


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed (`loadsim[fast]`)."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory


@contextmanager
def shown_server(scenario: Scenario, out: Path) -> Iterator[tuple[Services, str]]:
    """Where the server under test listens, and what it is called; the embedded one lives as long as this block."""
    if isinstance(scenario.server, Server):
        services = services_of(scenario)
        yield services, f"{services.imap.host}:{services.imap.port}"
        return
    accounts = [scenario.account(index) for index in range(1, scenario.users + 1)]
    with start_embedded(accounts, distribution_lists(scenario), out) as server:
        services = replace(
            server.services, command_limit_s=scenario.limits.command_s, submission=scenario.client.submission
        )
        yield services, server.describe()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario on a server that is there."""

    scenario: Scenario
    workload: Workload
    services: Services
    server: str
    began: datetime
    out: Path

    async def live(self) -> Summary:
        """Check and prepare the mailboxes, then make the load; what was measured stays whatever happens then.

        Raises `ConfigError` for everything that is wrong before there is any load, `RunInvalid` when the log is gone
        afterwards.
        """
        contents = Contents(self.workload.seed)
        modules = open_modules(self.workload, contents, self.services)
        await check_submission(self.workload, self.services)
        with shown_progress() as tell:
            prepared = await prepare(self.scenario, self.workload, self.services, tell)
        print(prepared.describe(), file=sys.stderr)
        contents.prepare()
        run_id = f"{self.began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        client = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "client"
        header = self._header(run_id, client, prepared.start_state)
        path = self.out / "logs" / f"{client}.{ENGINE}.tlog"
        clock = MonotonicClock()
        try:
            path.parent.mkdir()
            (self.out / "scenario.yaml").write_text(self.scenario.to_yaml(), encoding="utf-8")
            told = (self.out / "events.jsonl").open("w", encoding="utf-8")
            epoch_ns, epoch = clock.now_ns(), datetime.now(UTC)
            log = TimingLogWriter(path, {**header, "wall_clock_start": epoch.isoformat()}, epoch_ns)
        except OSError as failure:
            raise ConfigError(f"--out {self.out}: expected a directory to write to, found: {failure}") from None
        with told:
            events = Events(told)
            try:
                await self._make_load(run_id, modules, contents, log, events, clock)
            finally:
                _close(log, events)
        try:
            summary = summarise([path])
        except LogError as failure:
            raise RunInvalid(f"the run has ended, but what it measured is gone: {failure}") from None
        _write(self.out / "score.json", json.dumps(summary.score, indent=2))
        _write(self.out / "answer.txt", summary.text)
        return summary

    async def _make_load(
        self,
        run_id: str,
        modules: Mapping[str, ClientModule],
        contents: Contents,
        log: TimingLogWriter,
        events: Events,
        clock: MonotonicClock,
    ) -> None:
        """Run the engine until its end, or until the user has had enough."""
        with shown_run(self.scenario) as watch:
            engine = Engine(
                workload=self.workload,
                users=range(1, self.scenario.users + 1),
                modules=modules,
                contents=contents,
                recorder=log,
                events=events,
                clock=clock,
                run_id=run_id,
                wall_clock_us=time.time_ns() // 1000,
                watch=watch,
            )
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, engine.stop)
            await engine.run()

    def _header(self, run_id: str, client: str, start_state: str | None) -> dict[str, Any]:
        scenario, run = self.scenario, self.scenario.run
        return {
            "software": f"loadsim {__version__}",
            "event_loop": type(asyncio.get_running_loop()).__module__,
            "run": run_id,
            "name": scenario.name,
            "client": client,
            "engine": ENGINE,
            "server": self.server,
            "embedded": not isinstance(scenario.server, Server),
            "submission": scenario.client.submission,
            "scenario_digest": scenario.digest(),
            "plan_digest": plan_digest(self.workload),
            "start_state_digest": start_state,
            "users": scenario.users,
            "engine_users": scenario.users,
            "profiles": sorted({group.profile.name for group in scenario.topology}),
            "day_s": run.day_length_s,
            "compression": scenario.compression,
            "duration_s": scenario.duration_s,
            "window_s": [run.warm_up_s, run.warm_up_s + run.window_s],
            "weights": scenario.weights,
            "criteria": asdict(scenario.criteria),
            "limits": {
                "lost_users": scenario.limits.lost_users,
                "done": scenario.limits.done,
                "hits": scenario.limits.hits,
                "window_s": scenario.limits.window_s,
                **{f"generator_{name}": limit for name, limit in asdict(scenario.limits.generator).items()},
            },
        }


def _close(log: TimingLogWriter, events: Events) -> None:
    """Close the log. What a full disk did not take is lost now, and is said; the answer finds that it has no end."""
    try:
        log.close()
    except OSError as failure:
        events.say("log incomplete", why=str(failure))
        print(f"loadsim: timing log incomplete: {failure}", file=sys.stderr)


def _write(path: Path, text: str) -> None:
    """Write a file of results; where the disk does not take it, the results are still printed."""
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as failure:
        print(f"loadsim: {path} not written: {failure.strerror}", file=sys.stderr)
