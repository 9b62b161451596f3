"""The decisions of a comparison: every figure that decides a run has one, and few of them are wrong."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from compared_runs import HEADER, decided, write_run
from timing_samples import ENDED, LOGGED_ON, done, event, ms

from loadsim.comparison.compared_run import DELIVERY, LEAST_DELIVERY_MS, RESPONSE_SCORE, SCORE, kind_of
from loadsim.comparison.comparison import Comparison, compare_runs
from loadsim.comparison.decision import ONE_SIDED, Terms, by_criteria, by_shares, by_times, decide
from loadsim.comparison.document import describe_comparison, tone
from loadsim.comparison.failure_rates import Counts, FailureRates
from loadsim.comparison.run_order import alternate, stretch, stretched
from loadsim.findings.catalogue import Code
from loadsim.findings.formats import Value
from loadsim.scenario.criteria import DEFAULT, documents, figures
from loadsim.scenario.criteria import SCORED as EACH
from loadsim.statistics.comparison import Sampled, larger_share_p

TERMS = Terms(max_regression=0.05, looks=1, stretch=1.0)


def side(place: Path, name: str, delivery_ms: Sequence[float], **header: Any) -> list[Path]:
    """Runs that take turns with those of the other side, each with messages that take so long to arrive."""
    return [
        write_run(
            place,
            f"{name}-{at}",
            tasks=[LOGGED_ON, *header.get("tasks", ()), *(done(task, 1000, 100) for task in ("READ", "SEND"))],
            mails=[event("accepted", "n1.0", 2, 100), event("seen", "n1.0", 2, 100 + took_ms)],
            hour=2 * at + (at + name.startswith("new")) % 2,
            **{"criteria": documents(DEFAULT)} | {key: value for key, value in header.items() if key != "tasks"},
        )
        for at, took_ms in enumerate(delivery_ms)
    ]


ROWS = {"score_ms": SCORE, "response_score_ms": RESPONSE_SCORE, "delivery.p95_ms": DELIVERY}
"""The rows of the table that decide on a criterion."""


def test_every_criterion_of_a_run_is_decided(tmp_path: Path) -> None:
    """By the decision of its own name; a new default criterion has one, too."""
    found = compare_runs(side(tmp_path, "base", [20] * 5), side(tmp_path, "new", [20] * 5), max_regression=0.05)
    own = {ROWS.get(name, name) for name in DEFAULT if not name.startswith(EACH)}
    assert set(decided(found)) == {*own, "failures of READ", "failures of SEND", "criteria"}
    assert (found.figures.decision, found.exit_status) == ("passed", 0)
    assert [one["name"] for one in found.document["further"]] == [DELIVERY]


def names(tree: Mapping[str, Any], above: str = "") -> list[str]:
    return [
        name
        for key, below in tree.items()
        for name in (names(below, f"{above}{key}.") if isinstance(below, Mapping) else [f"{above}{key}"])
    ]


def test_only_figures_of_machines_and_of_the_load_decide_by_misses_alone() -> None:
    by_misses = {name for name in names(figures({"imap": ["READ"]}, stress=False)) if kind_of(name) == "missed"}
    of_load = {name for name in by_misses if name.endswith("_per_s")}
    assert {name.partition(".")[0] for name in by_misses - of_load} == {"generator", "lateness_p95_ms", "delivery"}
    assert kind_of("probes.host.cpu_share.max") == "missed"
    assert kind_of("tasks.READ.p99_ms") == "time"
    assert {kind_of(name) for name in ("down_share", "sessions_lost", "delivery.duplicates")} == {"share"}


def test_later_mail_fails_within_the_criterion(tmp_path: Path) -> None:
    """Within the criterion of 60 s on both sides."""
    base, new = side(tmp_path, "base", [0, 0, 0]), side(tmp_path, "new", [54_000, 55_000, 56_000])
    found = compare_runs(base, new, max_regression=0.05)
    assert (found.figures.decision, found.exit_status) == ("failed", 1)
    assert {name for name, decision in decided(found).items() if decision == "failed"} == {DELIVERY}
    (row,) = found.figures.further
    assert (row.change, row.difference.base_ms) == ("slower", LEAST_DELIVERY_MS)
    assert row.difference.low and row.difference.low > 500
    assert (tone(found), describe_comparison(found).tone) == ("bad", "bad")


def test_delivery_times_below_the_least_are_equal(tmp_path: Path) -> None:
    base, new = side(tmp_path, "base", [20, 21, 22]), side(tmp_path, "new", [LEAST_DELIVERY_MS - at for at in range(3)])
    found = compare_runs(base, new, max_regression=0.05)
    (row,) = found.figures.further
    assert (decided(found)[DELIVERY], row.difference.ratio, row.change) == ("passed", 1, None)


def test_a_time_missing_in_some_run_does_not_pass(tmp_path: Path) -> None:
    base, new = side(tmp_path, "base", [20] * 3), side(tmp_path, "new", [20] * 2)
    new.append(write_run(tmp_path, "new-2", tasks=[done(task, 1000, 100) for task in ("READ", "SEND")], hour=5))
    assert decided(compare_runs(base, new, max_regression=0.05))[DELIVERY] == "undecided"


@pytest.mark.parametrize("measured", [(), ("base",), ("new",), ("base", "new")])
def test_an_unmeasured_figure_is_neither_missed_nor_passed(tmp_path: Path, measured: Sequence[str]) -> None:
    """On one side or on both; the figure has no other decision than that of the runs that miss it."""
    name = "probes.postfix.active_messages.p95"

    def runs(of: str) -> list[Path]:
        found = [{"at_ns": ms(1000 * at), "probe": "postfix", "figures": {"active_messages": 5.0}} for at in range(101)]
        health = found if of in measured else []
        turns = ((0, 3, 4, 7, 8), (1, 2, 5, 6, 9))[of == "new"]
        return [
            write_run(tmp_path, f"{of}-{at}", hour=at, health=health, criteria={name: {"max": 100}}) for at in turns
        ]

    found = compare_runs(runs("base"), runs("new"), max_regression=0.05)
    decisions = {name: "undecided"} if len(measured) < 2 else {}
    assert {each: decision for each, decision in decided(found).items() if decision != "passed"} == decisions
    assert found.document["missed_more"] == []


def test_a_count_with_a_lower_limit_is_decided_by_misses(tmp_path: Path) -> None:
    """It has no number of failures: messages to lists may be more than the tasks."""
    name, turns = "delivery.accepted", ((0, 3, 4, 7, 8), (1, 2, 5, 6, 9))
    sides = [
        [write_run(tmp_path, f"run-{at}", hour=at, criteria={name: {"min": 1}}) for at in of_side] for of_side in turns
    ]
    assert name not in decided(compare_runs(*sides, max_regression=0.05))


@pytest.mark.parametrize(
    ("base", "new", "across", "expected"),
    [(40, 0, False, 4), (0, 40, False, 4), (40, 0, True, 0), (40, 1, False, 0), (0, 0, False, 0)],
)
def test_state_checks_of_one_side_do_not_pass(tmp_path: Path, base: int, new: int, across: bool, expected: int) -> None:
    """Unless they are not of the same driver: only `imap` has them."""

    def runs(users: int, turns: Sequence[int]) -> list[Path]:
        facts = {**ENDED, "state_checks": {"users": users, "violations": []}}
        return [write_run(tmp_path, f"run-{at}", hour=at, facts=facts) for at in turns]

    sides = runs(base, (0, 3, 4, 7, 8)), runs(new, (1, 2, 5, 6, 9))
    found = compare_runs(*sides, max_regression=0.05, across_drivers=across)
    assert found.exit_status == expected
    assert decided(found).get("state checks") == ("undecided" if expected else None)


@pytest.mark.parametrize(
    ("criterion", "bad"),
    [
        ({"tasks.READ.p50_ms": {"below": 10_000}}, [done("READ", 2000, 9000)] * 3),
        ({"failed_share": {"max": 0.9}}, [done("MOVE", 9 * at, 5, outcome="refused") for at in range(50)]),
        ({"tasks.MOVE.lost": {"max": 90}}, [done("MOVE", 9 * at, 5, outcome="lost") for at in range(50)]),
    ],
)
def test_a_users_own_criterion_is_decided_within_its_limits(
    tmp_path: Path, criterion: dict[str, Any], bad: list[dict[str, Any]]
) -> None:
    """A time by its ratio, a share and a count by their difference."""
    own = {"criteria": criterion, "weights": {"READ": 10, "SEND": 1}}
    base = side(tmp_path, "base", [20] * 3, **own, tasks=[done("MOVE", 9 * at, 5) for at in range(50)])
    new = side(tmp_path, "new", [20] * 3, **own, tasks=bad)
    (name,) = criterion
    assert decided(compare_runs(base, new, max_regression=0.05))[name] == "failed"


@pytest.mark.parametrize(
    ("low", "high", "corrected", "expected"),
    [
        (0.98, 1.04, 0.97, "passed"),
        (0.5, 1.05, 0.4, "undecided"),
        (1.01, 1.06, 1.0, "undecided"),
        (1.06, 1.2, 1.05, "undecided"),
        (1.06, 1.2, 1.051, "failed"),
    ],
)
def test_the_interval_and_its_correction_decide(low: float, high: float, corrected: float, expected: str) -> None:
    assert decide(low, high, corrected, 1.05) == expected


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ((0.97, 1.0, 1.03), "undecided"),
        ((1.08, 1.12, 1.16), "undecided"),
        ((1.5, 1.52, 1.54), "failed"),
        ((0.8, 0.81, 0.82), "passed"),
    ],
)
@pytest.mark.parametrize("name", [SCORE, RESPONSE_SCORE, DELIVERY])
def test_all_times_are_decided_by_one_rule(name: str, factors: Sequence[float], expected: str) -> None:
    """A response score that is slower by 12 %, most likely between 4 and 20 %, is undecided: 5 % are allowed."""
    sample = Sampled(name, [485, 500, 515], [500 * factor for factor in factors])
    (found,) = by_times([sample], {}, TERMS)
    assert found.decision == expected


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        ([math.inf] * 3, [math.inf] * 3, "passed"),
        ([math.inf, 100, 101], [math.inf, 9000, 9090], "failed"),
        ([math.inf, 100, 101], [9000, 9050, 9090], "failed"),
        ([100, 101, 102], [math.inf, 50, 51], "passed"),
        ([100, 101, 102], [math.inf] * 3, "undecided"),
    ],
)
def test_runs_with_infinite_times_do_not_hide_the_others(
    base: Sequence[float], new: Sequence[float], expected: str
) -> None:
    assert by_times([Sampled(RESPONSE_SCORE, base, new)], {}, TERMS)[0].decision == expected


def test_failure_shares_are_corrected_for_their_number() -> None:
    """0.04 more, with a standard error of 0.00816: one share fails, one of nine does not."""
    alike = FailureRates([Counts(1000, some) for some in (10, 20, 30)], [Counts(1000, some) for some in (10, 20, 30)])
    worse = FailureRates([Counts(1000, some) for some in (10, 20, 30)], [Counts(1000, some) for some in (50, 60, 70)])
    assert [one.decision for one in by_shares({"READ": worse}, TERMS)] == ["failed"]
    nine = by_shares({"READ": worse} | {str(at): alike for at in range(8)}, TERMS)
    assert nine[0].decision == "undecided"


def of_criteria(base: Sequence[Sequence[str]], new: Sequence[Sequence[str]]) -> str:
    return by_criteria({"base": base, "new": new}, TERMS).decision


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        ([[]] * 3, [["a"]] * 3, "failed"),
        ([[]] * 3, [["a"], ["b"], ["a"]], "failed"),
        ([["x"]] * 3, [["x", "a"]] * 3, "failed"),
        ([[]] * 2, [["a"]] * 2, "undecided"),
        ([[]], [["a"]], "undecided"),
        ([[]] * 3, [[], [], ["a"]], "undecided"),
        ([[], [], ["a"]], [["a"], [], ["b"]], "undecided"),
        ([[], [], ["a"]], [["a"], [], []], "undecided"),
        ([["a"]] * 5, [[]] * 5, "passed"),
        ([[]] * 4, [[]] * 4, "undecided"),
        ([[]] * 5, [[]] * 5, "passed"),
        ([["a"], ["a"], [], [], []], [["a"], ["a"], [], [], []], "undecided"),
    ],
)
def test_missed_criteria_are_compared_by_side(
    base: Sequence[Sequence[str]], new: Sequence[Sequence[str]], expected: str
) -> None:
    """All runs of three fail, a single one is no proof and no pass; what base always misses tells nothing."""
    assert of_criteria(base, new) == expected


@pytest.mark.parametrize("runs", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("share", [1 / 40, 0.1, 0.5, 0.9])
def test_equal_servers_fail_by_misses_as_rarely_as_stated(runs: int, share: float) -> None:
    """Not more often with more runs: all counts of runs that miss, each with its probability."""
    likely = [math.comb(runs, count) * share**count * (1 - share) ** (runs - count) for count in range(runs + 1)]
    fails = [
        likely[base] * likely[new]
        for base in range(runs + 1)
        for new in range(runs + 1)
        if larger_share_p((base, new), (runs, runs)) <= ONE_SIDED
    ]
    assert sum(fails) <= ONE_SIDED
    assert bool(fails) == (runs >= 3)


@pytest.mark.parametrize("runs", [3, 4, 5, 8])
@pytest.mark.parametrize(("base", "new"), [(0.0, 0.5), (0.1, 0.6), (0.25, 0.75), (0.4, 0.9), (0.1, 1.0)])
def test_a_server_that_misses_in_half_more_of_its_runs_hardly_passes(runs: int, base: float, new: float) -> None:
    """All numbers of runs that miss, each with its probability."""

    def likely(share: float, count: int) -> float:
        return math.comb(runs, count) * share**count * (1 - share) ** (runs - count)

    def missed(count: int) -> list[list[str]]:
        return [["lost"]] * count + [[]] * (runs - count)

    passes = [
        likely(base, b) * likely(new, n)
        for b in range(runs + 1)
        for n in range(runs + 1)
        if of_criteria(missed(b), missed(n)) == "passed"
    ]
    assert sum(passes) <= 0.05
    assert bool(passes) == (runs >= 5)


def differing(found: Comparison) -> list[tuple[Value, ...]]:
    """The criteria of runs that do not judge: the name, the criterion, the run, and the one that judges."""
    return [
        (one.where, *(one.values[name] for name in ("own", "run", "common")))
        for one in found.figures.findings
        if one.code is Code.CRITERIA_DIFFER
    ]


def test_both_sides_are_judged_by_the_criteria_of_base(tmp_path: Path) -> None:
    """New switches off what its outage misses, and its response score hides it; the difference is named."""
    on = {"tasks.READ.response_max_ms": {"below": 200}}
    reads = [done("READ", 900 * at, 100) for at in range(40)]

    def runs(name: str, late_ms: float, criteria: dict[str, Any]) -> list[Path]:
        tasks = [*reads, done("READ", 50_000, 100, late_ms)]
        return [
            write_run(
                tmp_path,
                f"{name}-{at}",
                tasks=tasks,
                hour=2 * at + (at + name.startswith("new")) % 2,
                criteria=criteria,
            )
            for at in range(3)
        ]

    base, hidden = runs("base", 0, on), runs("new", 9000, {"tasks.READ.response_max_ms": None})
    found = compare_runs(base, hidden, max_regression=0.05)
    assert (found.figures.decision, found.document["missed_more"]) == ("failed", list(on))
    assert [run.passed for run in found.figures.new] == [False] * 3
    assert differing(found) == [(*on, "off (null)", "new-0", "below 200 ms")]
    stricter = compare_runs(hidden, base, max_regression=0.05)
    assert [run.passed for run in stricter.figures.new] == [True] * 3
    assert stricter.document["missed_more"] == []
    silent = compare_runs(
        runs("silent", 0, {"failed_share": None}), runs("new-of-silent", 9000, on), max_regression=0.05
    )
    assert (silent.figures.decision, silent.document["missed_more"]) == ("failed", list(on))
    assert (*on, "not stated", "silent-0", "below 200 ms") in differing(silent)


def test_base_is_not_judged_by_a_criterion_of_new_without_its_figure(tmp_path: Path) -> None:
    """Of a task that base does not have: new misses it, and base does not."""
    tasks = [done("READ", 900, 100), done("SEND", 900, 50)]
    evicted = [*tasks, *(done("EVICT", 9 * at, 5, outcome="refused") for at in range(50))]
    own = {"tasks.EVICT.refused": {"max": 0}}
    base = [write_run(tmp_path, f"base-{at}", tasks=tasks, hour=2 * at) for at in range(3)]
    new = [write_run(tmp_path, f"new-{at}", tasks=evicted, hour=2 * at + 1, criteria=own) for at in range(3)]
    found = compare_runs(base, new, max_regression=0.05)
    assert ([run.passed for run in found.figures.base], found.document["missed_more"]) == ([True] * 3, list(own))
    assert decided(found)["criteria"] == "failed"
    assert (*own, "not stated", "base-0", "nothing, as the figure is unknown") in differing(found)


def test_criteria_of_any_run_of_base_count(tmp_path: Path) -> None:
    off = write_run(tmp_path, "base-0", criteria={"score_ms": None})
    on = write_run(tmp_path, "base-1", hour=10, criteria={"score_ms": {"below": 90}})
    new = [write_run(tmp_path, f"new-{at}", hour=9 + 2 * at, criteria=HEADER["criteria"]) for at in range(2)]
    assert [run.passed for run in compare_runs([off, on], new).figures.base] == [False, False]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("bnbnbn", 1),
        ("bnnbbn", 1),
        ("nbbn", 1),
        ("bn", 1),
        ("bbbnnn", 2.032),  # by hand, for a correlation of 0.9: the root of 0.3578 / 0.0867
        ("bbbbbbbbbbnnnnnnnnnn", 3.38),
    ],
)
def test_errors_are_larger_for_runs_that_do_not_take_turns(order: str, expected: float) -> None:
    began = [[f"2026-01-05T{at:02d}" for at, one in enumerate(order) if one == each] for each in "bn"]
    assert stretch(began) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("order", "expected"), [("bnbnbn", True), ("nbnb", True), ("bnnb", False), ("bnbnnb", False), ("bn", False)]
)
def test_runs_that_alternate_are_found(order: str, expected: bool) -> None:
    assert alternate([[f"{at}" for at, one in enumerate(order) if one == each] for each in "bn"]) == expected
    assert not alternate([["1", "2"], ["1", "2"]])


def test_runs_that_begin_together_take_turns_and_unknown_times_do_not() -> None:
    assert stretch([[None] * 3, [None] * 3]) == stretch([["1", None, "3"], ["1", "2", "3"]]) > 2
    assert stretch([["1"] * 3, ["1"] * 3]) == 1


def test_a_stretched_p_is_that_of_a_smaller_deviate() -> None:
    """1.96 is 2 times 0.98."""
    assert stretched(0.025, 2) == pytest.approx(0.1635, rel=1e-3)
    assert (stretched(0.0, 2), stretched(0.7, 2)) == (0, 0.7)


def test_runs_that_do_not_take_turns_decide_less(tmp_path: Path) -> None:
    terms, back_to_back = TERMS, Terms(0.05, 1, 2.032)
    slower = [Sampled(SCORE, [98, 100, 102], [113, 115, 117])]
    missed: Mapping[str, Sequence[Sequence[str]]] = {"base": [[]] * 3, "new": [["a"]] * 3}
    for each, expected in ((terms, "failed"), (back_to_back, "undecided")):
        assert by_times(slower, {}, each)[0].decision == expected
        assert by_criteria(missed, each).decision == expected
