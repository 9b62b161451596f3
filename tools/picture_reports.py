"""Make the pictures of reports in the documentation, from run directories.

    python tools/picture_reports.py valid=runs/A degraded=runs/B invalid=runs/C

Each picture is a part of a report in headless Chromium, at 1280 or 400 px, light or dark; `PICTURES` names them. It is
a PNG of 64 colours, which are enough for texts and lines. `--name NAME` makes one of them only, `--into DIR` makes them
elsewhere.
"""

from __future__ import annotations

import argparse
import html
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from loadsim.cli.report import document_of
from loadsim.report.html import to_html

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "how-to" / "pictures"

MOST_BYTES = 150_000
COLOURS = 64
LEAST_WINDOW_PX = 600
"""Chromium's windows are not narrower; a frame in the window is."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A part of the report on a run, from its top or from the heading `at` on."""

    run: str
    width_px: int
    height_px: int
    dark: bool = False
    at: str | None = None


PICTURES = {
    "report-valid": Picture("valid", 1280, 1130),
    "report-charts-dark": Picture("valid", 1280, 1090, dark=True, at="Server and generator"),
    "report-narrow": Picture("valid", 400, 900),
    "report-narrow-dark": Picture("valid", 400, 900, dark=True, at="Server and generator"),
    "report-degraded": Picture("degraded", 1280, 520),
    "report-invalid": Picture("invalid", 1280, 520),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="KIND=DIR", help="a run directory of each kind")
    parser.add_argument("--name", choices=PICTURES, action="append", help="make this picture only; repeatable")
    parser.add_argument("--into", type=Path, default=PLACE, metavar="DIR", help="where to; default: the documentation")
    args = parser.parse_args()
    runs = dict(run.split("=", 1) for run in args.runs)
    chosen = {name: PICTURES[name] for name in args.name or PICTURES}
    if missing := {picture.run for picture in chosen.values()} - runs.keys():
        parser.error(f"expected a run directory for {', '.join(sorted(missing))}")
    args.into.mkdir(parents=True, exist_ok=True)
    for name, picture in chosen.items():
        page = to_html(document_of([runs[picture.run]], {}))
        path = args.into / f"{name}.png"
        draw(page, picture, path)
        print(f"{path}: {path.stat().st_size:,} bytes")


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
        with Image.open(place / "shot.png") as shot:
            part = shot.convert("RGB").crop((0, 0, picture.width_px, picture.height_px))
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
