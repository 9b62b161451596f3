"""`python -m bench`: measure the cost of loadsim on this machine; print tables, and write JSON to a file."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.audit import AUDIT
from bench.cluster import CLUSTER, CLUSTER_MANY
from bench.cluster_lag import CLUSTER_LAG, CLUSTER_LOG_BYTES, CLUSTER_PULL
from bench.coverage import COVERAGE
from bench.cpu import IMAP_DOVECOT, IMAP_NULL, SMTP_NULL
from bench.healthy import HEALTHY, any_invalid
from bench.jmap import JMAP_USERS
from bench.lateness import LATENESS
from bench.logs import LOGS
from bench.mail_logs import MAIL_LOGS
from bench.mapi import MAPI, MAPI_USERS
from bench.part import Effort, Part, Result, option_of
from bench.processes import raise_open_files, share_cpus
from bench.storage import STORAGE
from bench.table import put_into
from bench.tls import TLS
from bench.users import ENGINES, LOAD, MANY, USERS
from bench.witness import WITNESS
from loadsim.errors import ConfigError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results.json"
"""The figures that the documentation shows."""

LATEST = ROOT / "build" / "bench.json"

EXPLANATION = ROOT / "docs" / "explanation"
PAGES: Mapping[Path, Sequence[Part[Any]]] = {
    EXPLANATION / "performance.md": [*(IMAP_NULL, IMAP_DOVECOT, SMTP_NULL, USERS, MANY, LOAD, HEALTHY, LOGS, TLS)],
    EXPLANATION / "clusters.md": [CLUSTER, CLUSTER_LAG],
    EXPLANATION / "measurement.md": [COVERAGE],
}
"""The pages that show tables, and the parts that they show."""

UNSHOWN: Sequence[Part[Any]] = [
    *(AUDIT, ENGINES, LATENESS, CLUSTER_MANY, CLUSTER_PULL, CLUSTER_LOG_BYTES, WITNESS, STORAGE, MAPI, MAPI_USERS),
    *(JMAP_USERS, MAIL_LOGS),
]
"""The parts whose tables are on no page."""

PARTS = {part.name: part for parts in [*PAGES.values(), UNSHOWN] for part in parts}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and show each part; the exit status is 1 when a healthy run was called invalid."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    effort = parser.add_mutually_exclusive_group()
    for option, each, told in (
        ("--full", Effort.FULL, "longer; with Dovecot, and imaptest if IMAPTEST is its path"),
        ("--smallest", Effort.SMALLEST, "only try the parts: the figures mean nothing"),
    ):
        effort.add_argument(option, dest="effort", action="store_const", const=each, default=Effort.SHORT, help=told)
    parser.add_argument("--json", type=Path, default=LATEST, help=f"default: {LATEST.relative_to(ROOT)}")
    parser.add_argument("--table", type=Path, metavar="JSON", help="measure nothing: put these results into the pages")
    args = parser.parse_args(arguments)
    try:
        if args.table:
            results = read(args.table)
            for page, parts in PAGES.items():
                put_into(page, document(parts, results))
            write(RESULTS, results)
            return 0
        raise_open_files()
        measured = measure(args.part, args.effort, args.json)
    except ConfigError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    judged = HEALTHY.name in measured and args.effort is not Effort.SMALLEST
    return int(judged and any_invalid(measured[HEALTHY.name].rows))


def measure(names: Sequence[str], effort: Effort, path: Path) -> dict[str, Result]:
    """Measure these parts (none: all that are possible), print each one's tables, and return the results.

    Each is written into the file at once, next to results of other parts.
    """
    measured: dict[str, Result] = {}
    before = read(path) if names and path.exists() else {}
    for part in chosen(names, effort):
        began_s = time.monotonic()
        measured[part.name] = result = part.result(share_cpus(), effort)
        write(path, before | measured)
        print(f"{part.text(result)}\n", flush=True)
        print(f"{part.name}: {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
    return measured


def chosen(names: Sequence[str], effort: Effort) -> list[Part[Any]]:
    """Return the parts of these names (none: all). Raise `ConfigError` for one that cannot be measured."""
    if unknown := set(names) - PARTS.keys():
        raise ConfigError(f"part: expected one of {', '.join(PARTS)}, found {', '.join(sorted(unknown))}")
    found = []
    for part in (part for part in PARTS.values() if not names or part.name in names):
        if (lacking := part.lacking(effort)) is None:
            found.append(part)
        elif names:
            raise ConfigError(f"{part.name}: expected {lacking}")
        else:
            print(f"{part.name}: left out, expected {lacking}", file=sys.stderr)
    return found


def document(parts: Iterable[Part[Any]], results: Mapping[str, Result]) -> str:
    """Return the tables of those parts that have results, and the circumstances, once for parts that share them."""
    shown = [part for part in parts if part.name in results]
    names: dict[tuple[str, str, str], list[str]] = {}
    for part in shown:
        result = results[part.name]
        names.setdefault((option_of(result.effort), result.at[:10], result.machine), []).append(part.name)
    where = [f"`python -m bench{effort} {' '.join(some)}`, {day}: {on}." for (effort, day, on), some in names.items()]
    return "\n\n".join([part.tables_of(results[part.name]) for part in shown] + where) + "\n"


def read(path: Path) -> dict[str, Result]:
    """Return the results in a file, by part. Raises `ConfigError` for a file of an older version."""
    try:
        return {name: Result(**result) for name, result in json.loads(path.read_text()).items()}
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: expected results of `python -m bench`, found none; remove it") from None


def write(path: Path, results: Mapping[str, Result]) -> None:
    """Write results into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: asdict(result) for name, result in results.items()}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
