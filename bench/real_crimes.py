"""`python -m bench.real_crimes`, as root: outages and stalls of a real server, and the verdicts on them.

Each run is that of 40 Medium users of their own on one private Dovecot and Postfix, through proxies that go down, or
stop, for a while. All runs of one length are made at the same time, with one of a server that does nothing wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.crimes import Row, document
from bench.misdeeds import LASTING, LENGTHS_S, NONE, Crime
from bench.nullserver import HOST
from bench.outage import OutageProxy
from bench.processes import short_directory
from bench.runs import AT_WORK, loadsim, scored, written
from loadsim.errors import ConfigError
from loadsim.model.ports import Services
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import start_dovecot_postfix

USERS = 40


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a run: when a crime begins, how long tasks are not scored before, and how long they are scored."""

    begin_s: int
    warm_up_s: int
    window_s: int

    @property
    def work_s(self) -> int:
        """Return how long users work."""
        return self.warm_up_s + self.window_s


SHORT = Times(begin_s=15, warm_up_s=5, window_s=55)
FULL = Times(begin_s=100, warm_up_s=40, window_s=180)


def judged(crimes: Sequence[Crime], times: Times, place: Path) -> list[Row]:
    """Make a run for each crime, all at the same time, below `place`; and read its answer."""
    nowhere = _scenarios(crimes, times, place, [(1, 1)] * len(crimes))
    accounts = []
    for path in nowhere:
        scenario = load_scenario(str(path))
        accounts += [scenario.account(index) for index in range(1, USERS + 1)]
    with short_directory() as directory, start_dovecot_postfix(accounts, {}, Path(directory) / "server") as server:
        return asyncio.run(_all_at_once(crimes, times, place, server.services))


async def _all_at_once(crimes: Sequence[Crime], times: Times, place: Path, services: Services) -> list[Row]:
    async with AsyncExitStack() as stack:
        proxies = []
        for _ in crimes:
            imap = await stack.enter_async_context(OutageProxy(services.endpoint("imap").port))
            proxies.append((imap, await stack.enter_async_context(OutageProxy(services.endpoint("smtp").port))))
        scenarios = _scenarios(crimes, times, place, [(imap.port, smtp.port) for imap, smtp in proxies])
        async with asyncio.TaskGroup() as group:
            made = [
                group.create_task(_run(crime, times, scenario, through))
                for crime, scenario, through in zip(crimes, scenarios, proxies, strict=True)
            ]
        return [one.result() for one in made]


async def _run(crime: Crime, times: Times, scenario: Path, proxies: Sequence[OutageProxy]) -> Row:
    """One run, and the crime while it lasts."""
    command = loadsim("run", "--no-report", scenario, "--out", scenario.with_suffix(""), "--json", "--engines", "1")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert process.stderr is not None
    try:
        said = b" "
        while said and not said.startswith(AT_WORK):
            said = await process.stderr.readline()
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(process.communicate())
            if said and crime.length_s is not None:
                await asyncio.sleep(times.begin_s)
                for proxy in proxies:
                    await proxy.begin(crime.name)
                await asyncio.sleep(crime.length_s)
                for proxy in proxies:
                    await proxy.end()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    printed, complained = (text.decode() for text in answer.result())
    assert process.returncode is not None
    score = scored(subprocess.CompletedProcess(command, process.returncode, printed, complained))
    return Row(crime, score, score)


def _scenarios(crimes: Sequence[Crime], times: Times, place: Path, ports: Sequence[tuple[int, int]]) -> list[Path]:
    """A scenario for each crime, with users of its own, through the proxies on these ports (IMAP, SMTP)."""
    place.mkdir(parents=True, exist_ok=True)
    small = {"inbox": 4, "deleted_items": 1, "folders": 4, "messages_per_folder": 5}
    profile = written(place / "medium.yaml", {"name": "medium", "from": "loadsim-5.5/medium", "start_state": small})
    return [
        written(place / f"{number}.yaml", _document(number, times, profile, *both)) for number, both in enumerate(ports)
    ]


def _document(number: int, times: Times, profile: Path, imap: int, smtp: int) -> Mapping[str, Any]:
    """The default criteria, but no limits of the generator: it shares the machine with the server."""
    return {
        "name": f"crime {number}",
        "server": {"imap": {"host": HOST, "port": imap}, "smtp": {"host": HOST, "port": smtp}},
        "accounts": {"user": f"run{number}-user{{index}}", "password": "secret-{index}"},
        "topology": [{"profile": str(profile), "users": USERS}],
        "lists": {"count": 0},
        "run": {
            "day_length": "240s",
            "duration": f"{times.work_s}s",
            "ramp_up": "4s",
            "warm_up": f"{times.warm_up_s}s",
            "window": f"{times.window_s}s",
        },
        "limits": {
            "hits": 5,
            "generator": {"lag_p99_ms": None, "lag_share": None, "cpu": None, "lateness_p95_ms": None},
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs, length by length, and print the table; 1 when a crime passes."""
    parser = argparse.ArgumentParser(prog="python -m bench.real_crimes", description=__doc__)
    parser.add_argument("lengths", type=float, nargs="*", help="seconds that crimes last; default: 5 15 25 60")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run directories there")
    args = parser.parse_args(arguments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as passing:
        for length_s in args.lengths or LENGTHS_S:
            crimes = [NONE, *(make(length_s) for make in LASTING.values())]
            try:
                rows += judged(crimes, FULL, (args.keep or Path(passing)) / f"{length_s:g}")
            except ConfigError as error:
                print(f"bench.real_crimes: {error}", file=sys.stderr)
                return 2
            print(f"{length_s:g} s: done", file=sys.stderr, flush=True)
    print(document(rows))
    return int(any(row.passes for row in rows if row.crime is not NONE))


if __name__ == "__main__":
    sys.exit(main())
