"""The page in a browser: hostile texts, lost connections, reloads, keyboard, and access as axe-core judges it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from devtools import Browser, browser
from growing_runs import second
from run_states import summary_of
from web_pages import Served, page_view, served

from loadsim.report.digits import duration

pytestmark = pytest.mark.nightly(part="tools")

HOSTILE = "<img src=x onerror=alert(1)></td><script>document.title='mine'</script>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for all tests of this file."""
    with browser() as running:
        yield running


def busy(page: Served, until_s: int = 75) -> None:
    """Report a load with failures in a server's own words, and a warning."""
    page.view.stage("load")
    for at_s in range(50, until_s):
        snapshot = second(at_s, 10 * at_s, at_s, lag_ms=9.0, cpu_share=0.95)
        if at_s > until_s - 5:
            page.view.sampled("host", {f"disk_{HOSTILE}_busy_share": 0.5, "cpu_busy_share": 0.875})
            page.view.sampled("command/a", {"outside_celsius": -4.0 - at_s, "far_count": 1e300})
        page.view.snapshot(snapshot.__class__(**_with_failures(snapshot)), {})
    page.view.warning(f"a file name {HOSTILE}")


def _with_failures(snapshot: object) -> dict[str, object]:
    fields = {name: getattr(snapshot, name) for name in type(snapshot).__slots__}  # type: ignore[attr-defined]
    return fields | {"failures": {"READ": {HOSTILE: 3, "450 try later": 2}}}


def test_a_hostile_text_is_shown_as_text(chromium: Browser) -> None:
    """No element of it comes into being, nothing is loaded, and no script of it runs."""
    with served(page_view()) as page:
        busy(page)
        chromium.complaints.clear()
        shown = chromium.page(page.url)
        shown.wait_for("document.querySelectorAll('#failures tbody tr').length === 2")
        assert HOSTILE in shown.text("#failures")
        assert HOSTILE in shown.text("#warnings")
        assert HOSTILE in shown.text("#probes")
        assert shown.value("document.images.length + document.querySelectorAll('td script').length") == 0
        assert shown.value("document.title") == "window: small"
        assert chromium.complaints == []


def test_the_series_survives_a_reload_and_lost_news_are_told(chromium: Browser) -> None:
    """The server has the rows; without it the page keeps what it had, and says from when."""
    with served(page_view()) as page:
        busy(page)
        shown = chromium.page(page.url)
        shown.wait_for("series.rows.length === 24")
        shown.reload()
        shown.wait_for("series.rows.length === 24")
        page.view.snapshot(second(75, 750), {})
        shown.wait_for("series.rows.length === 25")
        shown.value("(() => { window.fetch = () => Promise.reject(new TypeError('gone')); })()")
        page.view.snapshot(second(76, 760), {})
        shown.wait_for("!document.getElementById('connection').hidden")
        assert shown.text("#connection").startswith("No news since ")
        assert "960 done" in shown.text("#figures")  # the last answer: 760 tasks and 200 log-ons


def test_figures_of_probes_have_charts(chromium: Browser) -> None:
    """From their first sample on, in the report's units; below zero and far above, too."""
    with served(page_view()) as page:
        busy(page)
        shown = chromium.page(page.url)
        shown.wait_for("document.querySelectorAll('#probes .panel').length === 4")
        labels = shown.value("[...document.querySelectorAll('#probes .plot')].map((one) => one.ariaLabel)")
        assert labels[0] == "Processor (host), %: all cores busy now 87.5; the axis goes from 0 to 100."
        assert "outside_celsius now -78; the axis goes from -80 to 0." in labels[2]
        assert "far_count now 1.00e+300; the axis goes from 0 to" in labels[3]
        strokes = shown.value("document.querySelector('#probes path.line').getAttribute('d')")
        assert re.fullmatch(r"M(\d+) 125h1L(\d+) 125L(\d+) 125L(\d+) 125", strokes)
        assert chromium.complaints == []


def test_times_have_the_digits_of_the_answer(chromium: Browser) -> None:
    """As `duration` has them; in the legends of charts, too."""
    times_ms = [0.0, 0.04, 7.649, 99.94, 99.96, 101.7, 1387.9, 2528.1, 9999.4, 9999.6, 12_345.0, 99_940.0, 228_307.4]
    with served(page_view()) as page:
        busy(page)
        shown = chromium.page(page.url)
        shown.wait_for("document.querySelectorAll('#charts .panel').length > 3")
        assert shown.value(f"{times_ms}.map(duration).join('; ')") == "; ".join(map(duration, times_ms))
        labels = shown.value("[...document.querySelectorAll('#charts .plot')].map((one) => one.ariaLabel)")
        (lag,) = [label for label in labels if label.startswith("Lag of the event loop")]
        assert "99th percentile now 9.0 ms" in lag


def test_another_token_is_told(chromium: Browser) -> None:
    """And nothing of the run is shown."""
    with served(page_view()) as page:
        busy(page)
        shown = chromium.page(page.url[:-1])
        shown.wait_for("!document.getElementById('connection').hidden")
        assert "lacks the token" in shown.text("#connection")
        assert "small" not in shown.text()


def test_the_run_is_ended_by_keyboard_after_a_question(chromium: Browser) -> None:
    """Enter on the button asks; the safe answer has the focus, and Escape leaves the run alone."""
    with served(page_view()) as page:
        busy(page)
        shown = chromium.page(page.url)
        shown.wait_for("!document.getElementById('stop').hidden")
        shown.press("Tab")
        assert shown.value("document.activeElement.id") == "stop"
        shown.press("Enter")
        shown.wait_for("document.getElementById('sure').open")
        assert shown.value("document.activeElement.id") == "go-on"
        shown.press("Escape")
        shown.wait_for("!document.getElementById('sure').open")
        assert page.stopped == []
        shown.press("Enter")
        shown.press("Tab")
        assert shown.value("document.activeElement.id") == "end"
        shown.press("Enter")
        shown.wait_for("document.getElementById('phase').textContent.includes('ending early')")
        assert page.stopped == [True]
        assert shown.value("document.getElementById('stop').disabled")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_violation(chromium: Browser, tmp_path: Path, dark: bool) -> None:
    """Before the load, during it, in the dialog, and after the end; on a wide screen and a phone, without overflow."""
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text("utf-8")
    view = page_view()
    with served(view) as page:
        shown = chromium.page(page.url, dark=dark)
        shown.value(f"{axe}; 0")

        def judge(condition: str) -> None:
            shown.wait_for(condition)
            for width in (1280, 400):
                shown.resize(width, 900, dark=dark)
                found = json.loads(shown.value("axe.run().then((found) => JSON.stringify(found))"))
                violations = [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found["violations"]]
                assert violations == [], (width, condition)
                assert len(found["passes"]) > 15
                assert shown.value("document.documentElement.scrollWidth") <= width

        judge("document.getElementById('phase').textContent === 'planning the load'")
        busy(page)
        judge("series.rows.length === 24 && !document.getElementById('so-far').hidden")
        shown.value("document.getElementById('stop').click()")
        judge("document.getElementById('sure').open")
        view.ended("100 users: criteria met", "good")
        view.done(summary_of(tmp_path), tmp_path / "out")
        judge("!document.getElementById('result').hidden")
        view.finish()
        judge("over")
        assert "Valid, criteria missed" in shown.text("#verdict")
        assert "The run has ended" in shown.text("#connection")
        # What axe must find is found.
        shown.value("document.body.insertAdjacentHTML('beforeend', '<main><img></main>')")
        found = shown.value("axe.run().then((found) => found.violations.map((rule) => rule.id))")
        assert "image-alt" in found
