"""Reasons for unmeasured figures of probes, in the answer and in `score.json`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from timing_samples import ENDED, START_NS, done, sample_log

from loadsim.analysis.reasons import misnamed
from loadsim.analysis.summary import summarise
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.report.junit import verdict_junit
from loadsim.timinglog.reader import TimingLog

CRITERION = "probes.command.value.max"


def log_of(
    path: Path,
    at_s: Iterable[float],
    criterion: str = CRITERION,
    facts: dict[str, Any] | None = None,
    figure: str = "value",
    **header: Any,
) -> TimingLog:
    """The log of a run of 50 s with samples of the probe `command` at these instants."""
    health = [{"at_ns": START_NS + round(at * 1e9), "probe": "command", "figures": {figure: 1.0}} for at in at_s]
    return sample_log(
        path,
        [done("READ", 1000 * number + 500, 40) for number in range(50)],
        header={"window_s": [0.0, 50.0], "criteria": {criterion: {"max": 9}}} | header,
        health=health,
        facts=ENDED | ({"probes": {"command": facts}} if facts else {}),
    )


def facts_of(samples: int, failures: int, last_failure: str | None) -> dict[str, Any]:
    return {"package": "loadsim 1", "samples": samples, "failures": failures, "last_failure": last_failure}


EARLY_AND_LATE = [*range(20), *range(28, 50)]


@pytest.mark.parametrize(
    ("at_s", "criterion", "facts", "figure", "reasons"),
    [
        (EARLY_AND_LATE, CRITERION, None, "value", [finding(Code.NO_SAMPLES, gap_s=9.0)]),
        (
            EARLY_AND_LATE,
            CRITERION,
            facts_of(42, 8, "timed out"),
            "value",
            [finding(Code.NO_SAMPLES, gap_s=9.0), finding(Code.SAMPLES_FAILED, failed=8, tried=50, why="timed out")],
        ),
        ([0, *(5.25 + each for each in range(45))], CRITERION, None, "value", [finding(Code.NO_SAMPLES, gap_s=5.25)]),
        ([], CRITERION, facts_of(0, 0, None), "value", [finding(Code.NO_SAMPLES, gap_s=50.0)]),
        (range(60, 70), CRITERION, None, "value", [finding(Code.NO_SAMPLES, gap_s=50.0)]),
        (
            range(50),
            "probes.command.valeu.max",
            None,
            "value",
            [finding(Code.MISNAMED_FIGURE, figure="valeu", known=("value",))],
        ),
        (range(50), "probes.other.value.max", None, "value", [finding(Code.NO_PROBE, "other")]),
        (
            range(50),
            "probes.command.send_queue_s.max",
            None,
            "send_queue_recipients",
            [finding(Code.NO_DELIVERIES, limit=10)],
        ),
    ],
)
def test_an_unmeasured_figure_has_its_reasons(
    at_s: Iterable[float],
    criterion: str,
    facts: dict[str, Any] | None,
    figure: str,
    reasons: list[Finding],
    tmp_path: Path,
) -> None:
    summary = summarise([log_of(tmp_path / "a.tlog", at_s, criterion, facts, figure)])
    (result,), (missed,) = summary.criteria, summary.verdict.missed
    assert not result.passed and [*result.reasons] == reasons
    assert (missed.code, missed.where) == (Code.CRITERION_NOT_MEASURED, criterion)
    assert missed.values["why"] == tuple(one.words for one in reasons)
    failures = ElementTree.fromstring(verdict_junit(summary)).findall(".//failure")
    assert all(any(one.words in str(each.get("message")) for each in failures) for one in reasons)


def test_the_failure_of_a_command_is_printable(tmp_path: Path) -> None:
    (result,) = summarise([log_of(tmp_path / "a.tlog", [], facts=facts_of(0, 1, "\x1b[31mred"))]).criteria
    assert [one.code for one in result.reasons] == [Code.NO_SAMPLES, Code.SAMPLES_FAILED]
    assert "\x1b" not in result.reasons[1].words


def test_a_measured_figure_has_no_reason(tmp_path: Path) -> None:
    """Also if some samples failed."""
    summary = summarise([log_of(tmp_path / "a.tlog", range(0, 50, 2), facts=facts_of(25, 25, "odd"))])
    (result,) = summary.criteria
    assert result.passed
    assert result.reasons == ()


def test_a_misnamed_figure_is_found_in_the_first_samples() -> None:
    """A criterion that is off, one on another probe, and a figure that is calculated later are none."""
    criteria = {
        "probes.command.valeu.max": {"max": 9},
        "probes.command.value.max": {"max": 9},
        "probes.command.off.max": None,
        "probes.command.send_queue_s.max": {"max": 9},
        "probes.command/a.other.max": {"max": 9},
        "score_ms": {"max": 9},
    }
    (lacking,) = misnamed(criteria, "command", {"value"})
    assert lacking == finding(Code.MISNAMED_FIGURE, "probes.command.valeu.max", figure="valeu", known=("value",))
