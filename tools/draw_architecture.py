"""Draw the packages and their imports as docs/explanation/architecture.svg.

    python tools/draw_architecture.py

The rows are the layers of pyproject.toml. An arrow leads from a package to one that it imports; it is left out if other
arrows lead there indirectly. Single modules, such as `errors`, are left out, too.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "explanation" / "architecture.svg"

PACKAGES = {  # the column, and the package's contents
    "cli": (2, "parse, call, show"),
    "capacity": (1, "the search"),
    "suite": (2, "the matrix"),
    "storage": (3, "disks under mail stores"),
    "campaign": (1.5, "many runs"),
    "runs": (1.5, "one run"),
    "cluster": (0.5, "several machines"),
    "comparison": (3, "two sets of runs"),
    "size": (4, "resources per user"),
    "characterise": (6, "users in logs"),
    "audit": (5, "all mail accounted for"),
    "servers": (0, "servers to test"),
    "monitor": (1, "probes of machines"),
    "dryrun": (2, "a day in virtual time"),
    "provisioning": (0, "mailboxes, start state"),
    "engine": (1, "one process of users"),
    "report": (3, "text, HTML, JSON"),
    "protocols": (0.5, "drivers behind ports"),
    "analysis": (2.5, "from logs to a summary"),
    "users": (1, "tasks and activities"),
    "timinglog": (2, "the file format"),
    "scenario": (1.5, "keys, groups, the plan"),
    "statistics": (3, "numbers, no logs"),
    "model": (1.5, "the words of mail"),
    "documents": (1.5, "YAML and JSON, checked"),
    "findings": (1.5, "codes and sentences"),
    "processes": (2.5, "signals, limits, loop"),
}
"""No arrow may run through a box: if an arrow skips a row, its column must be free there."""

COLUMN, ROW, WIDTH, HEIGHT = 190, 84, 156, 46
PORT = 30  # arrows from the left or the right end this far from the middle of a box

Edge = tuple[str, str]


def layers() -> dict[str, int]:
    """Return the row of each package, top row first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    named = [[name.strip().removeprefix("loadsim.") for name in row.split("|")] for row in rows]
    of_packages = [some for row in named if (some := [name for name in row if (ROOT / "loadsim" / name).is_dir()])]
    packages = {name: at for at, row in enumerate(of_packages) for name in row}
    if packages.keys() != PACKAGES.keys():
        raise SystemExit(
            f"PACKAGES: expected the packages of pyproject.toml, found other ones: {packages.keys() ^ PACKAGES.keys()}"
        )
    return packages


def imports(rows: Mapping[str, int]) -> set[Edge]:
    """Return the downward imports between packages; the contract on layers rules out others."""
    graph = grimp.build_graph("loadsim", cache_dir=None)
    between = {
        (module.split(".")[1], imported.split(".")[1])
        for module in graph.modules - {"loadsim"}
        for imported in graph.find_modules_directly_imported_by(module) - {"loadsim"}
    }
    return {(above, below) for above, below in between if rows.get(above, 99) < rows.get(below, -1)}


def reduced(edges: set[Edge]) -> list[Edge]:
    """Return the edges that no path through other packages replaces."""

    def below(package: str) -> Iterator[str]:
        for source, target in edges:
            if source == package:
                yield target
                yield from below(target)

    return sorted(
        (source, target)
        for source, target in edges
        if not any(target in below(other) for start, other in edges if start == source and other != target)
    )


def draw(rows: Mapping[str, int], edges: Sequence[Edge]) -> str:
    """Return the picture."""
    width = round(COLUMN * max(column for column, _ in PACKAGES.values())) + WIDTH + 40
    height = ROW * max(rows.values()) + HEIGHT + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" text-anchor="middle">',
        "<title>The packages of loadsim, and what they import</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]

    def middle(package: str) -> int:
        return round(20 + WIDTH / 2 + COLUMN * PACKAGES[package][0])

    def top(row: int) -> int:
        return 20 + ROW * row

    for source, target in edges:
        x, end = middle(source), middle(target)
        end += PORT if x > end else -PORT if x < end else 0
        bend, arrival = top(rows[target] - 1) + HEIGHT, top(rows[target])
        half = (bend + arrival) // 2
        lines.append(
            f'<path d="M{x} {top(rows[source]) + HEIGHT}V{bend}C{x} {half} {end} {half} {end} {arrival}"'
            ' fill="none" stroke="#667" stroke-width="1.3" marker-end="url(#end)"/>'
        )
    for package, row in rows.items():
        x, y = middle(package), top(row)
        lines += [
            f'<rect x="{x - WIDTH // 2}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef1fa"'
            ' stroke="#3f51b5"/>',
            f'<text x="{x}" y="{y + 20}" font-size="15" font-weight="bold" fill="#223">{package}</text>',
            f'<text x="{x}" y="{y + 37}" font-size="12" fill="#445">{PACKAGES[package][1]}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def picture() -> str:
    """Return the picture of the present code."""
    rows = layers()
    return draw(rows, reduced(imports(rows)))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PICTURE.write_text(picture(), encoding="utf-8")
