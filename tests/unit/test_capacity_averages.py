"""The averages of a search by number of users, and the utilisation of resources over users.

Seen from outside, they could be wrong so: an invalid run counts; a mean hides that a probe failed in a run, which makes
the server look idle; a unit has the wrong factor; figures of two machines are mixed; a row differs from the run's own
report.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from finished_searches import capacity, probed
from timing_samples import DELIVERED, ENDED, START_NS, done, write_sample

from loadsim.analysis.campaign import Average, CampaignRun
from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import Found
from loadsim.analysis.recorded_run import read_run
from loadsim.report.capacity_report import describe_capacity
from loadsim.report.document import Cell, Chart, Table, tables
from loadsim.report.one_run import describe_run
from loadsim.runs.campaign_file import finished_score, read_campaign, write


def table(found: Capacity, caption: str) -> Table:
    sections = describe_capacity(found, (), {}).sections
    (one,) = (one for section in sections for one in tables(section.blocks) if one.caption.startswith(caption))
    return one


def averages(found: Capacity) -> dict[Cell, dict[str, Cell]]:
    """The rows of both tables by number of users, each by the titles of its columns."""
    rows: dict[Cell, dict[str, Cell]] = {}
    sections = [one for one in describe_capacity(found, (), {}).sections if one.title == "Averages by number of users"]
    for shown in tables(sections[0].blocks):
        assert len(shown.columns) <= 10  # a screen of 1,280 pixels shows no more
        for row in shown.rows:
            titles = [column.title for column in shown.columns]
            rows.setdefault(row[0], {}).update(zip(titles, row, strict=True))
    return rows


def changed(found: Capacity, number: int, **changes: Any) -> Capacity:
    steps = list(found.runs)
    steps[number] = replace(steps[number], **changes)
    return replace(found, runs=tuple(steps))


def sampled_run(place: Path) -> CampaignRun:
    """A step of a run with the probes `host` and `postfix` of a machine whose load rises."""
    at = [(n, START_NS + round(n * 1e9)) for n in range(40)]
    host = [
        {
            "at_ns": at_ns,
            "probe": "host",
            "figures": {"cpu_busy_share": n / 50, "disk_sda_queue_requests": 1.5, "memory_available_bytes": 2.0**29},
        }
        for n, at_ns in at
    ]
    queue = [{"at_ns": at_ns, "probe": "postfix", "figures": {"send_queue_messages": 12.0}} for _, at_ns in at]
    short = {"window_s": [0.0, 30.0], "limits": {"hits": 1, "window_s": 1}}
    write_sample(
        place / "logs" / "c1.0.tlog",
        [done("READ", 1000 * n + 500, 40) for n in range(28)],
        DELIVERED,
        header=short,
        health=[*host, *queue],
        facts=ENDED | {"probes": {}},
    )
    score = finished_score(place)
    assert score is not None
    return CampaignRun("runs/01000-1", "1000 users", 1000).with_score(score)


def test_a_row_has_the_figures_of_the_runs_own_report(tmp_path: Path) -> None:
    """Also after the search was written and read."""
    step = sampled_run(tmp_path / "run")
    sections = describe_run(read_run(str(tmp_path / "run")), {}).sections
    own = {
        row[0]: row[1]
        for section in sections
        for one in tables(section.blocks)
        if one.caption == "Averages over the window"
        for row in one.rows
    }
    assert own["Processor time (% of all cores)"] == pytest.approx(29)  # of n / 50 for n from 0 to 29
    search = replace(
        capacity(Found(1000, None, "limit"), (1000, "pass")), runs=(replace(step, result="pass"),), directory=tmp_path
    )
    write(search)
    again = read_campaign(tmp_path)
    assert isinstance(again, Capacity)
    (row,) = averages(again).values()
    delivered = own.pop("Messages delivered to users (copies per minute)")
    assert delivered == row["Delivered per minute"] == 2  # one copy in half a minute
    assert {title: row[str(title)] for title in own} == own
    assert row["Tasks/s"] == pytest.approx(28 / 30)


def test_the_mean_is_of_valid_runs() -> None:
    """Two of three: the third made less load, and its processor was idle."""
    steps = capacity(Found(1000, None, "limit"), (1000, "pass"), runs=3).runs
    found = replace(capacity(Found(1000, None, "limit"), (1000, "pass")), runs=steps)
    for number, (share, validity, tasks) in enumerate(((0.4, "valid", 90), (0.6, "valid", 100), (0.0, "invalid", 5))):
        found = changed(
            found,
            number,
            validity=validity,
            tasks_per_s=float(tasks),
            score_ms=100.0 * (1 + number),
            averages=(Average("host", "cpu_busy_share", share),),
        )
    row = averages(found)[1000]
    assert row["Valid runs"] == "2 of 3"
    assert (row["Processor time (% of all cores)"], row["Tasks/s"], row["Score"]) == (50, 95, 150)


def test_an_overloaded_server_shows_its_processor_and_no_score() -> None:
    """Without a valid run, the papers' row would be empty where the server is full. A slow generator tells nothing."""
    steps = capacity(Found(None, 1000, "criteria"), (1000, "fail"), runs=4).runs
    results = (("fail", 0.9, 80), ("undecided", 1.0, 90), ("generator", 0.1, 5), ("void", 0.0, 1))
    for made, number_of_valid in ((results, 0), ((("pass", 0.5, 70), *results[1:]), 1)):
        found = replace(
            capacity(Found(None, 1000, "criteria"), (1000, "fail")),
            runs=tuple(
                replace(
                    step,
                    result=result,
                    validity="valid" if result == "pass" else "invalid",
                    tasks_per_s=float(tasks),
                    averages=(Average("host", "cpu_busy_share", share),),
                )
                for step, (result, share, tasks) in zip(steps, made, strict=True)
            ),
        )
        row = averages(found)[1000]
        assert row["Valid runs"] == f"{number_of_valid} of 4"
        expected = (50, 70) if number_of_valid else (95, 85)
        assert (row["Processor time (% of all cores)"], row["Tasks/s"]) == expected
        assert (row["Score"] is None) is (row["Response score"] is None) is (not number_of_valid)


def test_the_cores_of_a_pinned_server_count_instead_of_all() -> None:
    """Unless a number of users lacks their figure."""
    found = probed()
    own = Average("host", "server_cores_busy_share", 0.99)
    both = replace(found, runs=tuple(replace(step, averages=(*step.averages, own)) for step in found.runs))
    for row in averages(both).values():
        assert row["Processor time (% of the server's cores)"] == pytest.approx(99)
        assert "Processor time (% of all cores)" not in row
    partly = averages(changed(both, 0, averages=found.runs[0].averages))[found.runs[0].users]
    assert partly["Processor time (% of all cores)"] is not None
    assert partly["Processor time (% of the server's cores)"] is None


def test_a_probe_that_failed_in_a_run_has_no_mean() -> None:
    """It may have failed while the server was busy. Other numbers and figures keep theirs."""
    title = "Processor time (% of all cores)"
    found = probed()
    assert all(row[title] is not None for row in averages(found).values())
    quiet = tuple(replace(one, mean=None) if one.figure == "cpu_busy_share" else one for one in found.runs[0].averages)
    for broken in (quiet, found.runs[0].averages[1:]):
        rows = averages(changed(found, 0, averages=broken))
        assert [row[title] is None for row in rows.values()] == [True, False, False, False]
        assert rows[500]["Length of the send queue (messages)"] is not None


def test_only_measured_counters_have_columns_and_those_of_two_machines_their_probes() -> None:
    titles = [*averages(probed())[500]]
    assert "Queue of the disk vda (requests)" in titles and "IMAP sessions" not in titles
    found = probed()
    steps = [
        replace(step, averages=(*step.averages, Average("host@mx2", "cpu_busy_share", 0.01))) for step in found.runs
    ]
    row = averages(replace(found, runs=tuple(steps)))[1500]
    assert row["Processor time (% of all cores), host@mx2"] == pytest.approx(1)
    assert row["Processor time (% of all cores), host"] == pytest.approx(100 * 1500 / 1600)
    assert "Processor time (% of all cores)" not in row


def test_utilisation_is_drawn_on_the_axis_of_the_scores() -> None:
    found = probed()
    charts = [block for block in describe_capacity(found, (), {}).sections[1].blocks if isinstance(block, Chart)]
    (chart,) = (chart for chart in charts if chart.caption.startswith("Utilisation"))
    assert chart.axis == charts[0].axis and chart.shaded == charts[0].shaded == found.interval
    (panel,) = chart.panels
    assert [(line.name, max(filter(None, line.values))) for line in panel.lines] == [
        ("processor", pytest.approx(100 * 1500 / 1600)),
        ("disk vda", pytest.approx(50 * 1500 / 1600)),
        ("memory", pytest.approx(20 + 10 * 1500 / 1600)),
    ]
    shown = table(found, "Utilisation")
    assert [column.title for column in shown.columns] == ["Users", "processor", "disk vda", "memory"]
