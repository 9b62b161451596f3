"""`python -m bench`: what loadsim costs, measured on this machine; JSON to a file, tables to read."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench import cluster, cluster_lag, cluster_tables, coverage, cpu, healthy, logs, tables, users, witness
from bench.lateness import measure_lateness
from bench.processes import Cpus, machine, raise_open_files, share_cpus
from bench.tls import measure_tls
from loadsim.errors import ConfigError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results.json"
"""The figures that the documentation shows."""

PAGES = {
    ROOT / "docs" / "explanation" / "performance.md": tables.document,
    ROOT / "docs" / "explanation" / "clusters.md": cluster_tables.document,
    ROOT / "docs" / "explanation" / "measurement.md": coverage.document,
}
"""Where they are shown, and what makes Markdown of them."""

LATEST = ROOT / "build" / "bench.json"

Part = Callable[[Cpus], list[dict[str, Any]] | dict[str, Any]]


def parts(full: bool) -> dict[str, Part]:
    """What there is to measure, by the name that it has in the results."""
    effort = cpu.FULL if full else cpu.SHORT
    found: dict[str, Part] = {
        "imap_null": lambda cpus: cpu.imap_on_null(cpus, effort),
        "smtp_null": lambda cpus: cpu.smtp_on_null(cpus, effort),
        "users": lambda cpus: [users.measure(cpus, load) for load in (users.IDLE_FULL if full else users.IDLE_SHORT)],
        "load": lambda cpus: [users.measure(cpus, load) for load in (users.BUSY_FULL if full else users.BUSY_SHORT)],
        "engines": lambda _: users.measure_engines(full),
        "lateness": lambda cpus: measure_lateness(cpus, full),
        "tls": lambda cpus: measure_tls(cpus, full),
        "coverage": lambda _: coverage.measure(full),
    }
    if full:
        found["healthy"] = lambda _: healthy.measure(partial(print, file=sys.stderr, flush=True))
        found["many"] = lambda _: users.measure_many()
        found["logs"] = lambda _: logs.measure()
        found["imap_dovecot"] = lambda cpus: cpu.imap_on_dovecot(cpus, effort)
        if os.geteuid() == 0:
            found["witness"] = witness.measure
            found["cluster"] = lambda _: cluster.measure()
            found["cluster_many"] = lambda _: cluster.measure_many()
            found["cluster_lag"] = cluster_lag.measure
            found["cluster_pull"] = lambda _: cluster_lag.measure_pull()
            found["cluster_log_bytes"] = cluster_lag.measure_log_bytes
    return found


def main() -> int:
    """Measure, write, show; the exit status is 1 when a healthy run was called invalid."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="*", help=f"of {', '.join(parts(full=True))}; default: all")
    parser.add_argument(
        "--full", action="store_true", help="longer; with Dovecot, and imaptest if IMAPTEST is its path"
    )
    parser.add_argument("--json", type=Path, default=LATEST, help=f"default: {LATEST.relative_to(ROOT)}")
    parser.add_argument("--table", type=Path, metavar="JSON", help="measure nothing: put these results into the page")
    args = parser.parse_args()
    try:
        if args.table:
            found = json.loads(args.table.read_text())
            for page, document in PAGES.items():
                tables.put_into(page, document(found))
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
            return 0
        found = measure(args.part, args.full, args.json)
        print(*(document(found) for document in PAGES.values()), sep="\n")
        if not args.part or "healthy" in args.part:
            return int(healthy.any_invalid(found.get("healthy", ())))
    except ConfigError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


def measure(names: list[str], full: bool, path: Path) -> dict[str, Any]:
    """Measure these parts (none: all); the file has the results so far after each, beside those that it had."""
    known = parts(full)
    for name in names:
        if name not in known:
            raise ConfigError(f"part: expected one of {', '.join(known)}, found {name}")
    raise_open_files()
    cpus = share_cpus()
    found: dict[str, Any] = json.loads(path.read_text()) if names and path.exists() else {}
    if not names or "machine" not in found:
        found |= {"at": _now(), "full": full, "machine": machine(), "cpus": cpus._asdict()}
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, part in known.items():
        if not names or name in names:
            began_s = time.monotonic()
            found[name] = part(cpus)
            found.setdefault("times", {})[name] = _now()
            found.setdefault("measured_on", {})[name] = machine()["cpu"]
            found.setdefault("loads", {})[name] = round(os.getloadavg()[1], 1)  # of the last five minutes
            print(f"{name}: {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
            path.write_text(json.dumps(found, indent=1) + "\n")
    return found


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


if __name__ == "__main__":
    sys.exit(main())
