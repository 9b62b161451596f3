"""Make the picture of the live view in the documentation: an SVG of the terminal in the middle of a run.

    python tools/picture_live_view.py quickstart

It runs the scenario, and draws the screen of 80 columns at the time `--at`, in seconds from the common start.
"""

from __future__ import annotations

import argparse
import io
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

import loadsim
from loadsim.cli.live_view import LATELY_S, Recent, Screenful
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.model.scenario import Scenario

PLACE = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "pictures" / "live-view.svg"

COLUMNS, LINES = 80, 24


class Camera(loadsim.Watcher):
    """Keeps the last screen before an instant."""

    def __init__(self, scenario: Scenario, at_s: float) -> None:
        self._scenario = scenario
        self._at_s = at_s
        self._recent = Recent(LATELY_S)
        self.screen: Screenful | None = None

    def snapshot(self, snapshot: LiveSnapshot, clients: Mapping[str, LiveSnapshot]) -> None:
        """Keep the screen of a snapshot that is not too late."""
        self._recent.add(snapshot)
        if snapshot.phase == "work" and (snapshot.at_s or 0.0) <= self._at_s:
            self.screen = Screenful(snapshot, self._recent.stretch, self._scenario, dict(clients))


def drawn(screen: Screenful, title: str) -> str:
    """Return the SVG of a screen. It names fonts, and loads none."""
    console = Console(record=True, force_terminal=True, width=COLUMNS, height=LINES, file=io.StringIO())
    console.print(screen)
    return re.sub(r"@font-face \{.*?\}\n?", "", console.export_svg(title=title), flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", metavar="SCENARIO")
    parser.add_argument("--at", type=float, default=35.0, metavar="S")
    parser.add_argument("--out", type=Path, default=PLACE, metavar="FILE")
    args = parser.parse_args()
    scenario = loadsim.load_scenario(args.scenario)
    camera = Camera(scenario, args.at)
    with tempfile.TemporaryDirectory() as place:
        loadsim.run(scenario, Path(place) / "run", watcher=camera)
    if camera.screen is None:
        raise SystemExit(f"--at {args.at:g}: expected an instant after the first second of the load")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(drawn(camera.screen, f"loadsim run {args.scenario}"), encoding="utf-8")
    print(f"{args.out}: {args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
