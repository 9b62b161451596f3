"""`loadsim run`: what is asked for, refused or made ready; then the run, and what is printed of it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

from loadsim.analysis.summary import Summary
from loadsim.cli import VERBS
from loadsim.cli.cluster_options import add_cluster, needs_dask
from loadsim.cli.junit import junit_file
from loadsim.cli.live_view import Watch
from loadsim.cli.scenario import given_scenario
from loadsim.cli.scheduled_start_options import planning_limit_s, slice_from, start_from
from loadsim.cluster.address import control_address
from loadsim.cluster.build_fingerprint import build_fingerprint
from loadsim.dryrun.plan_cache import planned_load
from loadsim.engine.coordinator import engines_for
from loadsim.engine.event_loop import fastest_loop, run
from loadsim.engine.rlimits import raise_open_file_limit
from loadsim.errors import ConfigError
from loadsim.model.partition import all_users
from loadsim.model.population import distribution_lists
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario, Server
from loadsim.model.workload import Workload
from loadsim.monitor.cpu_affinity import describe, kept_apart
from loadsim.monitor.server_banner import environment_facts
from loadsim.monitor.server_discovery import find_server
from loadsim.protocols.registry import check_protocols, needs_one_engine
from loadsim.provisioning.preflight import check_ports, check_sources
from loadsim.provisioning.sessions import services_of
from loadsim.report.html import FILE_NAME as REPORT_NAME
from loadsim.report.summary_text import answer_text
from loadsim.report.verdict_junit import verdict_junit
from loadsim.runs.directory import discard, new_run_directory, owner_only, part_of_a_path
from loadsim.runs.local import Run
from loadsim.servers.embedded import start_embedded
from loadsim.timinglog.planned_load import PlannedLoad


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `run`."""
    parser = subparsers.add_parser("run", help=VERBS["run"])
    parser.add_argument("scenario", metavar="SCENARIO", help="a path, or the bare name of a shipped scenario")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run directory; default: runs/DATE-NAME")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY.PATH=VALUE")
    parser.add_argument("--engines", type=int, metavar="N", help="processes that make the load; default: one a core")
    parser.add_argument("--slice", metavar="K/N", help="make the Kth of N parts of the load; other machines the others")
    parser.add_argument("--start-at", metavar="TIME", help="the common start, such as 14:00:00Z, on all machines")
    parser.add_argument("--json", action="store_true", help="print score.json instead of the answer")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the verdict as JUnit XML, too")
    parser.add_argument(
        "--pin", action="store_true", help="keep a server on this machine and the load apart, on cores of their own"
    )
    parser.add_argument("--no-report", action="store_true", help=f"make no {REPORT_NAME}")
    parser.add_argument("--quiet", action="store_true", help="say nothing but the answer, and what goes wrong")
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help="show there, to Prometheus, where the run stands")
    add_cluster(parser, required=False)
    parser.add_argument("--clients", type=int, metavar="N", help="with --cluster: wait until N clients have joined")
    parser.set_defaults(run=run_scenario)


def run_scenario(args: argparse.Namespace) -> int:
    """Run, and tell of it; the exit status is the verdict's."""
    with junit_file(args.junit, "run") as write_junit:
        summary, out = answered(args)
        write_junit(verdict_junit(summary))
    tell(summary, out, args)
    return summary.exit_status


def answered(args: argparse.Namespace) -> tuple[Summary, Path]:
    """Run: the answer, and the run directory."""
    scenario = given_scenario(args)
    check_protocols(scenario)
    workload = Workload(scenario)
    began = datetime.now(UTC)
    if args.cluster is not None:
        return answered_by_cluster(args, workload, began)
    for option in ("clients", "certs", "insecure_plain_tcp"):
        found = getattr(args, option)
        if found is not None and found is not False:
            raise ConfigError(f"--{option.replace('_', '-')}: expected --cluster, too, found none")
    part = slice_from(args.slice, scenario)
    start = start_from(args.start_at, scenario.run.ramp_up_s, began)
    if part and not start:
        raise ConfigError("--slice: expected --start-at, too: the machines have no other way to start together")
    hand = part.assignment(scenario.users) if part else all_users(scenario.users)
    engines = how_many_engines(scenario, len(hand), args.engines, args.pin)
    check_sources(scenario)
    check_ports(scenario, hand)
    raise_open_file_limit(ceil(len(hand) / engines))
    with (
        new_place(args.out, scenario, began) as out,
        shown_metrics(args.metrics, args.quiet) as publish,
        shown_server(scenario, out) as (services, server),
        seen_server(services, engines, args.pin, args.quiet) as seen,
    ):
        whole = Run(
            scenario=scenario,
            workload=workload,
            services=services,
            server=server,
            seen=seen,
            began=began,
            out=out,
            engines=engines,
            quiet=args.quiet,
            publish=publish,
            part=part,
            start=start,
            load=load_of(scenario, args.quiet, start),
        )
        summary = run(whole.live(), fastest_loop())
    return summary, out


@contextmanager
def new_place(out: Path | None, scenario: Scenario, began: datetime) -> Iterator[Path]:
    """The new run directory, `out` or one of the scenario's name; it is gone when no log came of the run."""
    out = out or Path("runs") / f"{began:%Y%m%dT%H%M%S}-{part_of_a_path(scenario.name)}"
    made = new_run_directory(out)
    try:
        with owner_only():
            yield out
    finally:
        if not any(out.rglob("*.tlog")):
            discard(out, made)


def answered_by_cluster(args: argparse.Namespace, workload: Workload, began: datetime) -> tuple[Summary, Path]:
    """The same by the clients of a cluster. Raises `ConfigError` for what goes with one machine only."""
    for option in ("engines", "slice", "start_at", "pin"):
        if getattr(args, option):
            name = option.replace("_", "-")
            raise ConfigError(f"--{name}: expected a run of one machine, found --cluster")
    if args.clients is not None and args.clients < 1:
        raise ConfigError(f"--clients: expected a number of at least 1, found {args.clients}")
    needs_dask()
    from loadsim.cluster.security import way_to
    from loadsim.runs.cluster import ClusterRun, check_scenario

    check_scenario(workload.scenario)
    way = way_to(control_address(args.cluster), args.certs, args.insecure_plain_tcp)
    with (
        new_place(args.out, workload.scenario, began) as out,
        shown_metrics(args.metrics, args.quiet) as publish,
    ):
        load = load_of(workload.scenario, args.quiet)
        made = ClusterRun(workload.scenario, workload, way, args.clients, began, out, args.quiet, publish, load)
        return run(made.live()), out


def load_of(scenario: Scenario, quiet: bool, start: datetime | None = None) -> PlannedLoad | None:
    """Return the load that the plan has, for a run that has to be ready at `start`; None if it is not known."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    limit_s = planning_limit_s(start, scenario.run.ramp_up_s, datetime.now(UTC)) if start else None
    progress = (lambda _: None) if quiet else say
    return planned_load(scenario, build_fingerprint(), progress, lambda line: say(f"loadsim: {line}"), limit_s)


def tell(summary: Summary, out: Path, args: argparse.Namespace) -> None:
    """Print the answer and where everything lies, and make the report."""
    with suppress(BrokenPipeError):  # whoever has seen enough of it gets the verdict all the same
        print(
            json.dumps(summary.score, indent=2)
            if args.json
            else f"{answer_text(summary).rstrip()}\n\nRun directory: {out}"
        )
        sys.stdout.flush()  # making the report takes a moment
    if not args.no_report:
        told = report_on(out)
        with suppress(BrokenPipeError):
            if not args.quiet:
                print(told, file=sys.stderr if args.json else sys.stdout)


def report_on(out: Path) -> str:
    """Make the report of a run; the line that says where it lies, or why there is none.

    In a process of its own: whatever befalls it, the run has its verdict, and nothing of a drawing library is ever
    where load is made.
    """
    if find_spec("matplotlib") is None:
        return f"No {REPORT_NAME}: pip install 'loadsim[report]'"
    command = [
        sys.executable,
        "-P",
        "-m",
        "loadsim",
        "report",
        str(out.absolute()),
        "-o",
        str(out.absolute() / REPORT_NAME),
    ]
    try:
        made = subprocess.run(  # noqa: S603 - ourselves
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            umask=0o077,
            check=False,
        )
    except KeyboardInterrupt:  # somebody need not see it
        return f"No {REPORT_NAME}: interrupted; loadsim report {out} makes it"
    except OSError as failure:
        return f"No {REPORT_NAME}: {failure}"
    if made.returncode:
        return f"No {REPORT_NAME}: {(made.stderr.strip().splitlines() or ['no word'])[-1].removeprefix('loadsim: ')}"
    return f"Report: {out / REPORT_NAME}"


def how_many_engines(scenario: Scenario, users: int, wanted: int | None, pin: bool) -> int:
    """As many as are wanted for so many users, or as suits the machine, or half of it with `pin`.

    Raises `ConfigError`.
    """
    alone = needs_one_engine(scenario)
    if wanted is None:
        cores = os.cpu_count() or 1
        return 1 if alone else engines_for(users, cores // 2 if pin else cores)
    most = 1 if alone else users
    if not 1 <= wanted <= most:
        why = f" with protocol {alone}, whose mail system lives in the engine" if alone else ""
        raise ConfigError(f"--engines: expected a number from 1 to {most}{why}, found {wanted}")
    return wanted


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
    seen = environment_facts(place, services)
    if pin and place.here:
        with kept_apart(place, engines) as cores:
            if not quiet:
                print(describe(cores, place), file=sys.stderr)
            kept = {"generator_cpus": cores.generator, "server_cpus": cores.server}
            yield {**seen, **kept, "shares_cpus": False, "pinned": True}
        return
    if pin:
        print("--pin: the server is not on this machine: there is nothing to keep apart", file=sys.stderr)
    yield seen
