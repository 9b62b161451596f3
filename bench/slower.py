"""`python -m bench.slower`, as root: does `compare` find a server that was made slower by a known time, and only that?

Three sets of runs on one private Dovecot and Postfix, taking turns: two of the server as it is, and one in which each
of its answers comes a known time later. All three go through the same proxy, so that nothing but the delay differs.
Between the first two there is nothing to find; READ takes as many delays longer as it waits for answers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.delay import delayed
from bench.nullserver import HOST
from bench.processes import short_directory
from bench.runs import reasons, score_of, written
from loadsim.comparison.comparison import Comparison, compare_runs
from loadsim.comparison.document import describe_comparison
from loadsim.errors import ConfigError
from loadsim.report.text import to_text
from loadsim.scenario.population import distribution_lists
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import start_dovecot_postfix

REPEATS = 5
DELAY_MS = 50.0
USERS = 20
SETS = ("base", "same", "slower")


def measure(place: Path, repeats: int, delay_ms: float) -> dict[str, Comparison]:
    """Make the runs below `place`, and compare: `same` and `slower`, each with `base`."""
    nowhere = document(1, 1)
    scenario = load_scenario(str(written(place / "accounts.yaml", nowhere)), [])
    accounts = [scenario.account(index) for index in range(1, scenario.users + 1)]
    runs: dict[str, list[Path]] = {name: [] for name in SETS}
    with short_directory() as directory:
        lists = dict(distribution_lists(scenario))
        with start_dovecot_postfix(accounts, lists, Path(directory) / "server") as server, ExitStack() as stack:
            ports = (server.services.endpoint("imap").port, server.services.endpoint("smtp").port)
            scenarios = {}
            for name in SETS:
                delay_s = delay_ms / 1000 if name == "slower" else 0.0
                through = [stack.enter_context(delayed(port, delay_s)) for port in ports]
                scenarios[name] = written(place / f"{name}.yaml", document(*through))
            for repeat in range(repeats):
                for turn in range(len(SETS)):  # each set is first, second and last equally often
                    name = SETS[(turn + repeat) % len(SETS)]
                    runs[name].append(place / f"{name}-{repeat + 1}")
                    _run(scenarios[name], runs[name][-1])
    return {name: compare_runs(runs["base"], runs[name]) for name in SETS[1:]}


def document(imap: int, smtp: int) -> dict[str, Any]:
    """Medium users, every scored task some tens of times in half a minute."""
    return {
        "name": "slower",
        "server": {
            "imap": {"host": HOST, "port": imap, "tls": "none"},
            "smtp": {"host": HOST, "port": smtp, "tls": "none"},
        },
        "accounts": {"user": "user{index}", "password": "secret-{index}"},
        "topology": [{"profile": "loadsim-5.5/medium", "users": USERS}],
        "run": {"day_length": "3m", "duration": "40s", "ramp_up": "3s", "warm_up": "5s", "window": "35s"},
        "limits": {"hits": 5, "generator": {"lag_p99_ms": 20, "lag_share": None}},
    }


def _run(scenario: Path, out: Path) -> None:
    """One run; what it printed is told in short."""
    score = score_of(scenario, out, "--engines", "1")
    told = "none" if score["score_ms"] is None else f"{score['score_ms']:.1f} ms"
    print(f"{out.name}: score {told}; {'; '.join([score['verdict']['validity'], *reasons(score)])}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print both comparisons; 1 when they do not say what is the case."""
    parser = argparse.ArgumentParser(prog="python -m bench.slower", description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of each set; default: %(default)s")
    parser.add_argument("--delay-ms", type=float, default=DELAY_MS, help="default: %(default)s")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run directories there")
    args = parser.parse_args(arguments)
    if args.repeats < 2:
        parser.error(f"--repeats: expected at least 2, found {args.repeats}")
    with tempfile.TemporaryDirectory() as passing:
        place = args.keep or Path(passing)
        place.mkdir(parents=True, exist_ok=True)
        try:
            found = measure(place, args.repeats, args.delay_ms)
        except ConfigError as error:
            print(f"bench.slower: {error}", file=sys.stderr)
            return 2
    for name, comparison in found.items():
        print(f"\n--- base and {name} ---\n\n{to_text(describe_comparison(comparison))}", end="")
    for task in found["slower"].document["tasks"]:
        times = task["difference_ms"] / args.delay_ms
        print(f"{task['name']}: {task['difference_ms']:+.1f} ms, {times:.1f} delays of {args.delay_ms:g} ms")
    return int(wrong({name: comparison.document for name, comparison in found.items()}))


def wrong(found: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return if a difference was found where there is none, or the slower READ was not found."""
    imagined = [one for key in ("tasks", "scores") for one in found["same"][key] if one["change"]]
    (read,) = (one for one in found["slower"]["tasks"] if one["name"] == "READ")
    return bool(imagined) or read["change"] != "slower"


if __name__ == "__main__":
    sys.exit(main())
