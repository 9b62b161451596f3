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
from collections.abc import Iterable, Mapping, Sequence
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
    facts = {(each["name"], each["version"]): each["facts"] for each in servers}
    answers = {server: [each["missing_folder"] or "none"] for server, each in facts.items()}
    imap = {server: each["imap_capabilities"] for server, each in facts.items()}
    smtp = {server: [word.partition(" ")[0] for word in each["smtp_extensions"]] for server, each in facts.items()}
    return "\n\n".join(
        [
            table(
                ["server", "tried", "COPYUID", "announced", "own keywords", "largest", "findings"], map(row, servers)
            ),
            table(["server", "answer to SELECT of a missing folder"], shared(answers)),
            table(["server", "IMAP capabilities after the log-on"], shared(imap)),
            table(["server", "SMTP extensions after EHLO"], shared(smtp)),
        ]
    )


def row(server: Mapping[str, Any]) -> list[str]:
    facts = server["facts"]
    announced_ms = facts["announced_ms"]
    own = {*(facts["delivered_keywords"] or ()), *(facts["appended_keywords"] or ())}
    limits = [limit for key in ("append_limit_bytes", "message_limit_bytes") if (limit := facts[key])]
    return [
        f"{server['name']} {server['version']}",
        server["date"],
        facts["copyuid"],
        "not within 3 s" if announced_ms is None else f"{announced_ms:,.0f} ms",
        " ".join(sorted(own)),
        f"{min(limits) / 2**20:.0f} MiB" if limits else "",
        " ".join(server["findings"]),
    ]


def shared(words: Mapping[tuple[str, str], Iterable[str]]) -> list[list[str]]:
    """Return a row for each set of servers, by name and version, that share words: the servers, and these words."""
    having: dict[str, list[tuple[str, str]]] = {}
    for server, own in words.items():
        for word in sorted({*own}):
            having.setdefault(word, []).append(server)
    rows: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for word, servers in sorted(having.items()):
        rows.setdefault(tuple(servers), []).append(f"`{word}`")
    largest_first = sorted(rows.items(), key=lambda row: (-len(row[0]), row[0]))
    return [[_names(servers, words), ", ".join(own)] for servers, own in largest_first]


def _names(servers: Sequence[tuple[str, str]], of: Iterable[tuple[str, str]]) -> str:
    """Return the servers' names, those without all of their versions with the versions."""
    if len(servers) == len({*of}):
        return "all"
    names = []
    for name in dict.fromkeys(name for name, _ in servers):
        versions, every = ([version for each, version in pairs if each == name] for pairs in (servers, of))
        names.append(name if versions == every else f"{name} {', '.join(versions)}")
    return "; ".join(names)


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
