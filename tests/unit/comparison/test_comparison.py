"""`loadsim compare`: which runs it takes, what it prints, and how it ends."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from compared_runs import decided, three, write_run
from findings_of import codes
from junit_rules import cases_of
from paths import GOLDEN_FILES, ROOT
from timing_samples import done, event, skipped

from loadsim.cli import main
from loadsim.comparison.compared_run import DELIVERY
from loadsim.comparison.comparison import Comparison, NotComparable, compare_runs
from loadsim.comparison.document import RESERVATION, describe_comparison, tone, verdict_line
from loadsim.comparison.failure_rates import Counts, FailureRates
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.formats import Value
from loadsim.findings.severity import Severity
from loadsim.report.text import to_text

FIGURES = ("tasks", "scores", "response_scores", "further")

Capture = pytest.CaptureFixture[str]


def by_name(comparison: Comparison, name: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (one for key in FIGURES for one in comparison.document[key] if one["name"] == name)
    return found


def refused(base: list[Path], new: list[Path], **options: Any) -> str:
    with pytest.raises(ConfigError) as refusal:
        compare_runs(base, new, **options)
    assert str(refusal.value).isprintable()
    return str(refusal.value)


def against(base: list[Path], new: list[Path], **options: Any) -> tuple[Finding, ...]:
    """Return the findings for which a comparison is refused, each of which has its line."""
    with pytest.raises(NotComparable) as refusal:
        compare_runs(base, new, **options)
    assert refusal.value.lines == tuple(f"compare: {one.text}" for one in refusal.value.findings)
    return refusal.value.findings


def test_the_text_equals_the_golden_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """READ takes 20 % longer and is found, SEND the same and is not; the figures were computed with SciPy, as well.

    Base: 100, 102, 104.04 ms and 50, 51, 52.02 ms; new: 120, 122.4, 124.848 ms and 52.02, 51, 50 ms.
    """
    monkeypatch.chdir(tmp_path)
    base = three(Path(), "base", 102)
    new = three(Path(), "new", 122.4, (52.02, 51, 50))
    assert main(["compare", "--base", *map(str, base), "--new", *map(str, new), "--max-regression", "5%"]) == 1
    assert capsys.readouterr().out == (GOLDEN_FILES / "compare.txt").read_text(encoding="utf-8")


def many(place: Path, side: str, read_ms: float, count: int) -> list[Path]:
    """Write `runs` runs whose READ takes about this time."""
    turn = {"base": 0, "new": 1}[side]
    return [
        write_run(place, f"{side}-{at}", read_ms * 1.01 ** (at % 3), hour=2 * at + (turn + at) % 2, send_ms=None)
        for at in range(count)
    ]


def test_a_task_missing_in_some_run_is_named_and_not_compared(tmp_path: Path) -> None:
    """Without hits in one run it has no time there; the others are compared."""
    browse = [done("BROWSE", 2000, 30), *(done("READ", 1000 * at, 100) for at in range(1, 6))]
    base = [write_run(tmp_path, "b1", tasks=browse), write_run(tmp_path, "b2", send_ms=None)]
    new = [write_run(tmp_path, f"n{at}", 101 + at, send_ms=None) for at in (1, 2)]
    comparison = compare_runs(base, new)
    assert [one["name"] for one in comparison.document["tasks"]] == ["READ"]
    assert comparison.document["not_compared"] == ["BROWSE"]
    assert "not compared: BROWSE." in to_text(describe_comparison(comparison))


def reads(took_ms: float, unanswered: int, of: int = 100) -> list[dict[str, Any]]:
    """Return READs, some of which are refused within 3 ms, and as many SENDs of 50 ms each."""
    tasks = [done("READ", 900 * at, took_ms) for at in range(of - unanswered)]
    tasks += [
        done("READ", 900 * at + 100, 3, outcome="refused", error="IMAP UID FETCH: NO") for at in range(unanswered)
    ]
    return tasks + [done("SEND", 900 * at, 50) for at in range(of)]


def side_of(place: Path, side: str, took_ms: float, unanswered: int, of: int = 100, runs: int = 3) -> list[Path]:
    """Runs whose READ takes about this time, where it is answered; they take turns with the other side's."""
    turn = {"base": 0, "new": 1}[side]
    return [
        write_run(place, f"{side}-{at}", tasks=reads(took_ms * 1.02**at, unanswered, of), hour=2 * at + (turn + at) % 2)
        for at in range(runs)
    ]


def test_a_server_that_refuses_quickly_is_not_faster_and_fails(tmp_path: Path) -> None:
    """Half of the READs are refused, and the others take 60 % of the time: the new server fails."""
    base, new = side_of(tmp_path, "base", 100, 0), side_of(tmp_path, "new", 60, 50)
    found = compare_runs(base, new, max_regression=0.05)
    assert (found.exit_status, "faster" in to_text(describe_comparison(found))) == (1, False)
    assert decided(found)["failures of READ"] == decided(found)["criteria"] == "failed"
    assert decided(found)["failures of SEND"] == "passed"
    assert (by_name(found, "READ")["change"], by_name(found, "READ")["answered_less"]) == (None, "new")
    assert by_name(found, "READ")["unanswered"] == {"base": 0, "new": 0.5}
    assert (by_name(found, "Score")["change"], by_name(found, "Score")["answered_less"]) == (None, "new")
    assert by_name(found, "SEND")["answered_less"] is None


@pytest.mark.parametrize("unanswered", [[50], [0, 0, 30]])
def test_failures_of_a_single_run_are_undecided(tmp_path: Path, unanswered: list[int]) -> None:
    """Half of the READs of a single run; a third of those of one of three, which differ by as much among themselves."""
    base = side_of(tmp_path, "base", 100, 0, runs=len(unanswered))
    new = [
        write_run(tmp_path, f"new-{at}", tasks=reads(60 * 1.02**at, some), hour=2 * at + 1)
        for at, some in enumerate(unanswered)
    ]
    found = compare_runs(base, new, max_regression=0.05)
    assert (found.document["decision"], found.exit_status) == ("undecided", 4)
    assert (by_name(found, "READ")["change"], by_name(found, "READ")["answered_less"]) == (None, "new")
    assert decided(found)["failures of READ"] == "undecided"


def test_a_difference_of_shares_has_its_interval() -> None:
    """Runs of a thousand of which some are not answered: by Welch's test, told by hand.

    10, 20, 30 and 50, 60, 70: 40 apart, with an error of 10 * sqrt(2 / 3) = 8.16. Of each variance, 100, chance among a
    thousand tasks that fail with 4 % is 38.4. So there are 2 * 200 ** 2 / (2 * 61.6 ** 2) = 10.5 degrees of freedom,
    and t is 2.228. Without any more, it is 1.972, for 200.
    """

    def unanswered(base: list[int], new: list[int]) -> FailureRates:
        return FailureRates([Counts(1000, some) for some in base], [Counts(1000, some) for some in new])

    assert unanswered([10, 20, 30], [50, 60, 70]).interval(0.05) == pytest.approx((0.02181, 0.05819), rel=1e-3)
    _, high = unanswered([10, 10], [10, 10]).interval(0.05) or (0, 0)
    assert high == pytest.approx(1.972 * math.sqrt(0.01 * 0.99 / 1000), rel=1e-3)
    assert unanswered([10], [900]).interval(0.05) is None
    assert unanswered([0, 0], [0, 0]).interval(0.05) == (0, 0)
    low, high = FailureRates([Counts(20, 0)] * 2, [Counts(20, 1)] * 2).interval(0.05) or (0, 0)
    assert low < 0 < high  # alike, and yet chance
    assert unanswered([10, 40, 70], [50, 80, 110]).more == "new"
    assert (unanswered([0], [0]).allowed, FailureRates([], [Counts(100, 0)]).allowed) == (0.01, 0.05)


def test_a_server_that_answers_more_is_not_slower(tmp_path: Path) -> None:
    """The old server left half of its READs unanswered and was fast with the rest: the new one has not failed."""
    found = compare_runs(side_of(tmp_path, "base", 60, 50), side_of(tmp_path, "new", 100, 0), max_regression=0.05)
    assert (found.document["decision"], found.exit_status, found.document["more_repeats"]) == ("undecided", 4, None)
    assert (by_name(found, "READ")["change"], by_name(found, "READ")["answered_less"]) == (None, "base")
    assert {name for name, one in decided(found).items() if one != "passed"} == {"Score", "criteria"}


@pytest.mark.parametrize(
    ("unanswered", "of", "expected"), [(1, 20, "undecided"), (1, 100, "undecided"), (0, 100, "passed")]
)
def test_one_failure_is_undecided(tmp_path: Path, unanswered: int, of: int, expected: str) -> None:
    """One in a hundred is no more than the criteria allow, but three more do not show that it is no more."""
    base, new = side_of(tmp_path, "base", 100, 0, of), side_of(tmp_path, "new", 60, unanswered, of)
    found = compare_runs(base, new, max_regression=0.05)
    assert (found.document["decision"], by_name(found, "READ")["change"]) == ("undecided", "faster")
    assert decided(found)["failures of READ"] == expected


def waiting(
    place: Path, side: str, late_ms: Sequence[float], *, failed: Sequence[int] = (), **header: Any
) -> list[Path]:
    """Runs with equal service times, whose READs begin so late; `failed` counts those of ten that are refused."""
    turn = {"base": 0, "new": 1}[side]
    return [
        write_run(
            place,
            f"{side}-{at}",
            tasks=[
                done("READ", 8000 * number, 100 * 1.002**at, late, **(REFUSED if number < bad else {}))
                for number in range(10)
            ],
            hour=2 * at + (turn + at) % 2,
            **({"criteria": {"score_ms": {"below": 1000}}} | header),
        )
        for at, (late, bad) in enumerate(zip(late_ms, failed or [0] * len(late_ms), strict=True))
    ]


REFUSED = {"outcome": "refused", "error": "IMAP UID FETCH: NO"}

BELOW_5_S = {"response_score_ms": {"below": 5000}}


def test_users_who_wait_longer_do_not_pass(tmp_path: Path) -> None:
    """The server is as fast as ever at what it does, but each task begins 4.5 s late, within all criteria."""
    base, new = waiting(tmp_path, "base", [0] * 5), waiting(tmp_path, "new", [4500] * 5)
    found = compare_runs(base, new, max_regression=0.05)
    assert (found.document["decision"], found.exit_status) == ("failed", 1)
    (regression,) = (one for one in found.figures.findings if one.code is Code.REGRESSION)
    assert set(regression.values["figures"]) == {name for name, one in decided(found).items() if one == "failed"}
    assert by_name(found, "Score")["change"] is None
    response = by_name(found, "Response score")
    assert (response["change"], response["new_ms"]) == ("slower", pytest.approx(100 * 1.002**2 + 4500, rel=1e-3))
    assert tone(found) == "bad"


@pytest.mark.parametrize(
    ("base_late", "new_late", "decision", "more"),
    [
        ([0, 0, 0], [6000, 6000, 6000], "failed", True),
        ([0, 0, 0], [0, 0, 6000], "undecided", True),
        ([0], [6000], "undecided", True),
        ([0, 0, 6000], [0, 6000, 6000], "undecided", True),
        ([0, 6000, 6000], [0, 0, 6000], "undecided", False),
        ([0] * 3, [0] * 3, "undecided", False),
        ([0, 0, 0, 0, 6000], [0, 0, 0, 0, 6000], "passed", False),
        ([6000] * 5, [6000] * 5, "passed", False),
    ],
)
def test_criteria_missed_by_new_are_no_pass(
    tmp_path: Path, base_late: list[float], new_late: list[float], decision: str, more: bool
) -> None:
    """A larger share of new fails if it is significant, and else is undecided, as is what few runs do not exclude."""
    base = waiting(tmp_path, "base", base_late, criteria=BELOW_5_S)
    new = waiting(tmp_path, "new", new_late, criteria=BELOW_5_S)
    found = compare_runs(base, new, max_regression=0.05)
    assert decided(found)["criteria"] == decision
    assert found.exit_status == {"passed": 0, "failed": 1, "undecided": 4}[found.document["decision"]]
    without_limit = compare_runs(base, new)
    assert (without_limit.document["decision"], without_limit.exit_status) == (None, 0)
    for each in (found, without_limit):
        assert each.document["missed_more"] == (["response_score_ms"] if more else [])
        assert ("new missed criteria more often than base" in verdict_line(each.figures)) == more
        assert not more or tone(each) != "good"


@pytest.mark.parametrize(
    ("base_failed", "new_failed", "decision", "ratio"),
    [
        ([0, 0, 0], [1, 1, 1], "failed", "inf"),
        ([0, 0, 0], [0, 0, 1], "undecided", "inf"),
        ([1] * 3, [0] * 3, "undecided", 0),
        ([1] * 3, [1] * 3, "undecided", 1),
    ],
)
def test_an_infinite_response_score_is_worse_than_any_other(
    tmp_path: Path, base_failed: list[int], new_failed: list[int], decision: str, ratio: float | str
) -> None:
    """One of ten READs fails: enough for an infinite 95th percentile, which is a miss, even if its criterion is off."""
    base = waiting(tmp_path, "base", [0] * len(base_failed), failed=base_failed)
    new = waiting(tmp_path, "new", [0] * len(new_failed), failed=new_failed)
    found = compare_runs(base, new, max_regression=0.05)
    response = by_name(found, "Response score")
    assert (response["change"], response["ratio"], response["low"], response["p"]) == (None, ratio, None, None)
    assert by_name(found, "READ")["answered_less"] is None
    assert json.dumps(found.document, allow_nan=False)
    assert found.document["decision"] == decision
    assert found.document["missed_more"] == (["response_score_ms"] if ratio == "inf" else [])
    assert decided(found)["criteria"] == decision


def test_failure_rates_without_any_times_are_compared(tmp_path: Path) -> None:
    """No MOVE was answered by the new server: without a weight it is in no score, and in no row of the table."""
    moves = [done("MOVE", 900 * at, 5) for at in range(100)]
    refused_moves = [move | {"outcome": "refused", "error": "IMAP UID MOVE: NO"} for move in moves]
    base = write_run(tmp_path, "base-1", tasks=reads(100, 0) + moves, weights={"READ": 1})
    new = write_run(tmp_path, "new-1", tasks=reads(100, 0) + refused_moves, weights={"READ": 1})
    found = compare_runs([base], [new])
    assert found.document["not_compared"] == ["MOVE"]
    assert finding(Code.FAILURE_RATES_DIFFER, "MOVE", base_share=0, new_share=1) in found.figures.findings


def test_drivers_are_compared_each_with_itself(tmp_path: Path) -> None:
    """With two in a run, one's times are never held against the other's; the worse of both decides."""

    def run(name: str, imap_ms: float, other_ms: float) -> Path:
        tasks = [done("READ", 1000, imap_ms), done("READ", 2000, other_ms, user=2, protocol="other")]
        return write_run(tmp_path, name, tasks=tasks)

    base = [run(f"b{at}", 10 + 0.1 * at, 50 + at) for at in (1, 2, 3)]
    new = [run(f"n{at}", 10 + 0.1 * at, 150 + at) for at in (1, 2, 3)]
    comparison = compare_runs(base, new, max_regression=0.2)
    assert by_name(comparison, "imap: READ")["ratio"] == pytest.approx(1)
    assert by_name(comparison, "other: READ")["ratio"] == pytest.approx(2.93, rel=0.01)
    assert [one["name"] for one in comparison.document["scores"]] == ["imap: Score", "other: Score"]
    assert comparison.document["decision"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("header", "code", "says"),
    [
        ({"plan_digest": "p2", "start_state_digest": "m2"}, Code.LOADS_DIFFER, "'plan_digest', 'start_state_digest'"),
        ({"users": 3, "engine_users": 3}, Code.COMPARED_UNLIKE, "number of users (topology): 2 in b1, 3 in n2"),
        (
            {"window_s": [0, 90]},
            Code.COMPARED_UNLIKE,
            "window (run.warm_up, run.window): 100 s from 0 s on in b1, 90 s from 0 s on in n2",
        ),
        (
            {"day_shape": [1, 3]},
            Code.COMPARED_UNLIKE,
            "shape of the day (run.day_shape): flat in b1, 2 parts, the busiest at 1.5 times",
        ),
        (  # logs of earlier versions do not say, and were delayed
            {"acknowledgements": "at once"},
            Code.COMPARED_UNLIKE,
            "acknowledgements to the server: delayed in b1, at once in n2",
        ),
        ({"weights": {"READ": 1, "SEND": 1}}, Code.COMPARED_UNLIKE, "weights.READ: 10 in b1, 1 in n2"),
        (
            {"programs": "thunderbird"},
            Code.COMPARED_UNLIKE,
            "mail programs (topology): the default in b1, thunderbird in n2",
        ),
        (
            {"audit_allow": ["mail-altered"]},
            Code.COMPARED_UNLIKE,
            "allowed faults (run.audit_allow): none in b1, mail-altered in n2",
        ),
        ({"limits": {"hits": 6}}, Code.COMPARED_INVALID, "READ"),
        (
            {"limits": {"hits": 1, "generator_lag_share": None, "window_s": 60}},
            Code.COMPARED_UNLIKE,
            "limits.generator_lag_share: 0.1 in b1, off in n2; limits.window_s: 30 s in b1, 1 min in n2",
        ),
    ],
)
def test_incomparable_runs_are_refused(tmp_path: Path, header: dict[str, Any], code: Code, says: str) -> None:
    base = [write_run(tmp_path, f"b{at}", 100 + at) for at in (1, 2)]
    new = [write_run(tmp_path, "n1", 101), write_run(tmp_path, "n2", 102, **header)]
    first = against(base, new)[0]
    assert first.code is code and says in str(first.values.values())
    assert new[1].name in refused(base, new)


def test_reasons_name_runs_by_the_last_part_of_their_paths(tmp_path: Path) -> None:
    """Whole paths stand for runs that share it."""
    base, new = write_run(tmp_path / "x", "one"), write_run(tmp_path / "y", "two", day_s=600)
    assert "(run.day_length): 8 h in one, 10 min in two" in refused([base], [new])
    assert str(tmp_path) not in refused([base], [new])
    base, new = write_run(tmp_path / "x", "run", run="r1"), write_run(tmp_path / "y", "run", run="r2", day_s=600)
    assert f"(run.day_length): 8 h in {base}, 10 min in {new}" in refused([base], [new])


def test_all_reasons_are_named_at_once(tmp_path: Path) -> None:
    """An invalid run, and another day; that the plan is another one, too, follows from it."""
    base = [write_run(tmp_path, f"b{at}", 100 + at) for at in (1, 2)]
    new = [
        write_run(tmp_path, "n1", 101, limits={"hits": 6}),
        write_run(tmp_path, "n2", 102, day_s=600, plan_digest="p2"),
    ]
    invalid, day, hits = against(base, new)
    assert (invalid.code, invalid.where) == (Code.COMPARED_INVALID, str(new[0]))
    assert day.values["difference"] == "length of the day (run.day_length): 8 h in b1, 10 min in n2"
    assert str(hits.values["difference"]).startswith("limits.hits: ")


def test_runs_by_different_drivers_are_refused(tmp_path: Path) -> None:
    base = [write_run(tmp_path, f"b{at}", 100 + at) for at in (1, 2)]
    tasks = [done("READ", 1000 * at, 100, protocol="other") for at in range(1, 6)]
    tasks += [done("SEND", 1000, 50, protocol="other")]
    new = [write_run(tmp_path, f"n{at}", tasks=tasks) for at in (1, 2)]
    assert finding(Code.COMPARED_UNLIKE, difference="drivers: imap in b1 and other in n1") in against(base, new)


SCENARIO = "topology: [{{profile: p, users: 2, protocol: {driver}}}]\nserver: {driver}\nrun: {{seed: {seed}}}\n"


def runs_by(place: Path, driver: str, seeds: tuple[int, ...] = (1,), **header: Any) -> list[Path]:
    """A run for each seed by a driver, with the scenario that it recorded."""
    found = []
    for seed in seeds:
        tasks = [done("READ", 1000 * at, 100, protocol=driver) for at in range(1, 6)]
        digests = {"scenario_digest": f"{driver}{seed}", "plan_digest": f"p{seed}"}
        found.append(write_run(place, f"{driver}{seed}", tasks=tasks, **digests, **header))
        (found[-1] / "scenario.yaml").write_text(SCENARIO.format(driver=driver, seed=seed), encoding="utf-8")
    return found


def test_across_drivers_one_load_is_compared(tmp_path: Path) -> None:
    """Compared if that is wanted; the finding says what differs with the drivers."""
    base, new = runs_by(tmp_path, "imap", submission="pipelining"), runs_by(tmp_path, "mapi")
    assert "drivers: imap in imap1 and mapi in mapi1" in refused(base, new)
    found = compare_runs(base, new, across_drivers=True).figures
    (unlike,) = found.unequal_conditions
    assert (unlike.code, unlike.values["base"], unlike.values["new"]) == (Code.DRIVERS_DIFFER, "imap", "mapi")
    (difference,) = unlike.values["differences"]  # type: ignore[misc]
    assert str(difference).startswith("submission ") and unlike in found.findings


def test_across_drivers_delivery_does_not_decide(tmp_path: Path) -> None:
    """By SMTP it begins with the acceptance into a queue, by MAPI later."""
    mails = [event("accepted", "n1.0", 2, 100), event("seen", "n1.0", 2, 900)]
    base, new = (runs_by(tmp_path, driver, mails=mails) for driver in ("imap", "mapi"))
    found = compare_runs(base, new, across_drivers=True, max_regression=0.05)
    assert not found.figures.further and DELIVERY not in decided(found)


@pytest.mark.parametrize("seeds", [(1, 2), (2,)])
def test_across_drivers_each_seed_must_occur_equally_often(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    """Each seed occurs equally often on both sides."""
    base, new = runs_by(tmp_path, "imap"), runs_by(tmp_path, "mapi", seeds)
    (found,) = against(base, new, across_drivers=True)
    assert found.code is Code.LOADS_DIFFER
    assert found.values["digests"] == ("scenario_digest", "plan_digest") and found.values["keys"] == ("run.seed",)


def test_across_drivers_diagnostics_are_no_load(tmp_path: Path) -> None:
    """Addresses of the client, and keys about the time after the run, are no load either."""
    base, new = runs_by(tmp_path, "imap"), runs_by(tmp_path, "mapi")
    scenario = SCENARIO.format(driver="mapi", seed=1).replace("seed: 1", "seed: 1, audit: no, audit_allow: [flag-lost]")
    scenario += "client: {tls_resumption: no, trace: 1, check_state: 0.0, source_addresses: [127.0.0.2]}\n"
    (new[0] / "scenario.yaml").write_text(scenario, encoding="utf-8")
    (found,) = against(base, new, across_drivers=True)
    assert found.values["keys"] == ("client",)
    with (base[0] / "scenario.yaml").open("a", encoding="utf-8") as file:
        file.write("client: {tls_resumption: no}\n")
    compare_runs(base, new, across_drivers=True)


def test_across_drivers_other_differences_remain(tmp_path: Path) -> None:
    """A side has one driver, days are as long, and without recorded scenarios digests that differ are two loads."""
    imap, mapi = runs_by(tmp_path, "imap"), runs_by(tmp_path, "mapi", (1, 2))
    assert "drivers: imap in imap1 and mapi in mapi1" in refused([*imap, mapi[0]], [mapi[1]], across_drivers=True)
    (tmp_path / "other").mkdir()
    shorter = runs_by(tmp_path / "other", "mapi", day_s=600)
    assert "(run.day_length): 8 h in imap1" in refused(imap, shorter, across_drivers=True)
    (imap[0] / "scenario.yaml").unlink()
    assert "[loads-differ]" in refused(imap, mapi[:1], across_drivers=True)


def test_scores_over_different_tasks_are_refused(tmp_path: Path) -> None:
    """A score without SEND is another score."""
    base = [write_run(tmp_path, f"b{at}", 100 + at) for at in (1, 2)]
    new = [write_run(tmp_path, "n1", 101), write_run(tmp_path, "n2", 101, send_ms=None)]
    assert "tasks in the score: READ, SEND in b1 and READ in n2 [compared-unlike]" in refused(base, new)


def test_the_same_seeds_on_both_sides_are_legitimate_repeats(tmp_path: Path) -> None:
    """Plans may differ where each occurs equally often in both sets, and are refused where one does not."""
    seeds = [{"plan_digest": f"p{seed}", "start_state_digest": f"m{seed}"} for seed in (1, 2)]
    base = [write_run(tmp_path, f"b{at}", 100 + at, **seed) for at, seed in enumerate(seeds)]
    new = [write_run(tmp_path, f"n{at}", 100 + at, **seed) for at, seed in enumerate(reversed(seeds))]
    compare_runs(base, new)
    more = write_run(tmp_path, "n9", 100, **seeds[0])
    assert "[loads-differ]" in refused(base, [*new, more])


def test_a_differing_load_is_explained_by_the_scenarios(tmp_path: Path) -> None:
    """The seed and ignored capabilities change the plan; the server's address and a probe do not."""
    runs = []
    for name, seed, probes in (("base", 1, "{}"), ("new", 2, "{host: {}}")):
        runs.append(write_run(tmp_path, name, scenario_digest=f"s{seed}", plan_digest=f"p{seed}"))
        scenario = (
            f"server: {{imap: {{host: {name}, ignore_capabilities: [{seed}]}}}}\n"
            f"probes: {probes}\nrun: {{day_length: 8h, seed: {seed}}}\n1: no key\n"
        )
        (runs[-1] / "scenario.yaml").write_text(scenario, encoding="utf-8")
    (found,) = against(runs[:1], runs[1:])
    assert found.values["digests"] == ("scenario_digest", "plan_digest")
    assert found.values["keys"] == ("run.seed", "server.imap.ignore_capabilities")


def test_a_repeated_run_is_refused(tmp_path: Path) -> None:
    """Given twice, copied to another place, or in both sets: refused by its name."""
    one, two, three_ = (write_run(tmp_path, name) for name in ("one", "two", "three"))
    shutil.copytree(one, tmp_path / "copy")
    assert f"found one twice in base ({one})" in refused([one, one], [two])
    assert "found one twice in new" in refused([two], [one, tmp_path / "copy"])
    assert "found two in base and in new" in refused([one, two], [three_, two / "logs"])


def test_a_stress_run_has_no_score_to_compare(tmp_path: Path) -> None:
    one, two = write_run(tmp_path, "one"), write_run(tmp_path, "two", mode="stress")
    assert "mode: expected a canonical run, found a stress run" in refused([one], [two])


def test_a_run_without_a_score_is_refused(tmp_path: Path) -> None:
    base = [write_run(tmp_path, f"b{at}", 100 + at) for at in (1, 2)]
    new = [write_run(tmp_path, f"n{at}", 100 + at, weights={"COPY": 1}) for at in (1, 2)]
    assert Code.COMPARED_INVALID in {one.code for one in against(base, new, max_regression=0.05)}


@pytest.mark.parametrize(
    ("first_hour", "header", "code", "values"),
    [
        (3, {}, None, {}),
        (13, {}, Code.NO_TURNS, {}),
        (3, {"embedded": True}, Code.EMBEDDED, {}),
        (
            3,
            {"software": "loadsim 0.2.0"},
            Code.CIRCUMSTANCES_DIFFER,
            {"what": "software", "values": ("loadsim 0.1.0", "loadsim 0.2.0")},
        ),
        (3, {"criteria": {"score_ms": {"below": 10}}}, Code.CRITERIA_DIFFER, {"own": "below 10 ms", "run": "n0"}),
    ],
)
def test_each_warning_is_shown_once(
    tmp_path: Path, first_hour: int, header: dict[str, Any], code: Code | None, values: Mapping[str, Value]
) -> None:
    """Differences that allow a comparison are stated once; without a difference there is no warning."""
    base = three(tmp_path, "base", 102)
    new = [write_run(tmp_path, f"n{at}", 101 + at, hour=first_hour + 2 * at, **header) for at in range(3)]
    comparison = compare_runs(base, new)
    assert verdict_line(comparison.figures).endswith(RESERVATION) == (code is Code.NO_TURNS)
    warnings = [one for one in comparison.figures.findings if one.severity is Severity.WARNING]
    assert codes(warnings) == ([code] if code else [])
    for warning in warnings:
        assert warning.values.items() >= values.items()
        assert to_text(describe_comparison(comparison)).count(f"\n  - {warning.text}\n") == 1


@pytest.mark.parametrize(
    ("new_ms", "limit", "verdict", "rating"),
    [
        (122.4, None, r"new is slower: 1\.19\d times as long \(95 % CI 1\.1\d+ to 1\.2\d+\)", "bad"),
        (81.6, None, r"new is faster: 0\.8\d+ times as long \(95 % CI 0\.7\d+ to 0\.8\d+\)", "good"),
        (102.0, None, r"inconclusive: new takes 0\.9\d+ to 1\.0\d+ times as long \(95 % CI\)", "doubtful"),
        (104.0, 0.05, r"undecided: new takes .* times as long \(95 % CI\); at most 1\.05 allowed", "doubtful"),
        (1020.0, None, r"new is slower: 9\.\d+ times as long \(95 % CI \d\.\d+ to \d+\.\d+\)", "bad"),
    ],
)
def test_the_verdict_in_a_sentence(
    tmp_path: Path, new_ms: float, limit: float | None, verdict: str, rating: str
) -> None:
    """By how much, within which interval, and what is allowed: ratios, as in the table."""
    found = compare_runs(three(tmp_path, "base", 102), three(tmp_path, "new", new_ms), max_regression=limit)
    assert re.fullmatch(verdict, verdict_line(found.figures)), verdict_line(found.figures)
    assert tone(found) == rating


def test_a_pass_states_the_failure_rate_that_its_runs_may_hide(tmp_path: Path) -> None:
    """Of what happens in 45 % of runs, five show nothing in 5 % of comparisons: 0.55 ** 5."""
    found = compare_runs(many(tmp_path, "base", 100, 5), many(tmp_path, "new", 100, 5), max_regression=0.1)
    assert found.figures.decision == "passed"
    assert re.search(r"\b5 runs show\b.*\b45%", verdict_line(found.figures))
    assert tone(found) == "good"


@pytest.mark.parametrize(("runs", "looks", "enough"), [(1, 1, 5), (4, 1, 5), (5, 1, None), (5, 2, 6)])
def test_too_few_runs_to_pass_state_the_number_needed(
    runs: int, looks: int, enough: int | None, tmp_path: Path
) -> None:
    """Half of the runs, in none of five: 0.5 ** 5 is 3 %."""
    base, new = (many(tmp_path, side, 100, runs) for side in ("base", "new"))
    found = compare_runs(base, new, max_regression=0.1, looks=looks).figures
    assert [one.values["enough"] for one in found.findings if one.code is Code.FEW_RUNS] == [enough] * bool(enough)
    assert (found.decision == "passed") == (enough is None)


def test_times_of_alternating_runs_decide_nothing(tmp_path: Path) -> None:
    """A warm cache makes each second run 10 % faster, and hides that new is slower by as much."""
    places = [("base", 2 * at, at) for at in range(5)], [("new", 2 * at + 1, at) for at in range(5)]
    base, new = ([write_run(tmp_path, f"{n}{at}", 100 + at / 9, hour=hour) for n, hour, at in each] for each in places)
    found = compare_runs(base, new, max_regression=0.05)
    assert {name for name, one in decided(found).items() if one == "undecided"} == {"Score", "Response score"}
    assert [one.code for one in found.figures.unequal_conditions] == [Code.RUNS_ALTERNATE]
    assert found.figures.more_repeats is None


def test_each_key_of_the_json_is_documented(tmp_path: Path, capsys: Capture) -> None:
    """Each key of `--json` stands in the reference, and every figure of the text is in it."""
    base, new = (list(map(str, three(tmp_path, side, ms))) for side, ms in (("base", 102), ("new", 122.4)))
    assert main(["compare", "--base", *base, "--new", *new, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    section = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8").partition("## `compare`")[2]
    keys = {*figures, *figures["base"][0], *figures["tasks"][0], *figures["scores"][0]}
    assert {key for key in keys if f"`{key}`" not in section} == set()
    (read,) = (one for one in figures["tasks"] if one["name"] == "READ")
    assert (read["base_ms"], read["new_ms"], read["ratio"]) == pytest.approx((102, 122.4, 1.2))


@pytest.mark.parametrize(("middle_ms", "child"), [(122.4, "failure"), (107.1, "error")])
def test_junit_agrees_with_the_exit_status(tmp_path: Path, middle_ms: float, child: str) -> None:
    """A case for each task, and one for each decision, which can fail. Of criteria, three runs decide nothing."""
    base, new = (list(map(str, three(tmp_path, side, ms))) for side, ms in (("base", 102), ("new", middle_ms)))
    file = tmp_path / "compare.xml"
    status = main(["compare", "--base", *base, "--new", *new, "--max-regression", "5%", "--junit", str(file)])
    assert list(cases_of(file).values())[:2] == [("passed", "")] * 2
    suite = ElementTree.parse(file).getroot()
    rows, others = ["READ", "SEND", "Score", "Response score"], ["failures of READ", "failures of SEND", "criteria"]
    assert [case.get("name") for case in suite] == rows + others
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (
        "7",
        str(2 * int(status == 1)),
        str(1 + 2 * int(status == 4)),
    )
    assert [[each.tag for each in case] for case in suite][:2] == [["system-out"]] * 2
    for of_score in suite[2:4]:
        assert [each.tag for each in of_score] == [child, "system-out"]


def test_junit_names_the_criteria_that_decide(tmp_path: Path) -> None:
    """A reader of the build's page need not look for them in the log."""
    criteria = {"score_ms": {"below": 1000}, "tasks.READ.p95_ms": {"max": 103.5}}
    base, new = (
        [str(write_run(tmp_path, f"{side}{at}", ms + at, hour=2 * at, criteria=criteria)) for at in (1, 2, 3)]
        for side, ms in (("b", 100), ("n", 103))
    )
    file = tmp_path / "compare.xml"
    assert main(["compare", "--base", *base, "--new", *new, "--max-regression", "10%", "--junit", str(file)]) == 1
    said = "failed: new missed criteria more often than base: tasks.READ.p95_ms"
    assert cases_of(file)["loadsim.compare/criteria"] == ("failure", said)


def test_intervals_are_corrected_for_repeated_looks(tmp_path: Path) -> None:
    base, new = many(tmp_path, "base", 100, 5), many(tmp_path, "new", 110, 5)
    once, often = compare_runs(base, new), compare_runs(base, new, looks=5)
    assert by_name(often, "READ")["p"] == pytest.approx(5 * by_name(once, "READ")["p"])
    assert by_name(often, "READ")["low"] < by_name(once, "READ")["low"]


@pytest.mark.parametrize(("degraded", "decision"), [(0, "passed"), (1, "undecided"), (5, "failed")])
def test_degraded_runs_of_new_do_not_pass(degraded: int, decision: str, tmp_path: Path) -> None:
    sides: dict[str, list[Path]] = {"base": [], "new": []}
    for at in range(5):
        for side, runs in sides.items():
            late = [skipped("READ", 50_000 + task) for task in range(3)] if side == "new" and at < degraded else []
            tasks = [*[done("READ", 100 * task, 103 + at) for task in range(200)], *late]
            runs.append(write_run(tmp_path, f"{side}{at}", tasks=tasks))
    found = compare_runs(sides["base"], sides["new"], max_regression=0.05)
    assert found.figures.decision == decision
    assert found.document["missed_more"] == (["validity"] if degraded else [])
    assert "missed criteria" not in verdict_line(found.figures)
