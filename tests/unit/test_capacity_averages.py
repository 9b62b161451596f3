"""The averages of a search by number of users.

Seen from outside, they could be wrong so: an invalid run counts; a mean hides that a probe failed in a run, which makes
the server look idle; a unit has the wrong factor; figures of two machines are mixed; a row differs from the run's own
report.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import tables
from finished_searches import capacity
from timing_samples import DELIVERED, ENDED, START_NS, done, write_sample

from loadsim.analysis.recorded_run import read_run
from loadsim.campaign.file import finished_summary, read_campaign, write
from loadsim.campaign.runs import Average, CampaignRun
from loadsim.capacity.capacity import Capacity
from loadsim.capacity.document import describe_capacity
from loadsim.capacity.search import Found
from loadsim.report.document import Cell
from loadsim.report.one_run import describe_run


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
    summary = finished_summary(place)
    assert summary is not None
    return CampaignRun("runs/01000-1", "1000 users", 1000).with_summary(summary)


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
        capacity(Found(1000, None, "limit"), (1000, "pass")),
        runs=(replace(step, result="pass", validity="valid", findings=()),),
        directory=tmp_path,
    )
    write(search)
    again = read_campaign(tmp_path, Capacity)
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
