"""Collect logs that clients still have because their controller did not collect them all."""

from __future__ import annotations

from pathlib import Path

from loadsim.cluster.collect import check_run, collect_all
from loadsim.cluster.controller import cluster_at
from loadsim.cluster.security import Access
from loadsim.errors import ConfigError, RunInvalid
from loadsim.processes.event_loop import run
from loadsim.runs.directory import make_directories, path_component, remove_empty
from loadsim.runs.result import RunResult, write_summary
from loadsim.runs.watcher import SILENT, Watcher


def runs_on_clients(access: Access) -> dict[str, dict[str, bool]]:
    """Return each client's runs that still have logs there, and whether each is still running. Raises `ConfigError`."""
    return run(_runs(access))


def collect_run(access: Access, run_id: str, out: Path | None = None, *, watcher: Watcher = SILENT) -> RunResult:
    """Collect a run's logs from all clients into the run directory `out`, and compute the summary.

    Raises `ConfigError` if no client has logs of this run, or if `out` has another run's. Raises `RunInvalid` if some
    logs did not arrive: they stay on the client for the next call.
    """
    out = out or Path("runs") / path_component(run_id)
    created = make_directories(out)
    try:
        return run(_collect(access, run_id, out, watcher))
    finally:
        remove_empty(created)


async def _collect(access: Access, run_id: str, out: Path, watcher: Watcher) -> RunResult:
    watcher.stage("collect")
    check_run(out, run_id)
    names = [name for name, runs in (await _runs(access)).items() if run_id in runs]
    if not names:
        raise ConfigError(f"run {run_id}: expected a run that some client has, found none; see loadsim cluster collect")
    async with cluster_at(access) as cluster:
        left = await collect_all(cluster, run_id, out, dict.fromkeys(names, 0.0))
    for line in left:
        watcher.warning(line)
    if left:
        raise RunInvalid(f"run {run_id}: expected the logs of {len(names)} clients, found {len(names) - len(left)}")
    return write_summary(out, watcher)


async def _runs(access: Access) -> dict[str, dict[str, bool]]:
    async with cluster_at(access) as cluster:
        try:
            return {name: about["runs"] for name, about in (await cluster.clients()).items()}
        except (OSError, TimeoutError) as failure:
            raise ConfigError(
                f"--cluster {access.address}: expected an answer of every client, found: {failure or 'none'}"
            ) from None
