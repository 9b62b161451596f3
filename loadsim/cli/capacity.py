"""`loadsim capacity`: search for the largest number of users that passes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from loadsim.campaign.quiet_down import PAUSE_S, SETTLING_S
from loadsim.capacity.document import describe_capacity
from loadsim.capacity.runs import Wanted, find_capacity
from loadsim.cli.campaign import ENDED_EARLY, CampaignView, add_campaign
from loadsim.cli.cluster_runs import add_cluster_runs, cluster_runner
from loadsim.cli.compare import share
from loadsim.cli.options import add_engines, add_scenario, duration, given_scenario, whole
from loadsim.errors import ConfigError
from loadsim.model.terms import MOST_USERS
from loadsim.scenario.scenario import Scenario, load_scenario

users = whole(1, MOST_USERS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument(
        "--from", type=users, metavar="N", dest="first", help="first number of users; default: an eighth of --most"
    )
    parser.add_argument(
        "--most",
        type=users,
        metavar="N",
        help="largest number of users to measure; their accounts must exist; default: the scenario's users",
    )
    parser.add_argument(
        "--width",
        type=_width,
        default=0.2,
        metavar="SHARE",
        help="width of the interval, as a share of its middle; default: 20%%, which is +-10%%",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="stop after two equal results at each end, not five; usually gives no interval (exit status 4)",
    )
    parser.add_argument(
        "--pause",
        type=_pause,
        metavar="TIME",
        help="pause between runs; with the probe postfix here, it ends once the send queue is empty;"
        f" default: {SETTLING_S:g}s with that probe, else {PAUSE_S:g}s; none on the embedded server",
    )
    add_engines(parser)
    add_cluster_runs(parser)
    add_campaign(parser)
    parser.set_defaults(run=run_capacity)


def _width(text: str) -> float:
    value = share(text)
    if not 0.01 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 1% to 100%, found {text!r}")
    return value


def _pause(text: str) -> float:
    return 0.0 if text in ("0", "0s") else duration(text)


def run_capacity(args: argparse.Namespace) -> int:
    """Search, printing a line for each run, and print the answer. Return 0, 1, 3 or 4."""
    scenario = given_scenario(args)  # warns of exposed passwords once, not for each run
    runner = cluster_runner(args, scenario)
    if runner and args.clients is None:
        raise ConfigError("--clients: expected the number of clients, which all runs share, found none")
    wanted = Wanted(
        first=args.first,
        most=args.most,
        width=args.width,
        pause_s=args.pause,
        engines=args.engines,
        pin=args.pin,
        clients=args.clients,
        quick=args.quick,
    )

    def read(settings: Sequence[str]) -> Scenario:
        return load_scenario(args.scenario, [*args.overrides, *settings])

    view = CampaignView(args, scenario.name)
    capacity = view.made(lambda: find_capacity(read, wanted, args.out, runner=runner, watcher=view))
    if capacity is None:
        return ENDED_EARLY
    view.answer(capacity, describe_capacity(capacity, ()))
    return capacity.exit_status
