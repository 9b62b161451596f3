"""`loadsim monitor`: sample probes on the server's machine and write the samples to standard output, until a signal."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from loadsim.cli.live.run_view import Warnings
from loadsim.cli.options import add_ports, add_set
from loadsim.documents.yaml_reader import Origin, override, parse
from loadsim.errors import ConfigError
from loadsim.model.ports import Endpoint, Services
from loadsim.runs.monitor import watch_server
from loadsim.scenario.sections import Probes

LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--probe", action="append", default=[], dest="probes", metavar="NAME", help="a probe, such as host; repeatable"
    )
    add_set(parser, "a setting of a probe, such as probes.postfix.log=FILE; repeatable")
    parser.add_argument(
        "--name", required=True, metavar="NAME", help="this monitor's name in scenarios and criteria: a-z, 0-9 and -"
    )
    add_ports(parser, 143, 25, " here, which identifies the server's processes")
    parser.set_defaults(run=run_monitor)


def run_monitor(args: argparse.Namespace) -> int:
    services = Services(Endpoint(LOOPBACK, args.imap_port), Endpoint(LOOPBACK, args.smtp_port))
    watch_server(_probes(args.probes, args.overrides), services, args.name, watcher=Warnings())
    return 0


def _probes(names: Sequence[str], overrides: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    document: dict[str, Any] = {"probes": {name: {} for name in names}}
    overridden = override(document, overrides)
    for key in document:
        if key != "probes":
            raise ConfigError(f"--set {key}: expected a setting such as probes.postfix.log=FILE")
    probes: Mapping[str, Mapping[str, Any]] = parse(
        Probes, document["probes"], Origin("monitor", overridden=overridden), ("probes",)
    )
    return probes
