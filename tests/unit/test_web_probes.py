"""The charts of probes on the page: those of the report, of any figures, and few."""

from __future__ import annotations

import json
from typing import Any

import pytest
from growing_runs import second
from web_pages import page_view, scenario

from loadsim.cli.web.probe_charts import MOST_CHARTS, MOST_LINES, MOST_NAMES, ProbeCharts
from loadsim.cli.web.view import Have, PageView
from loadsim.report.probe_panels import PANELS


def test_the_charts_are_those_of_the_report() -> None:
    """With the same titles, units and lines; chief ones first. Two probes of a name have charts of their own."""
    found = ProbeCharts()
    found.add("command/b", {"a_count": 7.0})
    found.add("host", {"cpu_busy_share": 0.5, "load_1min": 3.0, "memory_available_bytes": 2.0**30})
    found.add("host/two", {"cpu_busy_share": 0.25})
    titles = [title for title, _, _ in found.charts]
    assert titles == ["Processor (host)", "Processor (host/two)", "Memory (host)", "a_count (command/b)"]
    assert titles[0].removesuffix(" (host)") in [panel.title for panel in PANELS["host"]]
    assert found.charts[0][1:] == ("%", [("all cores busy", "host cpu_busy_share", 100)])
    assert set(found.taken()) == {
        ("command/b", "a_count"), ("host", "cpu_busy_share"), ("host", "memory_available_bytes"),
        ("host/two", "cpu_busy_share"),
    }  # fmt: skip
    assert found.taken() == {}


def test_a_disk_that_appears_later_gets_a_line() -> None:
    """Beside the others, in the same chart."""
    found = ProbeCharts()
    found.add("host", {"disk_sda_busy_share": 0.1})
    found.add("host", {"disk_sda_busy_share": 0.2, "disk_sdb_busy_share": 0.9})
    (title, _, lines) = found.charts[0]
    assert (title, [name for name, _, _ in lines]) == ("Disks (host)", ["sda busy", "sdb busy"])
    assert found.taken()["host", "disk_sda_busy_share"] == [0.1, 0.2]


@pytest.mark.slow
def test_a_probe_with_names_without_end_stays_small() -> None:
    """In charts, lines, and in what is kept until the next snapshot."""
    found = ProbeCharts()
    for number in range(3):
        found.add("host", {f"disk_d{number}x{each}_busy_share": 0.5 for each in range(MOST_NAMES)})
        for probe in range(MOST_CHARTS):
            found.add(f"command/{probe}", {f"a{number}_{each}_count": 1.0 for each in range(3)})
    assert len(found.charts) == MOST_CHARTS
    assert max(len(lines) for _, _, lines in found.charts) == MOST_LINES
    assert len(found.taken()) <= MOST_CHARTS * MOST_LINES


def test_the_page_has_the_samples_of_the_current_run() -> None:
    """In columns after the others; the next run of a sequence begins without any."""
    view = page_view()
    for at_s in range(3):
        view.sampled("host", {"cpu_busy_share": at_s / 4})
        view.snapshot(second(at_s, at_s), {})
    document = shown(view)
    assert document["charts"] == [["Processor (host)", "%", [["all cores busy", "host cpu_busy_share", 100]]]]
    at = document["columns"].index("host cpu_busy_share")
    assert [row[at] for row in document["series"]["rows"]] == [0.25, 0.5]
    view.begin(scenario(), "the next one")
    assert shown(view)["charts"] == []


def shown(view: PageView) -> dict[str, Any]:
    """The state as the page reads it."""
    found: dict[str, Any] = json.loads(json.dumps(view.document(Have()), allow_nan=False))
    return found
