"""Figures of probes in a report: on the axis of the tasks, with their units."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import all_tables
from timing_samples import DELIVERED, ENDED, START_NS, done, sample_log, write_sample

from loadsim.analysis.probes.statistics import probe_statistics
from loadsim.analysis.recorded_run import read_run
from loadsim.analysis.series.health import probe_series
from loadsim.analysis.series.tasks import Bins
from loadsim.model.terms import Window
from loadsim.report.document import Chart, Document
from loadsim.report.one_run import describe_run

HOST = {"cpu_busy_share": 0.25, "disk_sda_queue_requests": 1.5, "memory_available_bytes": 512 * 2**20}


def sampled(probe: str, at_s: float, **figures: float) -> dict[str, Any]:
    return {"at_ns": START_NS + round(at_s * 1e9), "probe": probe, "figures": figures}


def report_of(place: Path, health: list[dict[str, Any]], **header: Any) -> Document:
    tasks = [done("READ", 1000 * n + 500, 40) for n in range(40)]
    write_sample(
        place / "logs" / "c1.0.tlog",
        tasks,
        DELIVERED,
        header={"window_s": [10.0, 40.0], "duration_s": 50.0} | header,
        health=health,
        facts=ENDED | {"probes": {}},
    )
    return describe_run(read_run(str(place)))


def charts_of(document: Document) -> list[Chart]:
    section = next(section for section in document.sections if section.title == "Server and generator")
    return [block for block in section.blocks if isinstance(block, Chart)]


def test_figures_of_probes_share_the_axis_of_tasks(tmp_path: Path) -> None:
    """A second that has no sample has no point; the tasks of that second have one."""
    health = [sampled("host", n + 0.25, **HOST | {"cpu_busy_share": n / 100}) for n in range(50) if n != 20]
    report = report_of(tmp_path, health)
    (first,) = report.sections[0].blocks
    chart, further = charts_of(report)
    assert isinstance(first, Chart)
    panels = {panel.title: panel for one in (first, chart, further) for panel in one.panels}
    assert {"Tasks", "Service time of all tasks", "Processor (host)"} <= panels.keys()
    assert first.axis == chart.axis == further.axis
    assert len(chart.axis.positions) == 50
    (busy,) = panels["Processor (host)"].lines
    assert panels["Processor (host)"].y_title == "%"
    assert busy.values == pytest.approx([n if n != 20 else None for n in range(50)])
    assert panels["Tasks"].lines[0].values[20] == 1
    assert [line.values[0] for line in panels["Memory (host)"].lines] == [512]


def test_the_mean_of_a_bin_is_numpys(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    at_s, values = np.sort(rng.uniform(-5, 60, 300)), rng.uniform(0, 9, 300)
    health = [sampled("p", at, a_ms=value) for at, value in zip(at_s, values, strict=True)]
    log = sample_log(tmp_path / "a.tlog", [done("READ", 1000, 40)], health=health)
    bins = Bins(0, 50, 7)
    found = probe_series(log, bins)["p"]["a_ms"]
    for number, start_s in enumerate(bins.starts_s):
        inside = (at_s >= start_s) & (at_s < min(start_s + 7, 50))
        assert found[number] == pytest.approx(np.mean(values[inside]))


def test_the_table_of_figures_is_for_the_window(tmp_path: Path) -> None:
    """A load before the window and behind it is not in it; a probe with gaps has samples only."""
    inside = [sampled("host", n, a_share=n / 100) for n in range(10, 40)]
    outside = [sampled("host", n, a_share=1e9) for n in (0, 5, 41, 45)]
    gaps = [sampled("command", n, imap_sessions=40.0) for n in (10, 11, 39)]
    document = report_of(tmp_path, outside + inside + gaps, criteria={})
    (found,) = (table for table in all_tables(document) if table.caption.startswith("Probes: figures"))
    assert found.rows == (
        ("command: imap_sessions", 3, None, None, None, None),
        ("host: a_share", 30, pytest.approx(0.245), 0.38, 0.1, 0.39),
    )


def queue_log(place: Path, samples: list[tuple[float, float, float | None]]) -> Any:
    """A log with recipients in the queue and, if known, deliveries per second, by instant."""
    health = [
        sampled("postfix", at_s, send_queue_recipients=queued, **({} if rate is None else {"sent_per_s": rate}))
        for at_s, queued, rate in samples
    ]
    return sample_log(place / "a.tlog", [done("READ", 1000, 40)], health=health)


def test_the_mean_time_in_the_send_queue_follows_littles_law(tmp_path: Path) -> None:
    """By Little's law: recipients that arrive at random wait for random times, which are known."""
    rng = np.random.default_rng(11)
    length_s, rate_per_s = 1000, 6.0
    came_s = np.sort(rng.uniform(0, length_s, int(length_s * rate_per_s)))
    waits_s = rng.exponential(2.5, len(came_s))
    left_s = came_s + waits_s
    samples = [
        (
            float(at_s),
            float(np.count_nonzero((came_s <= at_s) & (left_s > at_s))),
            float(np.count_nonzero((left_s > at_s - 1) & (left_s <= at_s))),
        )
        for at_s in range(length_s)
    ]
    found = probe_statistics(queue_log(tmp_path, samples), Window(0, length_s))
    assert found is not None
    assert found["postfix"]["send_queue_s"].mean == pytest.approx(np.mean(waits_s), rel=0.03)


def test_a_build_up_is_shown_in_seconds_of_throughput(tmp_path: Path) -> None:
    """Of the window: 90 recipients at 3 per second, with other rates outside of it and at that moment."""
    rates = {20: 0.0, 21: 6.0}
    samples: list[tuple[float, float, float | None]] = [
        (at_s, 90.0 if at_s == 20 else 0.0, rates.get(at_s, 3.0)) for at_s in range(10, 40)
    ]
    log = queue_log(tmp_path, [(0, 9000, 900), *samples, (45, 9000, 900)])
    found = probe_statistics(log, Window(10, 40))
    assert found is not None
    one = found["postfix"]["send_queue_s"]
    assert (one.max, one.p50, one.mean) == (30, 0, 1)


@pytest.mark.parametrize("rates", [{}, dict.fromkeys(range(10, 40), 0.0), dict.fromkeys(range(10, 20), 3.0)])
def test_without_a_throughput_the_queue_has_no_length_in_seconds(rates: dict[int, float], tmp_path: Path) -> None:
    """No log is read, nothing is delivered, or the rates end in the middle: a criterion is then missed, not met."""
    log = queue_log(tmp_path, [(at_s, 5.0, rates.get(at_s)) for at_s in range(10, 40)])
    found = probe_statistics(log, Window(10, 40))
    assert found is not None
    assert "send_queue_s" not in found["postfix"]
