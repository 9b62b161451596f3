"""Make the documentation's pictures of the live view: SVGs of terminals in the middle of a run.

    python tools/picture_live_view.py quickstart

It runs the scenario, and draws an 80-column screen at the time `--at`, in seconds from the common start.
"""

from __future__ import annotations

import argparse
import io
import re
import tempfile
from pathlib import Path

from rich.console import Console

import loadsim
from loadsim.cli.live.figures import LiveFigures, LiveRun, View
from loadsim.cli.live.view import screenful

PLACE = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "pictures"

PICTURES = {"live-view.svg": (80, 24)}
"""The terminal's columns and lines for each picture."""


class Camera(View):
    """Keeps the last figures before an instant."""

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s
        self.figures: LiveFigures | None = None

    def show(self, figures: LiveFigures) -> None:
        """Keep the figures unless they are too late."""
        load = figures.load
        if load is not None and load.phase == "work" and (load.at_s or 0.0) <= self._at_s:
            self.figures = figures


def drawn(figures: LiveFigures, title: str, columns: int, lines: int) -> str:
    """Return the figures' screen as SVG. It names fonts, but loads none."""
    console = Console(record=True, force_terminal=True, width=columns, height=lines, file=io.StringIO())
    console.print(screenful(figures, columns))
    return re.sub(r"@font-face \{.*?\}\n?", "", console.export_svg(title=title), flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", metavar="SCENARIO")
    parser.add_argument("--at", type=float, default=35.0, metavar="S")
    parser.add_argument("--into", type=Path, default=PLACE, metavar="DIR")
    args = parser.parse_args()
    scenario = loadsim.load_scenario(args.scenario)
    camera = Camera(args.at)
    with tempfile.TemporaryDirectory() as place:
        loadsim.run(scenario, Path(place) / "run", watcher=LiveRun(scenario, camera))
    if camera.figures is None:
        raise SystemExit(f"--at {args.at:g}: expected an instant after the first second of the load")
    args.into.mkdir(parents=True, exist_ok=True)
    for name, (columns, lines) in PICTURES.items():
        picture = args.into / name
        picture.write_text(drawn(camera.figures, f"loadsim run {args.scenario}", columns, lines), encoding="utf-8")
        print(f"{picture}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
