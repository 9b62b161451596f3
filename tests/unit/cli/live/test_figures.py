"""The live figures of a run: what they are made of, and that terminal, page and metrics show the same ones."""

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from growing_runs import second
from live_snapshots import BEFORE, WORK
from metrics_pages import fetched, samples, value
from rich.console import Console
from run_states import live_run, scenario_of_run, summary_of

from loadsim.cli.live.figures import Lately, LiveFigures, LiveTask, before
from loadsim.cli.live.view import screenful
from loadsim.cli.metrics.prometheus import served_metrics
from loadsim.cli.metrics.publish import RunMetrics
from loadsim.cli.web.view import PageView


def figures_of(place: Path) -> LiveFigures:
    return live_run(place, BEFORE, WORK).figures


def test_rates_and_percentiles_are_those_of_the_last_minute(tmp_path: Path) -> None:
    """1038 READs, 200 SENDs and three that failed; of READ, the 987th is between 20 and 25.1 ms."""
    figures = figures_of(tmp_path)
    assert figures.lately == Lately(
        per_s=pytest.approx(1241 / 60),
        failed_share=pytest.approx(3 / 1241),
        busy_ms=pytest.approx(10_000 / 1241),
        down_ms=0.0,
        generator_ms=pytest.approx(250 / 1241),
    )
    assert figures.tasks == (
        LiveTask("READ", 2113, 0, pytest.approx(1038 / 60), pytest.approx((20 * 25.1) ** 0.5)),
        LiveTask("SEND", 420, 3, pytest.approx(200 / 60), 100_000.0),
    )
    assert figures.failures == (("SEND: 450 RCPT", 2), ("SEND: no answer to DATA", 1))
    assert figures.load == WORK
    assert (figures.phase, figures.share) == ("window", pytest.approx(124.2 / 300))


def test_planned_and_made_tasks_are_counted(tmp_path: Path) -> None:
    """The plan has six READs and two SENDs a second; tasks outside the plan do not count."""
    figures = figures_of(tmp_path)
    assert (figures.due, figures.made) == (745 + 248, 2113 + 423)
    live = live_run(tmp_path, second(1, 9))
    assert live.figures.made == 9


@pytest.mark.parametrize(
    ("times", "limit_ms"),
    [
        ({"READ": {"100": 50}, "SEND": {"20": 50}}, 2.0),  # 10 % of 18 ms would be less
        ({"READ": {"100": 50}, "LOGON": {"10": 50}}, 5.0),
        ({}, 5.0),
    ],
)
def test_the_lag_limit_is_that_of_the_verdict(
    tmp_path: Path, times: Mapping[str, Mapping[str, int]], limit_ms: float
) -> None:
    """10 % of the fastest scored task's 95th percentile, but from 2 to 5 ms; LOGON is not scored."""
    live = live_run(tmp_path, replace(BEFORE, service_times={}), replace(WORK, service_times=times))
    assert live.figures.lag_limit_ms == limit_ms


def test_log_ons_are_the_last_row(tmp_path: Path) -> None:
    """Where there are too few lines, the tasks of the day are seen."""
    tasks = {"LOGON": {"ok": 200}, "LOGOFF": {"ok": 1}} | dict(WORK.tasks)
    figures = live_run(tmp_path, replace(WORK, tasks=tasks)).figures
    assert [task.name for task in figures.tasks] == ["READ", "SEND", "LOGON", "LOGOFF"]


@pytest.mark.parametrize(
    ("phase", "users_on", "share"), [("log-on", 50, 0.25), ("work", 200, 0.4), ("drain", 200, 1.0), ("over", 0, 1.0)]
)
def test_the_progress_is_that_of_the_phase(tmp_path: Path, phase: str, users_on: int, share: float) -> None:
    live = live_run(tmp_path, replace(WORK, phase=phase, at_s=120.0, users_on=users_on))
    assert live.figures.share == pytest.approx(share)


def test_a_probe_shows_its_first_figures_throughout(tmp_path: Path) -> None:
    """With their newest values; names without end fill no memory."""
    live = live_run(tmp_path)
    for number in range(3):
        live.sampled("host", {"cpu_busy_share": number / 4} | {f"disk_{number}_{each}": 1.0 for each in range(900)})
    assert len(live.figures.probes["host"]) == 1000
    assert live.figures.probes["host"]["cpu_busy_share"] == 0.5


def test_terminal_page_and_metrics_show_the_same_figures(tmp_path: Path) -> None:
    """Users, mail, load, tasks and lateness, and after the end the verdict."""
    scenario = scenario_of_run(tmp_path)
    page, metrics = PageView(before(scenario)), RunMetrics(scenario)
    live = live_run(tmp_path, BEFORE, WORK, views=(page, metrics))
    shown = {name: text for name, text, _ in page.document()["figures"]}
    assert shown["Users"] == "199 of 200 on, 1 session lost, 3 messages in transit"
    assert shown["Load"] == "2,536 tasks made, 993 planned until now"
    assert shown["Late"].endswith("generator 3.1 ms (worst)")
    assert page.document()["tasks"][1] == ("SEND", "420", "3", "3.3", "over 100 s")

    console = Console(file=io.StringIO(), width=110, height=50, record=True)
    console.print(screenful(live.figures, console.width))
    screen = " ".join(console.export_text().split())
    for text in (*shown.values(), *(" ".join(row) for row in page.document()["tasks"])):
        assert text in screen

    with served_metrics("0", lambda: metrics.figures, quiet=True) as port:
        found = samples(fetched("127.0.0.1", port))
        names = ("users_on", "users", "sessions_lost_total", "mail_under_way", "late_most_seconds")
        assert [value(found, name) for name in names] == [199, 200, 1, 3, 0.0031]
        refused, timeout = (value(found, "tasks_total", task="SEND", outcome=each) for each in ("refused", "timeout"))
        assert refused + timeout == live.figures.tasks[1].failed
    live.done(summary_of(tmp_path), tmp_path)
    assert page.document()["result"]["verdict"] == "Valid by relaxed limits, criteria missed"
