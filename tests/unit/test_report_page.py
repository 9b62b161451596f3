"""The report's page in a browser: nothing is asked of any network, nothing complained of; and it is well-formed."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import dumped
from compared_runs import three
from finished_searches import capacity, probed
from timing_samples import done, event, write_sample, write_two_clients

from loadsim.analysis.capacity_search import Found
from loadsim.analysis.compare_runs import compare_runs
from loadsim.cli.report import document_of
from loadsim.report.capacity_report import describe_capacity
from loadsim.report.compare_report import describe_comparison
from loadsim.report.html import to_html

VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
"""HTML standard, section 13.1.2."""

PHRASING_ONLY = ("p", "h1", "h2", "caption", "figcaption", "summary", "title", "text")
"""Elements of these pages that have no blocks in them, and the blocks there are."""

BLOCKS = ("p", "h1", "h2", "ul", "div", "table", "figure", "section", "main", "header", "details")

PARENTS = {
    "li": ("ul",),
    "tr": ("thead", "tbody"),
    "th": ("tr",),
    "td": ("tr",),
    "thead": ("table",),
    "tbody": ("table",),
    "caption": ("table",),
    "figcaption": ("figure",),
    "summary": ("details",),
    "meta": ("head",),
    "style": ("head",),
    "title": ("head",),
    "h2": ("section",),
    "section": ("main",),
}
"""In what an element may stand, of those that may not stand anywhere."""


class Checker(HTMLParser):
    """Notes what is wrong with a page: nesting, attributes that come twice, references that lead nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self._open: list[str] = []
        self._columns: list[int] = []
        self._cells = 0
        self._ids: list[str] = []
        self._references: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        self._look(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element that ends at once: only SVG's may."""
        self._look(tag, attrs)
        if "svg" not in self._open and tag not in VOID:
            self.wrong.append(f"<{tag}/> is none of SVG")

    def handle_endtag(self, tag: str) -> None:
        """End the innermost element, which must be this one."""
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}> ends another element")
        if tag == "tr":
            self._columns.append(self._cells)
        if tag == "table" and len(set(self._columns)) > 1:
            self.wrong.append(f"a table has rows of {self._columns} cells")

    def _look(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inside = self._open[-1] if self._open else ""
        names = [name for name, _ in attrs]
        found = dict(attrs)
        if len(set(names)) < len(names):
            self.wrong.append(f"<{tag}> has an attribute twice: {names}")
        if inside not in PARENTS.get(tag, (inside,)) and "svg" not in self._open:
            self.wrong.append(f"<{tag}> stands in <{inside}>")
        if tag in BLOCKS and any(each in PHRASING_ONLY for each in self._open):
            self.wrong.append(f"<{tag}> stands in one of {self._open}")
        if tag == "img" and "alt" not in found:
            self.wrong.append("<img> has no alt")
        drawing = tag == "svg" and "svg" not in self._open and found.get("aria-hidden") != "true"
        if (drawing or found.get("role") in ("img", "region", "group")) and not found.get("aria-label"):
            self.wrong.append(f"<{tag}> has no name")
        if tag == "th" and found.get("scope") not in ("col", "row"):
            self.wrong.append("<th> has no scope")
        if tag == "table":
            self._columns = []
        if tag == "tbody" and inside == "table" and not self._columns:
            self.wrong.append("a table has no head")
        if tag == "tr":
            self._cells = 0
        if tag in ("th", "td"):
            self._cells += 1
        self._ids += [value for name, value in attrs if name == "id" and value is not None]
        self._references |= {value[1:] for name, value in attrs if name.endswith("href") and (value or "")[:1] == "#"}
        self._references |= {name for value in found.values() for name in re.findall(r"url\(#([^)]*)\)", value or "")}

    def done(self) -> list[str]:
        """What is wrong, after the last tag."""
        self.wrong += [f"<{tag}> has no end" for tag in self._open]
        self.wrong += [f"id {name} comes twice" for name in {one for one in self._ids if self._ids.count(one) > 1}]
        self.wrong += [f"#{name} is nowhere" for name in self._references - set(self._ids)]
        return self.wrong


def faults(page: str) -> list[str]:
    """What is wrong with a page."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    return checker.done()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A page of a run with mail and failures, and one of several runs."""
    place = tmp_path_factory.mktemp("page")
    two = write_two_clients(place / "two")
    tasks = [done("SEND", 500, 90), done("READ", 700, 20), done("READ", 900, 9, outcome="refused", error="NO FETCH")]
    mails = [event("accepted", "n1.0", 2, 590), event("seen", "n1.0", 2, 640)]
    one = write_sample(place / "one" / "a.tlog", tasks, mails).parent
    return {
        "one": to_html(document_of([str(one)], {"Storage": "<disk> & more"})),
        "several": to_html(document_of([str(two), str(one)], {})),
    }


def test_pages_are_well_formed(pages: dict[str, str]) -> None:
    """Each element ends where it must and stands where it may; names come once, and references lead to one."""
    for name, page in pages.items():
        assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
        assert page.count("<table") == page.count("<caption>") > 0
        assert page.count("<svg") > 0
        assert faults(page) == [], name


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("<p>a<div></div></p>", "<div> stands in one of ['p']"),
        ("<ul><p></p></ul></b>", "</b> ends another element"),
        ("<div>", "<div> has no end"),
        ("<td></td>", "<td> stands in <>"),
        ('<img src="x">', "<img> has no alt"),
        ('<b id="a"></b><i id="a"></i>', "id a comes twice"),
        ('<i class="a" class="b"></i>', "<i> has an attribute twice: ['class', 'class']"),
        ('<svg aria-label="x"><use href="#no"/></svg>', "#no is nowhere"),
        ("<table><tbody></tbody></table>", "a table has no head"),
        ("<table><thead><tr><th></th></tr><tr></tr></thead></table>", "a table has rows of [1, 0] cells"),
        ("<div/>", "<div/> is none of SVG"),
        ("<svg></svg>", "<svg> has no name"),
    ],
)
def test_faults_are_found(page: str, wrong: str) -> None:
    """The check itself: each kind of fault, in the smallest page that has it."""
    assert wrong in faults(page)


@pytest.mark.nightly(part="tools")
def test_the_page_of_a_comparison_is_well_formed_and_asks_nobody(tmp_path: Path) -> None:
    """As those of runs are; its chart is no drawing of the library for the others."""
    base, new = (three(tmp_path, side, ms) for side, ms in (("base", 102), ("new", 122.4)))
    page = to_html(describe_comparison(compare_runs(base, new, max_regression=0.05)))
    assert page.count('role="img"') == 5  # two tasks, both scores and the axis
    assert faults(page) == []
    assert browsed(page, tmp_path / "browsed") == ([], [])


@pytest.mark.nightly(part="tools")
def test_the_page_of_a_search_is_well_formed_asks_nobody_and_fits(tmp_path: Path) -> None:
    """With intervals, missed criteria, and the figures of probes."""
    found = Found(1000, 1200, "criteria")
    searched = capacity(found, (500, "pass"), (1000, "pass"), (1200, "fail"), interval_ms=(400.0, 1300.0))
    pages = [to_html(describe_capacity(one, (), {})) for one in (searched, probed())]
    for number, page in enumerate(pages):
        assert faults(page) == []
        assert browsed(page, tmp_path / f"browsed-{number}") == ([], [])
    shown = [(page, width) for page in pages for width in (400, 1280)]
    for dark in (False, True):
        for (_, width), laid in zip(shown, laid_out(shown, dark, tmp_path / str(dark)), strict=True):
            assert (laid["width"], laid["wider"]) == (width, [])


@pytest.mark.nightly(part="tools")
def test_a_browser_asks_nobody_and_complains_of_nothing(pages: dict[str, str], tmp_path: Path) -> None:
    """Not one request for anything beside the page, and an empty console; a page that does ask is caught at both."""
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
    """At 400 px nothing is wider than the page, and cells have labels; charts have the colours of their scheme."""
    for dark in (False, True):
        frames = [(page, width) for page in pages.values() for width in (400, 1280)]
        for (_, width), found in zip(frames, laid_out(frames, dark, tmp_path / str(dark)), strict=True):
            assert found["width"] == width, "the page scrolls sideways"
            assert found["wider"] == []
            first = "Users" if found["several"] else "Found"
            assert found["label"] == (f'"{first}"' if width == 400 else "none")
            assert found["paper"] == ("rgb(22, 25, 29)" if dark else "rgb(255, 255, 255)")
            assert found["line"] == ("rgb(86, 180, 233)" if dark else "rgb(0, 114, 178)")
    wide = pages["one"].replace("<main>", '<main><canvas width="500" height="5"></canvas>')
    (found,) = laid_out([(wide, 400)], False, tmp_path / "wide")
    assert found["width"] > 400 and found["wider"] == ["CANVAS"]


MEASURED = """(frame) => {
  const page = frame.contentDocument, style = (found, pseudo) => frame.contentWindow.getComputedStyle(found, pseudo);
  const inside = (one) => one.closest("details, svg, .scroll") === null;
  const wider = [...page.querySelectorAll("main *")].filter(inside)
    .filter((one) => one.getBoundingClientRect().right > frame.clientWidth);
  return {
    width: page.documentElement.scrollWidth,
    wider: wider.map((one) => one.tagName),
    several: page.querySelector("h1").textContent.includes("runs"),
    label: style(page.querySelector(".stack td"), "::before").content,
    paper: style(page.body).backgroundColor,
    line: style(page.querySelector(".plot path.c0")).stroke,
  };
}"""
"""What a page looks like in its frame: pages themselves run no script."""


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
