"""Make the picture of the page of a run in the documentation, while the run goes on.

    PYTHONPATH=tests/support python -m tools.picture_web_page URL

URL is the address that `--web` prints. The picture shows half a minute of the load, in headless Chromium.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from devtools import Browser, browser

from tools.picture_reports import PLACE, Picture, keep

NAME, PICTURE = "web-page", Picture("run", 1280, 1330)

SOME_POINTS = "points.length > 25"
"""A condition in the page: its charts have some points."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL", help="the page of a run")
    parser.add_argument("--into", type=Path, default=PLACE, metavar="DIR", help="where to; default: the documentation")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        draw(chromium, args.url, PICTURE, args.into / f"{NAME}.png")


def draw(chromium: Browser, url: str, picture: Picture, path: Path) -> None:
    """Write the picture of a page as it is now. Raises `SystemExit` if the file is too large."""
    page = chromium.page(url, picture.width_px, picture.height_px, dark=picture.dark)
    page.wait_for(SOME_POINTS)
    with tempfile.TemporaryDirectory() as directory:
        shot = Path(directory) / "shot.png"
        page.picture(shot)
        keep(shot, picture, path)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
