"""What the clients of a cluster still have of runs whose station was lost, or did not bring all of it home."""

from __future__ import annotations

import asyncio
import sys
from operator import itemgetter
from pathlib import Path

from loadsim.analysis.summary import Summary
from loadsim.cluster.collect import check_run, collect
from loadsim.cluster.controller import cluster_at
from loadsim.cluster.security import Way
from loadsim.errors import ConfigError, RunInvalid
from loadsim.report.table import table
from loadsim.runs.local import summary_of


async def listed(way: Way) -> list[str]:
    """A table of the runs that clients have, as lines. Raises `ConfigError` when they cannot be asked."""
    rows = []
    for name, runs in (await _runs(way)).items():
        rows += [(run, name, "still at work" if lives else "ended") for run, lives in runs.items()]
    by_run = sorted(rows, key=itemgetter(0))
    return table([("Run", "Client", ""), *by_run]) if rows else ["No client has logs of any run."]


async def collected(way: Way, run: str, out: Path) -> Summary:
    """Bring what all clients that are there have of a run into its run directory `out`, and answer.

    Raises `ConfigError` when no client has any of it or `out` has logs of another run, and `RunInvalid` when some of it
    did not come: it is still where it was, and comes the next time.
    """
    check_run(out, run)
    names = [name for name, runs in (await _runs(way)).items() if run in runs]
    if not names:
        raise ConfigError(f"run {run}: expected a run that some client has, found none; see loadsim cluster collect")
    async with cluster_at(way) as cluster:
        failures = await asyncio.gather(*(collect(cluster, name, run, out) for name in names), return_exceptions=True)
    problems = [failure for failure in failures if isinstance(failure, BaseException)]
    for problem in problems:
        if not isinstance(problem, ConfigError | RunInvalid):
            raise problem
        print(f"loadsim: {problem}", file=sys.stderr)
    if problems:
        raise RunInvalid(f"run {run}: expected the logs of {len(names)} clients, found {len(names) - len(problems)}")
    return summary_of(out)


async def _runs(way: Way) -> dict[str, dict[str, bool]]:
    """By client, the runs that it has, and whether they go on there. Raises `ConfigError`."""
    async with cluster_at(way) as cluster:
        try:
            return {name: about["runs"] for name, about in (await cluster.clients()).items()}
        except (OSError, TimeoutError) as failure:
            raise ConfigError(
                f"--cluster {way.address}: expected an answer of every client, found: {failure or 'none'}"
            ) from None
