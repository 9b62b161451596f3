"""Tables of what mail servers do, from `loadsim check --json` on each, which is kept with version and date.

    loadsim check SCENARIO --json | python -m bench.servers Cyrus 3.10.2
    python -m bench.servers

The first keeps those of a server that runs; both write `docs/reference/servers.md` from all that are kept.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.table import put_into, table

DOCS = Path(__file__).parents[1] / "docs"
KEPT, PAGE = DOCS / "servers", DOCS / "reference" / "servers.md"
MARK = "<!-- Made by `python -m bench.servers`; do not edit. -->"


def keep(name: str, version: str, check: Mapping[str, Any], date: str, kept: Path = KEPT) -> None:
    """Write the facts of a check, and the codes of its findings about the server, to a file of this version."""
    seen = [*check["server"], *check["mail"], *(each["failure"] for each in check["tasks"])]
    codes = {each["finding"]["code"] for each in seen if each is not None and each["finding"] is not None}
    kept_check = {
        "name": name,
        "version": version,
        "date": date,
        "imap_greeting": check.get("imap_greeting"),
        "can_run": check["can_run"],
        "findings": sorted(codes),
        "facts": check["facts"],
    }
    (kept / f"{name.lower().replace(' ', '-')}-{version}.json").write_text(json.dumps(kept_check, indent=1) + "\n")


def document(kept: Path = KEPT) -> str:
    """Return the tables of all servers that are kept."""
    servers = [json.loads(path.read_text()) for path in kept.glob("*.json")]
    servers.sort(key=lambda each: (each["name"], [int(part) for part in re.findall(r"\d+", each["version"])]))
    offered = {_name(each): frozenset(each["facts"]["imap_capabilities"]) for each in servers}
    by_all = frozenset.intersection(*offered.values())
    by_some = {name: features - by_all for name, features in offered.items()}
    return "\n\n".join(
        [
            table(
                ["server", "tried", "COPYUID", "announced", "own keywords", "largest", "findings"], map(row, servers)
            ),
            table(["server", "answer to SELECT of a missing folder"], map(_answer, servers)),
            f"All offer {', '.join(f'`{name}`' for name in sorted(by_all)) or 'nothing'} after the log-on.",
            table(["IMAP capability", "offered after the log-on by"], offers(by_some)),
        ]
    )


def row(server: Mapping[str, Any]) -> list[str]:
    facts = server["facts"]
    announced_ms = facts["announced_ms"]
    own = {*(facts["delivered_keywords"] or ()), *(facts["appended_keywords"] or ())}
    limits = [limit for key in ("append_limit_bytes", "message_limit_bytes") if (limit := facts[key])]
    return [
        _name(server),
        server["date"],
        facts["copyuid"],
        "not within 3 s" if announced_ms is None else f"{announced_ms:,.0f} ms",
        " ".join(sorted(own)),
        f"{min(limits) / 2**20:.0f} MiB" if limits else "",
        " ".join(server["findings"]),
    ]


def _answer(server: Mapping[str, Any]) -> list[str]:
    return [_name(server), f"`{server['facts']['missing_folder'] or 'none'}`"]


def offers(features: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return a row for each feature: its name, and the servers that have it, or that lack it if these are fewer."""
    having: dict[str, list[str]] = {}
    for server, offered in features.items():
        for feature in offered:
            having.setdefault(feature, []).append(server)
    rows = []
    for feature, servers in sorted(having.items()):
        lacking = [server for server in features if server not in servers]
        shorter = f"all but {', '.join(lacking)}" if len(lacking) < len(servers) else ", ".join(servers)
        rows.append([f"`{feature}`", shorter])
    return rows


def _name(server: Mapping[str, Any]) -> str:
    return f"{server['name']} {server['version']}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.servers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("server", nargs="*", metavar="NAME VERSION", help="the server that standard input is about")
    args = parser.parse_args(arguments)
    if len(args.server) not in (0, 2):
        parser.error(f"NAME VERSION: expected both or none, found {' '.join(args.server)}")
    if args.server:
        name, version = args.server
        keep(name, version, json.load(sys.stdin), time.strftime("%Y-%m-%d", time.gmtime()))
    put_into(PAGE, document(), MARK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
