"""Reasons for unmeasured figures of probes, in the answer and in `score.json`.

Seen from outside, they could be wrong so: a criterion is missed without a reason, although the logs have one; a reason
is not that of the miss; control characters of a command reach the terminal; another run's samples hide a failed probe.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from timing_samples import ENDED, START_NS, done, sample_log

from loadsim.analysis.probes.reasons import misnamed
from loadsim.analysis.summary import Summary, summarise
from loadsim.findings.catalogue import Code
from loadsim.report.junit import verdict_junit
from loadsim.timinglog.reader import TimingLog

CRITERION = "probes.command.value.max"


def log_of(
    path: Path,
    at_s: Iterable[float],
    criterion: str = CRITERION,
    facts: dict[str, Any] | None = None,
    figures: Iterable[str] = ("value",),
    **header: Any,
) -> TimingLog:
    """The log of a run of 50 s with samples of the probe `command` at these instants."""
    health = [
        {
            "at_ns": START_NS + round(at * 1e9),
            "probe": "command",
            "figures": dict.fromkeys(figures, 1.0),
        }
        for at in at_s
    ]
    return sample_log(
        path,
        [done("READ", 1000 * number + 500, 40) for number in range(50)],
        header={"window_s": [0.0, 50.0], "criteria": {criterion: {"max": 9}}} | header,
        health=health,
        facts=ENDED | ({"probes": {"command": facts}} if facts else {}),
    )


def facts_of(samples: int, failures: int, last_failure: str | None) -> dict[str, Any]:
    return {"package": "loadsim 1", "samples": samples, "failures": failures, "last_failure": last_failure}


def said_by(summary: Summary) -> str:
    """The criterion's only reason, which the answer has, too."""
    (result,) = summary.criteria
    assert not result.passed
    assert result.reason
    (missed,) = summary.verdict.missed
    assert (missed.code, missed.where, missed.values["why"]) == (
        Code.CRITERION_NOT_MEASURED,
        result.name,
        result.reason,
    )
    failures = ElementTree.fromstring(verdict_junit(summary)).findall(".//failure")
    assert any(result.reason in str(each.get("message")) for each in failures)
    return result.reason


@pytest.mark.parametrize(
    ("at_s", "criterion", "facts", "figures", "said"),
    [
        (
            [*range(20), *range(28, 50)],
            CRITERION,
            None,
            ["value"],
            "longest time without a sample 9 s, at most 5 s allowed",
        ),
        (
            [*range(20), *range(28, 50)],
            CRITERION,
            facts_of(42, 8, "timed out"),
            ["value"],
            "longest time without a sample 9 s, at most 5 s allowed; 8 of 50 samples failed: timed out",
        ),
        (
            [0, *(5.01 + each for each in range(45))],
            CRITERION,
            None,
            ["value"],
            "longest time without a sample 5.01 s, at most 5 s allowed",
        ),
        ([], CRITERION, facts_of(0, 19, "exit status 1"), ["value"], "19 of 19 samples failed: exit status 1"),
        ([], CRITERION, facts_of(0, 1, "\x1b[31mred"), ["value"], "1 of 1 samples failed: \\x1b[31mred"),
        ([], CRITERION, facts_of(0, 0, None), ["value"], "no sample was taken"),
        (range(50), "probes.command.valeu.max", None, ["value"], "the probe has no figure valeu; it has value"),
        (
            range(50),
            "probes.command.valeu.max",
            None,
            ["value", *(f"f{number}_count" for number in range(9))],
            "the probe has no figure valeu; it has 10 others, as value",
        ),
        (range(60, 70), CRITERION, None, ["value"], "no sample in the window"),
        (range(50), "probes.other.value.max", None, ["value"], "no probe other in the logs of this run"),
        (
            range(50),
            "probes.command.send_queue_s.max",
            None,
            ["send_queue_recipients"],
            "it takes measured deliveries, and at least 10 samples in the window",
        ),
    ],
)
def test_an_unmeasured_figure_has_its_reason(
    at_s: Iterable[float],
    criterion: str,
    facts: dict[str, Any] | None,
    figures: Iterable[str],
    said: str,
    tmp_path: Path,
) -> None:
    assert said_by(summarise([log_of(tmp_path / "a.tlog", at_s, criterion, facts, figures)])) == said


def test_a_measured_figure_has_no_reason(tmp_path: Path) -> None:
    """Also if some samples failed."""
    summary = summarise([log_of(tmp_path / "a.tlog", range(0, 50, 2), facts=facts_of(25, 25, "odd"))])
    (result,) = summary.criteria
    assert result.passed
    assert result.reason is None


def test_a_misnamed_figure_is_known_from_the_first_samples() -> None:
    """A criterion that is off, one on another probe, and a figure that is calculated later are none."""
    criteria = {
        "probes.command.valeu.max": {"max": 9},
        "probes.command.value.max": {"max": 9},
        "probes.command.off.max": None,
        "probes.command.send_queue_s.max": {"max": 9},
        "probes.command/a.other.max": {"max": 9},
        "score_ms": {"max": 9},
    }
    said = "criterion probes.command.valeu.max: in its first samples, the probe has no figure valeu; it has value"
    assert misnamed(criteria, "command", {"value"}) == [said]
    assert misnamed({"probes.a.b.max": {}}, "a", ()) == [
        "criterion probes.a.b.max: in its first samples, the probe has no figure b; it has none"
    ]
