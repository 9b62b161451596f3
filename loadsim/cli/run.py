"""`loadsim run`: a scenario on a server, from the preflight to the score."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from loadsim import __version__
from loadsim.cli import VERBS
from loadsim.cli.live import Watch, shown_run
from loadsim.cli.progress import shown_progress
from loadsim.client.clock import MonotonicClock
from loadsim.client.engine_process import Begin
from loadsim.client.events import Events
from loadsim.client.hopeless import Hopeless
from loadsim.client.loops import fastest_loop, requests_are, run
from loadsim.client.modules import check_modules, check_protocols, needs_one_engine
from loadsim.client.pool import Pool, engines_for
from loadsim.client.snapshot import LiveSnapshot
from loadsim.errors import ConfigError, LogError, RunInvalid
from loadsim.model.population import distribution_lists
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario, Server, load_scenario
from loadsim.model.workload import Workload, plan_digest
from loadsim.monitor.greeting import greetings
from loadsim.monitor.machine import open_machine_log, this_machine, watched_machine
from loadsim.monitor.pin import describe, kept_apart
from loadsim.monitor.server import find_server
from loadsim.report.answer import Summary, summarise
from loadsim.report.html import FILE_NAME as REPORT_NAME
from loadsim.results.hand import deal
from loadsim.results.timinglog import TimingLogWriter
from loadsim.servers.embedded import start_embedded
from loadsim.topology.initialise import prepare
from loadsim.topology.mailboxes import services_of
from loadsim.topology.preflight import check_ports, check_sources, check_submission

FILES_PER_USER = 2
"""A mailbox session, and the connection of a message under way."""

OTHER_FILES = 64


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `run`."""
    parser = subparsers.add_parser("run", help=VERBS["run"])
    parser.add_argument("scenario", metavar="SCENARIO", help="a path, or the bare name of a shipped scenario")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run directory; default: runs/DATE-NAME")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY.PATH=VALUE")
    parser.add_argument("--engines", type=int, metavar="N", help="processes that make the load; default: one a core")
    parser.add_argument("--json", action="store_true", help="print score.json instead of the answer")
    parser.add_argument(
        "--pin", action="store_true", help="keep a server on this machine and the load apart, on cores of their own"
    )
    parser.add_argument("--no-report", action="store_true", help=f"make no {REPORT_NAME}")
    parser.add_argument("--quiet", action="store_true", help="say nothing but the answer, and what goes wrong")
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help="show there, to Prometheus, where the run stands")
    parser.set_defaults(run=run_scenario)


def run_scenario(args: argparse.Namespace) -> int:
    """Run, print the answer and where everything lies; the exit status is the verdict's."""
    scenario = load_scenario(args.scenario, args.overrides)
    check_protocols(scenario)
    workload = Workload(scenario)
    engines = how_many_engines(scenario, args.engines, args.pin)
    check_sources(scenario)
    check_ports(scenario)
    allow_open_files(ceil(scenario.users / engines))
    began = datetime.now(UTC)
    out = args.out or Path("runs") / f"{began:%Y%m%dT%H%M%S}-{part_of_a_path(scenario.name)}"
    made = new_run_directory(out)
    try:
        with (
            shown_metrics(args.metrics, args.quiet) as publish,
            shown_server(scenario, out) as (services, server),
            seen_server(services, engines, args.pin, args.quiet) as seen,
        ):
            live = Run(scenario, workload, services, server, seen, began, out, engines, args.quiet, publish).live()
            summary = run(live, fastest_loop())
    finally:
        if not any(out.rglob("*.tlog")):
            discard(out, made)
    with suppress(BrokenPipeError):  # whoever has seen enough of it gets the verdict all the same
        print(json.dumps(summary.score, indent=2) if args.json else f"{summary.text.rstrip()}\n\nRun directory: {out}")
        sys.stdout.flush()  # making the report takes a moment
    if not args.no_report:
        told = report_on(out)
        with suppress(BrokenPipeError):
            if not args.quiet:
                print(told, file=sys.stderr if args.json else sys.stdout)
    return summary.exit_status


def report_on(out: Path) -> str:
    """Make the report of a run; the line that says where it lies, or why there is none.

    In a process of its own: whatever befalls it, the run has its verdict, and nothing of a drawing library is ever
    where load is made.
    """
    if find_spec("matplotlib") is None:
        return f"No {REPORT_NAME}: pip install 'loadsim[report]'"
    command = [sys.executable, "-m", "loadsim", "report", str(out.absolute()), "-o", str(out.absolute() / REPORT_NAME)]
    try:
        made = subprocess.run(  # noqa: S603 - ourselves
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, check=False
        )
    except KeyboardInterrupt:  # somebody need not see it
        return f"No {REPORT_NAME}: interrupted; loadsim report {out} makes it"
    except OSError as failure:
        return f"No {REPORT_NAME}: {failure}"
    if made.returncode:
        return f"No {REPORT_NAME}: {(made.stderr.strip().splitlines() or ['no word'])[-1].removeprefix('loadsim: ')}"
    return f"Report: {out / REPORT_NAME}"


def how_many_engines(scenario: Scenario, wanted: int | None, pin: bool) -> int:
    """As many as the user wants, or as suits the machine, or half of it with `pin`. Raises `ConfigError`."""
    alone = needs_one_engine(scenario)
    if wanted is None:
        cores = os.cpu_count() or 1
        return 1 if alone else engines_for(scenario.users, cores // 2 if pin else cores)
    most = 1 if alone else scenario.users
    if not 1 <= wanted <= most:
        why = f" with protocol {alone}, whose mail system lives in the engine" if alone else ""
        raise ConfigError(f"--engines: expected a number from 1 to {most}{why}, found {wanted}")
    return wanted


def allow_open_files(users: int) -> None:
    """See to it that an engine may open as many files as its users need; the engines inherit what we may.

    Raises `ConfigError` where the hard limit is in the way, which only root can raise.
    """
    needed = FILES_PER_USER * users + OTHER_FILES
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return
    if most != resource.RLIM_INFINITY and most < needed:
        raise ConfigError(
            f"open files: expected a limit of at least {needed} for {users} users an engine, found {most}:"
            f" take more --engines, or raise it as root with `ulimit -n {needed}`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))


def part_of_a_path(name: str) -> str:
    """A scenario's name as it may stand in the name of a directory: no slash in it leads out of `runs`."""
    return re.sub(r"[^\w.-]+", "-", name)[:60]


def new_run_directory(path: Path) -> list[Path]:
    """Make the run directory, and those that it lies in: which of them are new, the innermost first.

    Raises `ConfigError` unless it is new, or empty, and takes files: who else would find out has prepared the server.
    """
    made: list[Path] = []
    try:
        made += [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigError(f"--out {path}: expected a new or empty directory, found files in it")
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        remove(made)
        raise ConfigError(f"--out {path}: expected a directory to write to, found: {error.strerror}") from None
    return made


def discard(out: Path, made: Sequence[Path]) -> None:
    """Remove the directories made for a run that never began; what a server left to read stays, and so do they."""
    with suppress(OSError):
        for left in out.iterdir():
            if left.is_file() and not left.stat().st_size:
                left.unlink()
    remove(made)


def remove(directories: Sequence[Path]) -> None:
    """Remove those of the directories, the innermost first, that are there and empty."""
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()


def shown_metrics(where: str | None, quiet: bool) -> AbstractContextManager[Watch]:
    """What to show each snapshot to for Prometheus to see. Raises `ConfigError` for an address that cannot be had."""
    if where is None:
        return nullcontext(lambda _: None)
    if find_spec("prometheus_client") is None:
        raise ConfigError("--metrics: expected prometheus-client to be installed: pip install 'loadsim[metrics]'")
    from loadsim.cli.metrics import served_metrics

    return served_metrics(where, quiet=quiet)


@contextmanager
def shown_server(scenario: Scenario, out: Path) -> Iterator[tuple[Services, str]]:
    """Where the server under test listens, and what it is called; the embedded one lives as long as this block."""
    if isinstance(scenario.server, Server):
        services = services_of(scenario)
        yield services, f"{services.imap.host}:{services.imap.port}"
        return
    accounts = [scenario.account(index) for index in range(1, scenario.users + 1)]
    with start_embedded(accounts, distribution_lists(scenario), out) as server:
        services = replace(server.services, command_limit_s=scenario.limits.command_s)
        yield scenario.client.using(services), server.describe()


@contextmanager
def seen_server(services: Services, engines: int, pin: bool, quiet: bool = False) -> Iterator[dict[str, Any]]:
    """Facts about the server and this machine, for the machine's log; with `pin`, server and load are kept apart."""
    place = find_server(services.imap, services.smtp)
    about = {**this_machine(), **greetings(services)}
    seen = {"server_here": place.here, "server_processes": len(place.processes), **about}
    if pin and place.here:
        with kept_apart(place, engines) as cores:
            if not quiet:
                print(describe(cores, place), file=sys.stderr)
            kept = {"generator_cpus": cores.generator, "server_cpus": cores.server}
            yield {**seen, **kept, "shares_cpus": False, "pinned": True}
        return
    if pin:
        print("--pin: the server is not on this machine: there is nothing to keep apart", file=sys.stderr)
    yield {**seen, "shares_cpus": place.shares(os.sched_getaffinity(0)), "pinned": False}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario on a server that is there; `seen` are facts about where it is.

    `publish` is shown each snapshot, and so is a screen, unless it is `quiet`.
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

    async def live(self) -> Summary:
        """Check and prepare the mailboxes, then make the load; what was measured stays whatever happens then.

        Raises `ConfigError` for everything that is wrong before there is any load, `RunInvalid` when the log is gone
        afterwards.
        """
        check_modules(self.scenario, self.services)
        await check_submission(self.workload, self.services)
        with shown_progress(quiet=self.quiet) as tell:
            prepared = await prepare(self.scenario, self.workload, self.services, tell)
        if not self.quiet:
            print(prepared.describe(), file=sys.stderr)
        begins = self._begins(prepared.start_state)
        try:
            await self._recorded(begins)
        except ConfigError:  # before there was any load
            self._withdraw()
            raise
        try:
            summary = summarise([self.out])
        except LogError as failure:
            raise RunInvalid(f"the run has ended, but what it measured is gone: {failure}") from None
        _write(self.out / "score.json", json.dumps(summary.score, indent=2))
        _write(self.out / "answer.txt", summary.text)
        return summary

    async def _recorded(self, begins: Sequence[Begin]) -> None:
        """Make the load, with all files that are about it but its answer. Raises `ConfigError` when it cannot begin."""
        try:
            (self.out / "logs").mkdir()
            (self.out / "scenario.yaml").write_text(self.scenario.to_yaml(), encoding="utf-8")
            told = (self.out / "events.jsonl").open("w", encoding="utf-8")
            machine_log = open_machine_log(self.out / "logs", begins[0].header)
        except OSError as failure:
            raise ConfigError(f"--out {self.out}: expected a directory to write to, found: {failure}") from None
        with told:
            events = Events(told)
            try:
                await self._make_load(begins, events, machine_log)
            finally:
                with suppress(OSError):  # a full disk; no figure of the answer but the machine's is from it
                    machine_log.close()
                if events.unwritten:
                    print(f"loadsim: {events.unwritten} lines of events.jsonl not written", file=sys.stderr)

    def _withdraw(self) -> None:
        """Remove the files of a run that did not begin."""
        shutil.rmtree(self.out / "logs", ignore_errors=True)
        for name in ("scenario.yaml", "events.jsonl"):
            (self.out / name).unlink(missing_ok=True)

    async def _make_load(self, begins: Sequence[Begin], events: Events, machine_log: TimingLogWriter) -> None:
        """Run the engines until their end, or until the user has had enough, or there is no hope for the run."""
        hopeless = Hopeless(self.scenario.abort_on, self.scenario.users)

        def watch(snapshot: LiveSnapshot) -> None:
            self.publish(snapshot)
            show(snapshot)
            if not pool.stopped and (why := hopeless.judge(snapshot)):
                events.say("abort", why=why)
                machine_log.facts({"ended_why": why})
                pool.stop()

        with shown_run(self.scenario, quiet=self.quiet) as show:
            pool = Pool(begins, events, watch)
            with requests_are(pool.stop):
                async with watched_machine(machine_log, MonotonicClock(), lambda: pool.start_ns, self.seen):
                    await pool.run()

    def _begins(self, start_state: str | None) -> list[Begin]:
        """What each engine is told to begin with."""
        run_id = f"{self.began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        client = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "client"
        header = self._header(run_id, client, start_state)
        begins = []
        for engine, hand in enumerate(deal(self.scenario.users, self.engines), 1):
            own = {"engine": str(engine), "engine_users": len(hand), "hand": asdict(hand)}
            log = self.out / "logs" / f"{client}.{engine}.tlog"
            begins.append(Begin(self.scenario, self.services, hand, str(log), {**header, **own}))
        return begins

    def _header(self, run_id: str, client: str, start_state: str | None) -> dict[str, Any]:
        scenario, run = self.scenario, self.scenario.run
        return {
            "software": f"loadsim {__version__}",
            "run": run_id,
            "name": scenario.name,
            "client": client,
            "engines": self.engines,
            "server": self.server,
            "embedded": not isinstance(scenario.server, Server),
            "submission": scenario.client.submission,
            "mode": run.mode,
            "scenario_digest": scenario.digest(),
            "plan_digest": plan_digest(self.workload),
            "start_state_digest": start_state,
            "users": scenario.users,
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


def _write(path: Path, text: str) -> None:
    """Write a file of results; where the disk does not take it, the results are still printed."""
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as failure:
        print(f"loadsim: {path} not written: {failure.strerror}", file=sys.stderr)
