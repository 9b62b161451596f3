"""Make the documentation's pictures of pages: HTML reports, and the page that `--web` serves.

    PYTHONPATH=tests/support python tools/picture_pages.py NAME=PAGE...

NAME is one of `PICTURES`, PAGE a file or a URL. A picture shows the page in headless Chromium, from the top or from a
heading on. Each file is a PNG with 64 colours, which is enough for text and lines.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from devtools import Browser, browser
from PIL import Image

PLACE = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "pictures"
COLOURS = 64


class Picture(NamedTuple):
    """A part of a page, drawn once a condition holds in it."""

    height_px: int
    dark: bool = False
    heading: str | None = None
    condition: str = "true"


PICTURES = {
    "report-valid": Picture(1130),
    "report-charts-dark": Picture(1090, dark=True, heading="Server and generator"),
    "web-page": Picture(1330, condition="points.length > 25"),  # half a minute of a run
}
WIDTH_PX = 1280


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", metavar="NAME=PAGE")
    with browser() as chromium:
        for name, _, page in (given.partition("=") for given in parser.parse_args().pages):
            path = PLACE / f"{name}.png"
            draw(chromium, page if "://" in page else Path(page).absolute().as_uri(), PICTURES[name], path)
            print(f"{path}: {path.stat().st_size:,} bytes")


def draw(chromium: Browser, url: str, picture: Picture, path: Path) -> None:
    page = chromium.page(url, WIDTH_PX, picture.height_px, dark=picture.dark)
    page.wait_for(picture.condition)
    heads = f'[...document.querySelectorAll("h2")].find((one) => one.textContent === {json.dumps(picture.heading)})'
    page.value(f"scrollTo(0, ({heads}?.offsetTop ?? 16) - 16)")
    with tempfile.TemporaryDirectory() as directory:
        shot = Path(directory) / "shot.png"
        page.picture(shot)
        with Image.open(shot) as whole:
            whole.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
