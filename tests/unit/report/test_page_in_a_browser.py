"""The report's page in a browser: nothing is asked of any network, and nothing complained of."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from browser import dumped
from compared_runs import three
from finished_searches import capacity, probed
from timing_samples import done, event, write_sample

from loadsim.capacity.document import describe_capacity
from loadsim.capacity.search import Found
from loadsim.cli.report import document_of
from loadsim.comparison.comparison import compare_runs
from loadsim.comparison.document import describe_comparison
from loadsim.report.html import to_html


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("page")
    tasks = [done("SEND", 500, 90), done("READ", 700, 20), done("READ", 900, 9, outcome="refused", error="NO FETCH")]
    mails = [event("accepted", "n1.0", 2, 590), event("seen", "n1.0", 2, 640)]
    one = write_sample(place / "one" / "a.tlog", tasks, mails).parent
    return {"one": to_html(document_of([str(one)]))}


@pytest.mark.nightly(part="tools")
def test_the_page_of_a_comparison_makes_no_request(tmp_path: Path) -> None:
    base, new = (three(tmp_path, side, ms) for side, ms in (("base", 102), ("new", 122.4)))
    page = to_html(describe_comparison(compare_runs(base, new, max_regression=0.05)))
    assert browsed(page, tmp_path / "browsed") == ([], [])


@pytest.mark.nightly(part="tools")
def test_the_page_of_a_search_makes_no_request_and_fits(tmp_path: Path) -> None:
    """With intervals, missed criteria, and the figures of probes."""
    found = Found(1000, 1200, "criteria")
    searched = capacity(found, (500, "passed"), (1000, "passed"), (1200, "failed"), interval_ms=(400.0, 1300.0))
    pages = [to_html(describe_capacity(one, ())) for one in (searched, probed())]
    for number, page in enumerate(pages):
        assert browsed(page, tmp_path / f"browsed-{number}") == ([], [])
    shown = [(page, width) for page in pages for width in (400, 1280)]
    for dark in (False, True):
        for (_, width), laid in zip(shown, laid_out(shown, dark, tmp_path / str(dark)), strict=True):
            assert (laid["width"], laid["wider"]) == (width, [])


@pytest.mark.nightly(part="tools")
def test_pages_make_no_request_and_log_no_error(pages: dict[str, str], tmp_path: Path) -> None:
    """No request but for the page, and an empty console; a page with a request is caught by both."""
    for name, page in pages.items():
        assert browsed(page, tmp_path / name) == ([], [])
    asking = '<!DOCTYPE html><title>x</title><img alt="" src="http://127.0.0.1:1/pixel.png">'
    asked, _ = browsed(asking, tmp_path / "asking")
    assert asked == ["http://127.0.0.1:1/pixel.png"]
    loads = pages["one"].replace("<main>", '<main><img alt="" src="http://127.0.0.1:1/pixel.png">')
    asked, said = browsed(loads, tmp_path / "held")
    assert asked == []  # its own policy holds it back
    assert len(said) == 1 and "Content Security Policy" in said[0]


@pytest.mark.nightly(part="tools")
def test_pages_fit_narrow_and_wide_screens_light_and_dark(pages: dict[str, str], tmp_path: Path) -> None:
    """At 400 px nothing but what scrolls by itself is wider than the page; charts have the colours of their scheme."""
    for dark in (False, True):
        frames = [(page, width) for page in pages.values() for width in (400, 1280)]
        for (_, width), found in zip(frames, laid_out(frames, dark, tmp_path / str(dark)), strict=True):
            assert found["width"] == width, "the page scrolls sideways"
            assert found["wider"] == []
            assert found["paper"] == ("rgb(22, 25, 29)" if dark else "rgb(255, 255, 255)")
            assert found["line"] == ("rgb(86, 180, 233)" if dark else "rgb(0, 114, 178)")
    wide = pages["one"].replace("<main>", '<main><canvas width="500" height="5"></canvas>')
    (found,) = laid_out([(wide, 400)], False, tmp_path / "wide")
    assert found["width"] > 400 and found["wider"] == ["CANVAS"]


MEASURED = """(frame) => {
  const page = frame.contentDocument, style = (found) => frame.contentWindow.getComputedStyle(found);
  const inside = (one) => one.closest("details, svg, .scroll") === null;
  const wider = [...page.querySelectorAll("main *")].filter(inside)
    .filter((one) => one.getBoundingClientRect().right > frame.clientWidth);
  return {
    width: page.documentElement.scrollWidth,
    wider: wider.map((one) => one.tagName),
    paper: style(page.body).backgroundColor,
    line: style(page.querySelector(".plot path.c0")).stroke,
  };
}"""
"""Return the layout of a page, measured in a frame since pages run no script."""


def laid_out(frames: list[tuple[str, int]], dark: bool, place: Path) -> list[dict[str, Any]]:
    """The measures of pages, each in a frame of its width in pixels."""
    place.mkdir()
    inside = "".join(
        f'<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{html.escape(page)}"></iframe>'
        for page, width in frames
    )
    measure = f"[...document.querySelectorAll('iframe')].map({MEASURED})"
    script = f"onload = () => {{ document.title = JSON.stringify({measure}) }}"
    page = f"<!DOCTYPE html><html><head><title></title></head><body>{inside}<script>{script}</script></body></html>"
    shown, _ = dumped(page, place, dark=dark)
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    found = json.loads(html.unescape(title[1]))
    assert isinstance(found, list)
    return found


def browsed(page: str, place: Path) -> tuple[list[str], list[str]]:
    """The addresses that a page asks the network for (a browser's own errands are not the page's), and its console."""
    place.mkdir()
    _, said = dumped(page, place, f"--log-net-log={place / 'net.json'}")
    log = json.loads((place / "net.json").read_text("utf-8"))
    begun = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    asked = [
        event["params"]["url"]
        for event in log["events"]
        if event["type"] == begun and event["params"].get("initiator", "not an origin") != "not an origin"
    ]
    return asked, [line for line in said.splitlines() if "CONSOLE" in line]
