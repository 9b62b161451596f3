"""Make the pictures of reports in the documentation, from run directories.

    python tools/picture_reports.py valid=runs/A invalid=runs/B several-runs=runs/C several-runs=runs/D \\
      base=runs/E base=runs/F new=runs/G new=runs/H capacity=searches/I

Each picture is a part of a report in headless Chromium, at 1280 or 400 px, light or dark; `PICTURES` names them. The
comparison is of the runs `base` and `new`; `capacity` is the directory of a search. Each file is a PNG of 64 colours,
which are enough for texts and lines. `--name NAME` makes one of them only, `--into DIR` makes them elsewhere.
"""

from __future__ import annotations

import argparse
import html
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from loadsim.analysis.compare_runs import compare_runs
from loadsim.cli.report import document_of
from loadsim.report.compare_report import describe_comparison
from loadsim.report.document import Document
from loadsim.report.html import to_html

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "how-to" / "pictures"

MOST_BYTES = 150_000
COLOURS = 64
LEAST_WINDOW_PX = 600
"""Chromium's windows are not narrower; a frame in the window is."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A part of the report on runs of a kind, from its top or from the heading `at` on."""

    kind: str
    width_px: int
    height_px: int
    dark: bool = False
    at: str | None = None


PICTURES = {
    "report-valid": Picture("valid", 1280, 1130),
    "report-valid-narrow": Picture("valid", 400, 900),
    "report-charts-dark": Picture("valid", 1280, 1090, dark=True, at="Server and generator"),
    "report-invalid": Picture("invalid", 1280, 1000),
    "report-several-runs": Picture("several-runs", 1280, 900),
    "report-comparison": Picture("comparison", 1280, 900),
    "report-capacity": Picture("capacity", 1280, 1180),
    "report-capacity-curve": Picture("capacity", 1280, 1500, at="Users and response times"),
}


COMPARED = {"comparison": ("base", "new")}
MAX_REGRESSION = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="KIND=DIR", help="a run directory of each kind")
    parser.add_argument("--name", choices=PICTURES, action="append", help="make this picture only; repeatable")
    parser.add_argument("--into", type=Path, default=PLACE, metavar="DIR", help="where to; default: the documentation")
    args = parser.parse_args()
    runs: dict[str, list[str]] = {}
    for run in args.runs:
        kind, _, directory = run.partition("=")
        runs.setdefault(kind, []).append(directory)
    chosen = {name: PICTURES[name] for name in args.name or PICTURES}
    kinds = {kind for picture in chosen.values() for kind in COMPARED.get(picture.kind, (picture.kind,))}
    if missing := kinds - runs.keys():
        parser.error(f"expected a run directory for {', '.join(sorted(missing))}")
    args.into.mkdir(parents=True, exist_ok=True)
    for name, picture in chosen.items():
        document = document_on(picture.kind, runs)
        path = args.into / f"{name}.png"
        draw(to_html(document), picture, path)
        print(f"{path}: {path.stat().st_size:,} bytes")


def document_on(kind: str, runs: Mapping[str, list[str]]) -> Document:
    """Return the report on the runs of a kind."""
    if kind not in COMPARED:
        return document_of(runs[kind], {})
    base, new = (runs[side] for side in COMPARED[kind])
    return describe_comparison(compare_runs(base, new, max_regression=MAX_REGRESSION))


def draw(page: str, picture: Picture, path: Path) -> None:
    """Write the picture of a page. Raises `SystemExit` without Chromium, or if the file is larger than `MOST_BYTES`."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("expected Chromium, found none: apt-get install chromium")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "page.html").write_text(framed(page, picture), encoding="utf-8")
        subprocess.run(  # noqa: S603 - a browser, with pages of our own
            [
                browser,
                *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000"),
                f"--blink-settings=preferredColorScheme={0 if picture.dark else 1}",
                f"--window-size={max(picture.width_px, LEAST_WINDOW_PX)},{picture.height_px}",
                f"--user-data-dir={place / 'profile'}",
                f"--screenshot={place / 'shot.png'}",
                (place / "page.html").as_uri(),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        keep(place / "shot.png", picture, path)


def keep(shot: Path, picture: Picture, path: Path) -> None:
    """Write a screenshot with few colours. Raises `SystemExit` if the file is larger than `MOST_BYTES`."""
    with Image.open(shot) as whole:
        part = whole.convert("RGB").crop((0, 0, picture.width_px, picture.height_px))
        part.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path}: expected at most {MOST_BYTES:,} bytes, found {path.stat().st_size:,}")


def framed(page: str, picture: Picture) -> str:
    """Return a page with the report in a frame of the picture's size, scrolled to its heading."""
    scroll = f"""onload = () => {{
      const frame = document.querySelector("iframe"), heads = [...frame.contentDocument.querySelectorAll("h2")];
      const head = heads.find((one) => one.textContent === {json.dumps(picture.at)});
      if (head) frame.contentWindow.scrollTo(0, head.offsetTop - 16);
    }}"""
    return (
        f'<!DOCTYPE html><title>picture</title><body style="margin: 0"><iframe srcdoc="{html.escape(page)}"'
        f' style="border: 0; width: {picture.width_px}px; height: {picture.height_px}px"></iframe>'
        f"<script>{scroll}</script></body>"
    )


if __name__ == "__main__":
    main()
