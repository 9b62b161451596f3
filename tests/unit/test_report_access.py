"""Access to a report: contrast in both colour schemes, order of headings, names of charts and of cells."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from finished_searches import capacity
from timing_samples import done, event, write_sample, write_two_clients

from loadsim.analysis.capacity_search import Found
from loadsim.cli.report import document_of
from loadsim.report.capacity_report import describe_capacity
from loadsim.report.charts import COLOURS, DASHES
from loadsim.report.html import to_html
from loadsim.report.style import STYLE

TEXT, GRAPHICS = 4.5, 3.0
"""The least contrast of texts, and of lines and signs (WCAG 2.2, success criteria 1.4.3 and 1.4.11)."""

LINES = tuple(f"c{number}" for number in range(COLOURS))


def palettes() -> dict[str, dict[str, str]]:
    """The custom properties of each colour scheme; what the dark one leaves out is that of the light one."""
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in re.findall(r":root {(.*?)}", STYLE, re.S)
    )
    return {"light": light, "dark": light | dark}


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_defined() -> None:
    """Black on white is 21; #777 on white just fails for text, #767676 just passes (WCAG's own examples)."""
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#fff") < TEXT < contrast("#767676", "#fff")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read(scheme: str) -> None:
    """Each text on each ground that it stands on; each line of a chart on paper and in the window."""
    colours = palettes()[scheme]
    wanted = [(text, ground, TEXT) for text in ("ink", "soft") for ground in ("paper", "window")]
    wanted += [("ink", ground, TEXT) for ground in ("good-back", "doubt-back", "bad-back")]
    wanted += [(text, "paper", TEXT) for text in ("good", "bad")]
    wanted += [(line, ground, GRAPHICS) for line in LINES for ground in ("paper", "window")]
    wanted += [(border, f"{border}-back", GRAPHICS) for border in ("good", "doubt", "bad")]
    wanted += [("line", "paper", GRAPHICS)]
    low = {(one, other): contrast(colours[one], colours[other]) for one, other, _ in wanted}
    assert [(one, other, low[one, other]) for one, other, least in wanted if low[one, other] < least] == []


def test_every_class_of_a_line_has_a_style() -> None:
    """Each colour is a property that both schemes define and a class that uses it; each dash but the first a class."""
    both = palettes()
    assert all(name in both["light"] and name in both["dark"] and f".{name} {{" in STYLE for name in LINES)
    assert all(f".d{number} {{" in STYLE for number in range(1, DASHES))
    assert set(re.findall(r"var\(--([\w-]+)\)", STYLE)) <= both["light"].keys()


class Outline(HTMLParser):
    """The headings of a page, what stands outside of its landmarks, and the attributes of elements by tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.levels: list[int] = []
        self.outside: list[str] = []
        self.found: dict[str, list[dict[str, str]]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        self.found.setdefault(tag, []).append({name: value or "" for name, value in attrs})
        if tag not in ("meta", "link"):
            self._open.append(tag)
        if re.fullmatch(r"h\d", tag):
            self.levels.append(int(tag[1]))

    def handle_endtag(self, tag: str) -> None:
        """End the innermost element."""
        self._open.pop()

    def handle_data(self, data: str) -> None:
        """Text, which belongs into a landmark."""
        if "body" in self._open and data.strip() and not {"header", "main"} & set(self._open):
            self.outside.append(data)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A page of a run with mail, one of a run with two clients, and one of both."""
    place = tmp_path_factory.mktemp("access")
    two = write_two_clients(place / "two")
    mails = [event("accepted", "n1.0", 2, 590), event("seen", "n1.0", 2, 640)]
    tasks = [done("SEND", 500, 90), done("READ", 700, 20), done("READ", 900, 9, outcome="refused", error="NO FETCH")]
    one = write_sample(place / "one" / "a.tlog", tasks, mails).parent
    runs = {"one": [str(one)], "two": [str(two)], "both": [str(one), str(two)]}
    searched = capacity(Found(1000, 1200, "criteria"), (500, "pass"), (1000, "pass"), (1200, "fail"))
    found = {name: document_of(paths, {}) for name, paths in runs.items()} | {
        "search": describe_capacity(searched, (), {})
    }
    return {name: to_html(document) for name, document in found.items()}


def test_pages_have_an_outline(pages: dict[str, str]) -> None:
    """One first heading, then no level that leaves one out; all texts in landmarks; each region has its own name."""
    for name, page in pages.items():
        outline = Outline(page)
        assert outline.levels[0] == 1 and outline.levels.count(1) == 1, name
        assert all(after <= before + 1 for before, after in zip(outline.levels, outline.levels[1:], strict=False)), name
        assert outline.outside == [], name
        assert len(outline.found["header"]) == len(outline.found["main"]) == 1, name
        regions = [one["aria-label"] for one in outline.found["div"] if one.get("role") == "region"]
        assert all(one.get("tabindex") == "0" for one in outline.found["div"] if one.get("role") == "region"), name
        assert len(set(regions)) == len(regions) > 0, name


def test_charts_are_described(pages: dict[str, str]) -> None:
    """Each says what its lines are, and between which figures; what only decorates is hidden."""
    for name, page in pages.items():
        drawings = Outline(page).found["svg"]
        plots = [one for one in drawings if one.get("role") == "img"]
        assert plots, name
        assert all(re.search(r"\d", one["aria-label"]) and ". " in one["aria-label"] for one in plots), name
        inner = [one for one in drawings if "preserveaspectratio" in one]
        hidden = [one for one in drawings if one.get("aria-hidden") == "true"]
        assert len(plots) + len(inner) + len(hidden) == len(drawings), name
    assert re.search(r"in the order of the runs: Response time\. score(, [\w ]+)? (from )?[\d,.]+ ms", pages["both"])


def test_stacked_cells_are_labelled(pages: dict[str, str]) -> None:
    """In tables of more than two columns, each cell names its column, and roles say what blocks would hide."""
    for name, page in pages.items():
        stacked = re.findall(r'<div class="stack.*?</table>', page, re.S)
        assert stacked, name
        for table in stacked:
            heads = re.findall(r'<th scope="col" role="columnheader"[^>]*>(.*?)</th>', table)
            assert len(heads) > 2
            for row in re.findall(r'<tr role="row"><th scope="row" role="rowheader".*?</tr>', table, re.S):
                labels = re.findall(r'<td role="cell"[^>]*data-label="(.*?)"', row)
                assert labels == heads[1:]


def test_pages_show_no_keys(pages: dict[str, str]) -> None:
    """Outside of the scenario's own keys, no text has a name of `score.json`."""
    for page in pages.values():
        texts = re.sub(r"<style.*?</style>|<[^>]*>", " ", page, flags=re.S)
        assert re.findall(r"(?<![.\w])[a-z]+(?:_[a-z0-9]+)+\b", texts) == []


def test_the_first_section_is_coloured(tmp_path: Path) -> None:
    """A criterion that is met, and one that is missed, have classes of their own beside their signs."""
    page = to_html(document_of([str(write_two_clients(tmp_path / "run"))], {}))
    assert re.search(r'<td role="cell" class="missed" data-label="Result">× missed</td>', page)
    write_sample(tmp_path / "valid.tlog", [done("READ", 500, 10)], header={"criteria": {"score_ms": {"below": 50}}})
    page = to_html(document_of([str(tmp_path / "valid.tlog")], {}))
    assert re.search(r'<td role="cell" class="met" data-label="Result">✓ met</td>', page)
