"""The page in a browser: hostile texts, lost connections, reloads, and access as axe-core judges it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from devtools import Browser, browser
from growing_runs import second
from run_states import summary_of
from web_pages import Served, page_view, served

pytestmark = pytest.mark.nightly(part="tools")

HOSTILE = "<img src=x onerror=alert(1)></td><script>document.title='mine'</script>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


def busy(page: Served, until_s: int = 75) -> None:
    """Report a load with failures in a server's own words, and a warning."""
    page.live.stage("load")
    for at_s in range(50, until_s):
        snapshot = second(at_s, 10 * at_s, at_s, lag_ms=9.0, cpu_share=0.95)
        if at_s > until_s - 5:
            page.live.sampled("host", {f"disk_{HOSTILE}_busy_share": 0.5, "cpu_busy_share": 0.875})
            page.live.sampled("command/a", {"outside_celsius": -4.0 - at_s, "far_count": 1e300})
        failures = {"READ": {HOSTILE: 3, "450 try later": 2}}
        page.live.snapshot(replace(snapshot, failures=failures), {})
    page.live.warning(f"a file name {HOSTILE}")


def test_a_hostile_text_is_shown_as_text(chromium: Browser) -> None:
    """No element of it comes into being, nothing is loaded, and no script of it runs."""
    with served(page_view()) as page:
        busy(page)
        chromium.complaints.clear()
        shown = chromium.page(page.url)
        shown.wait_for("points.length")
        for place in ("#figures", "#warnings", "#charts"):
            assert HOSTILE in shown.text(place)
        assert shown.value("document.images.length + document.querySelectorAll('td script').length") == 0
        assert shown.value("document.title") == "window: small"
        assert chromium.complaints == []


def test_a_lost_connection_is_shown_with_its_time(chromium: Browser) -> None:
    """Without the server the page keeps what it had, and says from when."""
    with served(page_view()) as page:
        busy(page)
        shown = chromium.page(page.url)
        shown.wait_for("points.length === 1")
        page.live.snapshot(second(75, 750), {})
        shown.wait_for("points.length === 2")
        shown.value("(() => { window.fetch = () => Promise.reject(new TypeError('gone')); })()")
        page.live.snapshot(second(76, 760), {})
        shown.wait_for("!document.getElementById('connection').hidden")
        assert shown.text("#connection").startswith("No news since ")
        assert "960 done" in shown.text("#figures")  # the last answer: 760 tasks and 200 log-ons


def test_charts_show_the_points_since_the_page_was_opened(chromium: Browser) -> None:
    """Those of the load, then those of probes in the report's units; below zero and far above, too."""
    with served(page_view()) as page:
        busy(page)
        shown = chromium.page(page.url)
        shown.wait_for("points.length === 1")
        page.live.snapshot(second(76, 1000), {})
        shown.wait_for("points.length === 2")
        labels = shown.value("[...document.querySelectorAll('#charts .plot')].map((one) => one.ariaLabel)")
        assert labels[4] == "Users on, , now: users 199; from 0 to 199."
        (lag,) = [label for label in labels if label.startswith("Lag of the event loop, ms")]
        assert lag.endswith("now: 99th percentile 0.4, largest 0.4; from 0 to 9.")
        assert "Processor (host), %, now: all cores busy 87.5; from 0 to 87.5." in labels
        assert any("outside_celsius -78; from -78 to 0." in label for label in labels)
        assert any("far_count 1.00e+300; from 0 to" in label for label in labels)
        strokes = shown.value("document.querySelectorAll('#charts .plot')[4].querySelector('path').getAttribute('d')")
        assert strokes == "M0.0 0.0L1000.0 0.0"
        assert chromium.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_violation(chromium: Browser, tmp_path: Path, dark: bool) -> None:
    """Before the load, during it, and after the end; on wide and narrow screens, without overflow."""
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
        judge("points.length")
        page.live.done(summary_of(tmp_path), tmp_path / "out")
        judge("!document.getElementById('result').hidden")
        view.finish()
        judge("over")
        assert "criteria missed" in shown.text("#verdict")
        assert "The run and loadsim have ended" in shown.text("#connection")
        # What axe must find is found.
        shown.value("document.body.insertAdjacentHTML('beforeend', '<main><img></main>')")
        found = shown.value("axe.run().then((found) => found.violations.map((rule) => rule.id))")
        assert "image-alt" in found
