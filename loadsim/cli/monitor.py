"""`loadsim monitor`: sample probes on the server's machine into a file or the standard output, until a signal."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadsim.cli.live.run_view import Warnings
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import add_ports, add_set, duration
from loadsim.errors import ConfigError
from loadsim.model.documents.lazy_pydantic import TypeAdapter
from loadsim.model.documents.scenario_sections import Probes
from loadsim.model.documents.yaml_reader import Origin, override, parse
from loadsim.model.ports import Endpoint, Services
from loadsim.model.scenario import load_scenario
from loadsim.provisioning.sessions import services_of
from loadsim.runs.monitor import Watch, default_name, watch_server

STANDARD_OUTPUT = Path("-")
LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario",
        metavar="SCENARIO",
        nargs="?",
        help="a path, or the bare name of a shipped scenario, whose probes and server it takes",
    )
    parser.add_argument(
        "--probe",
        action="append",
        default=[],
        dest="probes",
        metavar="NAME",
        help="a probe, such as host; repeatable; default: those of the scenario",
    )
    add_set(parser, "a setting, such as probes.postfix.log=FILE, or another key of the scenario; repeatable")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="the new file, which ends in .tlog; - for standard output, until nothing reads it",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="name of this monitor, for its file and criteria: a-z, 0-9 and -; default: the host's",
    )
    parser.add_argument(
        "--for", type=duration, dest="duration_s", metavar="TIME", help="how long, such as 2h; default: no end"
    )
    add_ports(parser, 143, 25, " here, by which the server's processes are found")
    parser.set_defaults(run=run_monitor)


def run_monitor(args: argparse.Namespace) -> int:
    out: Path | None = None if args.out == STANDARD_OUTPUT else args.out
    if out is not None and out.suffix != ".tlog":
        raise ConfigError(f"--out {args.out}: expected a name that ends in .tlog, as those of all timing logs")
    name = args.name or default_name()
    probes, services = _of_scenario(args) if args.scenario else _of_options(args)
    watch = Watch(probes, services, name, args.scenario or "monitor", args.duration_s)
    until = f"for {args.duration_s:g} s" if args.duration_s else "until Ctrl-C"
    if out is not None:  # else it would be on the terminal of the run that reads the output
        print_line(f"monitor {name}: {', '.join(probes)}, each second into {out}, {until}")
    watch_server(watch, out, watcher=Warnings())
    return 0


def _of_options(args: argparse.Namespace) -> tuple[Mapping[str, Mapping[str, Any]], Services]:
    """Return the probes of the options, and the services at this machine's ports."""
    document: dict[str, Any] = {"probes": {name: {} for name in args.probes}}
    overridden = override(document, args.overrides)
    for key in document:
        if key != "probes":
            raise ConfigError(f"--set {key}: expected a setting such as probes.postfix.log=FILE without a scenario")
    origin = Origin("monitor", overridden=overridden)
    probes = parse(TypeAdapter(Probes), document["probes"], origin, ("probes",))
    return probes, Services(Endpoint(LOOPBACK, args.imap_port), Endpoint(LOOPBACK, args.smtp_port))


def _of_scenario(args: argparse.Namespace) -> tuple[Mapping[str, Mapping[str, Any]], Services]:
    """Return the probes of a scenario, or those that the options name, and the services of its server."""
    scenario = load_scenario(args.scenario, args.overrides, passwords=False)
    more = [f"probes.{name}={{}}" for name in args.probes if name not in scenario.probes]
    if more:
        scenario = load_scenario(args.scenario, [*more, *args.overrides], passwords=False)
    services = services_of(scenario)
    return {name: scenario.probes[name] for name in args.probes or scenario.probes}, services
