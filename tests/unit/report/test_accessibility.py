"""Access to a report: contrast in both colour schemes, order of headings, names of charts and of cells."""

import re
from pathlib import Path

import pytest
from timing_samples import done, write_sample, write_two_clients

from loadsim.cli.report import document_of
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
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_in_wcag() -> None:
    """Black on white is 21; #777 on white just fails for text, #767676 just passes (WCAG's own examples)."""
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#fff") < TEXT < contrast("#767676", "#fff")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_colour_pairs_have_enough_contrast(scheme: str) -> None:
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


def test_the_first_section_has_the_colour_of_its_tone(tmp_path: Path) -> None:
    """Met and missed criteria have classes of their own in addition to their signs."""
    page = to_html(document_of([str(write_two_clients(tmp_path / "run"))]))
    assert re.search(r'<td class="missed">× missed</td>', page)
    write_sample(tmp_path / "valid.tlog", [done("READ", 500, 10)], header={"criteria": {"score_ms": {"below": 50}}})
    page = to_html(document_of([str(tmp_path / "valid.tlog")]))
    assert re.search(r'<td class="met">✓ met</td>', page)
