"""The generator as the answer judges it: figures of samples, each limit by its own case, when it was, what helps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from health_samples import CALM, sample, write_observed_machine
from named_records import TaskRecord
from timing_samples import ENDED, EPOCH_NS, HEADER, done, ms, only, write_sample

from loadsim.analysis.generator.health import EngineHealth
from loadsim.analysis.generator.limits import exceeded, lag_limit_ms, suspicious
from loadsim.analysis.summary import Summary, summarise
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.figures import MachineHealth
from loadsim.scenario.limits import GeneratorLimits
from loadsim.timinglog.writer import TimingLogWriter

READS = [done("READ", number * 1000, 100) for number in range(100)]


def run_of(place: Path, *engines: Sequence[Mapping[str, Any]], header: Mapping[str, Any] | None = None) -> Summary:
    """The answer about a run whose engines saw this of themselves; each has read 100 messages in 100 ms each."""
    paths = []
    asked = {"criteria": only({"score_ms": {"below": 1000}})}
    for number, samples in enumerate(engines):
        own = {"engine": str(number), "engine_users": 2, "users": 2 * len(engines)}
        named = HEADER | asked | own | dict(header or {})
        paths.append(place / f"{number}.tlog")
        writer = TimingLogWriter(paths[-1], named, EPOCH_NS)
        for read in READS:
            writer.task(TaskRecord(**read | {"user": 1 + 2 * number}))
        for one in samples:
            writer.health(one)
        writer.facts(ENDED)
        writer.close()
    paths.append(
        write_observed_machine(place / "observed.tlog", asked | {"users": 2 * len(engines)} | dict(header or {}))
    )
    summary = summarise(paths)
    paths[-1].unlink()
    return summary


def test_percentiles_are_those_of_all_ticks(tmp_path: Path) -> None:
    """1 to 100 ms over two seconds: ranks over all 200 ticks, not the average of two seconds' percentiles."""
    lags_us = [*range(1000, 201_000, 1000)]
    limits = {"limits": HEADER["limits"] | {"generator_lag_p99_ms": None, "generator_lag_share": None}}
    score = run_of(tmp_path, [sample(1, lags_us[::2]), sample(2, lags_us[1::2])], header=limits).score
    found = score["generator"]
    assert (found["lag_p50_ms"], found["lag_p99_ms"], found["lag_max_ms"], found["lag_limit_ms"]) == (
        100,
        198,
        200,
        None,
    )


def test_ticks_belong_to_the_window_by_their_due_time(tmp_path: Path) -> None:
    """Of a sample across the common start, only the ticks after it count; so it is at the window's end."""
    before = sample(0.5, [700_000] * 50 + [1000] * 50)
    across_end = sample(100.5, [2000] * 50 + [900_000] * 50)
    found = run_of(tmp_path, [before, across_end]).score["generator"]
    assert (found["lag_p50_ms"], found["lag_max_ms"]) == (1, 2)


def test_every_figure_is_that_of_the_worst_engine(tmp_path: Path) -> None:
    """Four engines, each the worst in one respect: nothing is averaged over engines."""
    found = run_of(
        tmp_path,
        [sample(1, [3000] * 100)],
        [sample(1, cpu_share=0.5), sample(2, cpu_share=0.3)],
        [sample(1, rss_bytes=70_000_000, clock_step_ms=5000.0)],
        [sample(1, gc_max_ms=30.0, open_files=99)],
    ).score["generator"]
    assert found == {
        "kernel_share": 0,
        "bound_share": 0,
        "loop_share": 1,
        "between_share": 0,
        "lag_p50_ms": 3,
        "lag_p99_ms": 3,
        "lag_max_ms": 3,
        "lag_limit_ms": 5,
        "lateness_limit_ms": 50,
        "cpu_share": pytest.approx(0.4),
        "rss_bytes": 70_000_000,
        "open_files": 99,
        "gc_max_ms": 30,
        "clock_steps": 1,
    }


def test_shares_of_a_core_are_weighted_by_time(tmp_path: Path) -> None:
    """One second at 10 % and, after a pause of the whole process, four at 60 %: 50 % on average."""
    samples = [sample(1, cpu_share=0.1), sample(5, cpu_share=0.6)]
    assert run_of(tmp_path, samples).score["generator"]["cpu_share"] == pytest.approx(0.5)


def blocked(lag_ms: int) -> list[int]:
    """The lags of a second in which the loop was away for so long."""
    return [*range(lag_ms * 1000, 0, -10_000), *CALM[: 100 - lag_ms // 10]]


def test_a_late_generator_only_warns_on_the_embedded_server(tmp_path: Path) -> None:
    """The machine is shared by its nature: the figure is told, the status stays 0."""
    bad = [sample(at_s, [7000] * 100, cpu_share=0.9) for at_s in range(1, 101)]
    summary = run_of(tmp_path, bad, header={"embedded": True})
    assert (summary.exit_status, summary.verdict.causes) == (0, ())
    assert [(one.code, one.where) for one in summary.verdict.warnings] == [
        (Code.EVENT_LOOP_LATE, "c1.0"),
        (Code.ENGINE_BUSY, "c1.0"),
    ]


def test_healthy_runs_are_never_called_invalid(tmp_path: Path) -> None:
    """Twenty runs with lags as on an idle machine, and slices of the scheduler's (3 ms) in up to 0.9 % of the ticks."""
    draw = np.random.default_rng(7)
    for number in range(20):
        lags_us = draw.integers(30, 400, (100, 100))
        late = draw.random((100, 100)) < 0.0002 * (number + 1)
        lags_us[late] = draw.integers(3000, 4000, int(late.sum()))
        place = tmp_path / str(number)
        place.mkdir()
        summary = run_of(place, [sample(at_s + 1, row.tolist()) for at_s, row in enumerate(lags_us)])
        assert (summary.exit_status, summary.score["verdict"]["validity"]) == (0, "valid")


@pytest.mark.parametrize(("again_s", "validity"), [(35, "valid"), (42, "degraded"), (71, "invalid")])
def test_an_engine_that_was_frozen_is_named(tmp_path: Path, again_s: int, validity: str) -> None:
    """Its ticks are fewer than 1 % of the window of hours, and its machine took all samples."""
    summary = run_of(tmp_path, [sample(at_s) for at_s in (*range(1, 31), *range(again_s, 101))])
    assert summary.verdict.validity == validity
    named = [(one.where, one.values["end_s"]) for one in summary.verdict.defects if one.code is Code.NOT_OBSERVED]
    assert named == ([] if validity == "valid" else [("c1.0", again_s)])


@pytest.mark.parametrize(
    ("criterion", "late", "lag_ms", "clock", "decided"),
    [
        ("tasks.READ.response_p99_ms", {"late_generator_s": 48}, 0, "loop", True),
        ("tasks.READ.response_p99_ms", {"late_generator_s": 48}, 0, "kernel", True),
        ("tasks.READ.response_p99_ms", {"late_busy_s": 48}, 0, "loop", False),
        ("tasks.READ.response_p99_ms", {"late_generator_s": 30, "late_busy_s": 18}, 0, "loop", False),
        ("tasks.READ.response_p95_ms", {"late_generator_s": 48}, 0, "loop", None),
        ("tasks.READ.max_ms", {}, 48_000, "loop", True),
        ("tasks.READ.max_ms", {}, 40_000, "loop", False),
        ("tasks.READ.max_ms", {}, 48_000, "kernel", False),
        ("tasks.READ.max_ms", {}, 5, "loop", False),
    ],
)
def test_the_generator_is_judged_at_the_percentile_of_a_criterion(
    tmp_path: Path, criterion: str, late: dict[str, float], lag_ms: int, clock: str, decided: bool | None
) -> None:
    """Two of 100 READs are late by 48 s, or take that long; None: the criterion is met."""
    none, late_s = {"late_busy_s": 0, "late_generator_s": 0, "clock": clock}, sum(late.values())
    slow = [done("READ", at * 1000, 100 if late_s else 48_000, 1000 * late_s, user=2, **none | late) for at in range(2)]
    reads = [*slow, *(done("READ", at * 1000, 100, clock=clock) for at in range(98))]
    lags_us = [lag_ms * 1000, *CALM[1:]]
    samples = [sample(at_s, lags_us if at_s == 9 else CALM) for at_s in range(1, 101)]
    header = {"criteria": {criterion: {"below": 5000}}, "limits": {"hits": 1}}
    log = write_sample(tmp_path / "a.tlog", reads, header=header, health=samples)
    summary = summarise([log, write_observed_machine(tmp_path / "observed.tlog", header)])
    found = [one for one in summary.verdict.findings if one.code is Code.MISSED_BY_GENERATOR]
    assert found == ([finding(Code.MISSED_BY_GENERATOR, criteria=(criterion,))] if decided else [])
    assert summary.exit_status == (0 if decided is None else 3 if decided else 1)


@pytest.mark.parametrize(
    ("limits", "fastest_p95_ms", "expected"),
    [
        ({}, None, 5),
        ({}, 500, 5),
        ({}, 50, 5),
        ({}, 30, 3),
        ({}, 20, 2),
        ({}, 3, 2),  # a tenth would be 0.3 ms
        ({"lag_p99_ms": 1}, 3, 1),
        ({"lag_p99_ms": None}, 3, 2),
        ({"lag_p99_ms": None}, 500, 50),
        ({"lag_share": None}, 3, 5),
        ({"lag_share": None, "lag_p99_ms": None}, 3, None),
        ({"lag_p99_ms": None}, None, None),
    ],
)
def test_the_lag_limit_follows_the_fastest_task(
    limits: dict[str, Any], fastest_p95_ms: float | None, expected: float | None
) -> None:
    """5 ms, a tenth of the fastest scored task's 95th percentile, and never less than 2 ms unless it is asked for."""
    assert lag_limit_ms(replace(GeneratorLimits(), **limits), fastest_p95_ms) == expected


@pytest.mark.parametrize(
    ("limits", "loop_share", "expected"),
    [
        ({}, None, 3),
        ({}, 1.0, 3),
        ({}, 0.0101, 3),
        ({}, 0.01, 50),
        ({}, 0.0, 50),
        ({"lag_p99_ms": 1, "lateness_p95_ms": 20}, 0.0, 20),
        ({"lag_p99_ms": None, "lag_share": None}, 0.0, 50),
        ({"lateness_p95_ms": None}, 0.0, None),
    ],
)
def test_the_lag_is_limited_as_lateness_if_the_kernel_timed_the_tasks(
    limits: dict[str, Any], loop_share: float | None, expected: float | None
) -> None:
    """Up to one hit in a hundred may be timed by the loop; else a tenth of 30 ms is allowed."""
    assert lag_limit_ms(replace(GeneratorLimits(), **limits), 30, loop_share) == expected


@pytest.mark.parametrize(
    ("clocks", "shares", "limit_ms", "validity"),
    [
        ({"loop": 100}, (0, 0, 1), 5, "invalid"),
        ({"loop": 2, "kernel": 98}, (0.98, 0, 0.02), 5, "invalid"),
        ({"loop": 1, "kernel": 97, "bound": 2}, (0.97, 0.02, 0), 50, "valid"),
        ({"loop": 1, "kernel": 19}, (0.95, 0, 0), 50, "valid"),
        ({"loop": 1, "kernel": 18}, (18 / 19, 0, 1 / 19), 5, "invalid"),  # it may be the 95th percentile
        ({"kernel": 97, "bound": 3}, (0.97, 0.03, 0), 50, "degraded"),
    ],
)
def test_clocks_of_hits_decide_the_lag_limit(
    tmp_path: Path, clocks: dict[str, int], shares: tuple[float, float, float], limit_ms: float, validity: str
) -> None:
    """Of 100 planned hits; unplanned, failed, unfinished and later tasks do not count. The loop is 7 ms late."""
    ends = [clock for clock, times in clocks.items() for _ in range(times)]
    tasks = [done("READ", at * 900, 100, clock=clock) for at, clock in enumerate(ends)]
    tasks += [
        *(done(name, 95_000, 100) for name in ("SYNC", "LOGON", "PROCESS INBOX")),
        done("READ", 96_000, 100, outcome="refused", error="NO"),
        done("READ", 97_000, 0, outcome="unfinished", ended_ns=None, clock=""),
        done("READ", 100_001, 100),
    ]
    header = {"criteria": {"score_ms": {"below": 1000}}}
    health = [sample(at_s, [7000] * 100) for at_s in range(1, 101)]
    log = write_sample(tmp_path / "a.tlog", tasks, header=header, health=health)
    summary = summarise([log, write_observed_machine(tmp_path / "observed.tlog", header)])
    found = summary.score["generator"]
    assert (found["kernel_share"], found["bound_share"], found["loop_share"]) == shares
    assert found["lag_limit_ms"] == limit_ms
    defects = [finding(Code.BOUNDS, bound_share=0.03, limit_share=0.02)] if validity == "degraded" else []
    late = [finding(Code.EVENT_LOOP_LATE, "c1.0", lag_p99_ms=7.0, limit_ms=5)] if validity == "invalid" else []
    assert summary.verdict.validity == validity
    assert list(summary.verdict.defects) == late + defects


def test_the_time_between_commands_is_a_share_of_the_time_from_first_to_last_byte(tmp_path: Path) -> None:
    """100 ms and 50 ms of service, with 20 and 30 ms between commands: 50 of 200 ms. Failures do not count."""
    tasks = [
        done("READ", 1000, 100, late_between_s=0.02),
        done("MOVE", 2000, 50, late_between_s=0.03),
        done("READ", 3000, 100, late_between_s=9.0, outcome="refused", error="NO"),
        done("SYNC", 4000, 100, late_between_s=9.0),
    ]
    score = summarise([write_sample(tmp_path / "a.tlog", tasks)]).score
    assert score["generator"]["between_share"] == pytest.approx(0.25)


ENGINE = EngineHealth("c1.1", 0.1, 1.0, 20.0, cpu_share=0.3)


@pytest.mark.parametrize(
    ("late_p95_ms", "engines", "limits", "expected"),
    [
        (5.0, (ENGINE,), {}, []),
        (50.0, (replace(ENGINE, lag_p99_ms=5.0, cpu_share=0.9),), {}, []),
        (None, (replace(ENGINE, began_late_ms=50.0),), {}, []),
        (
            None,
            (ENGINE, replace(ENGINE, name="c2.1", began_late_ms=4331.46)),
            {},
            [finding(Code.ENGINE_BEGAN_LATE, "c2.1", late_ms=4331.46, limit_ms=50)],
        ),
        (None, (replace(ENGINE, began_late_ms=4331.46),), {"lateness_p95_ms": None}, []),
        (
            None,
            (replace(ENGINE, lag_p99_ms=5.1),),
            {},
            [finding(Code.EVENT_LOOP_LATE, "c1.1", lag_p99_ms=5.1, limit_ms=5)],
        ),
        (
            None,
            (replace(ENGINE, cpu_share=0.91), replace(ENGINE, name="c1.2")),
            {},
            [finding(Code.ENGINE_BUSY, "c1.1", cpu_share=0.91, limit_share=0.9)],
        ),
        (
            900.0,
            (replace(ENGINE, lag_p99_ms=99.0, cpu_share=1.0),),
            dict.fromkeys(("lag_p99_ms", "lag_share", "cpu", "lateness_p95_ms")),
            [],
        ),
    ],
)
def test_each_exceeded_limit_has_its_finding(
    late_p95_ms: float | None, engines: tuple[EngineHealth, ...], limits: dict[str, Any], expected: list[Finding]
) -> None:
    """Just within, just beyond, and switched off."""
    stated = replace(GeneratorLimits(), **limits)
    assert exceeded(late_p95_ms, engines, stated, lag_limit_ms(stated, 500.0)) == expected


SHARED = MachineHealth(
    "c1", cores=2, cpu_share=0.5, stolen_share=0.0, server_here=True, shares_cpus=True, generator_cores=2
)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (SHARED, finding(Code.CORES_SHARED, "c1")),
        (replace(SHARED, cores=1), finding(Code.CORES_SHARED, "c1")),
        (replace(SHARED, shares_cpus=False, pinned=True), None),
        (replace(SHARED, shares_cpus=None), None),
        (MachineHealth("c1", 8, 0.91, 0.0), finding(Code.CORES_BUSY, "c1", busy_share=0.91, engines_share=None)),
        (
            MachineHealth("c1", 8, 0.91, 0.0, 0.12),
            finding(Code.CORES_BUSY_BY_OTHERS, "c1", busy_share=0.91, engines_share=0.12),
        ),
        (MachineHealth("c1", 8, 0.9, 0.05, segments_sent=100, segments_sent_again=1), None),
        (MachineHealth("c1", 8, 0.5, 0.06), finding(Code.CPU_STOLEN, "c1", stolen_share=0.06)),
        (
            MachineHealth("c1", 8, 0.5, 0.0, segments_sent=1000, segments_sent_again=11),
            finding(Code.SEGMENTS_LOST, "c1", again=11, sent=1000),
        ),
        (MachineHealth("c1"), None),
    ],
)
def test_each_suspicious_machine_figure_has_its_warning(machine: MachineHealth, expected: Finding | None) -> None:
    """Each warning by its own case; none of them changes a verdict."""
    assert suspicious((machine,), (), embedded=False) == ([expected] if expected else [])


def write_machine(place: Path, cpu_share: float = 0.1) -> None:
    """The log of a machine with two cores over ten seconds."""
    header = {
        **HEADER,
        "engine": "machine",
        "engine_users": 0,
        "users": 2,
        "criteria": only({"score_ms": {"below": 1000}}),
    }
    machine = TimingLogWriter(place / "machine.tlog", header, EPOCH_NS)
    machine.facts(ENDED)
    for at_s in range(1, 11):
        machine.health(
            {
                "at_ns": ms(at_s * 1000 + 400),
                "core_shares": [cpu_share] * 2,
                "cpu_share": cpu_share,
                "stolen_share": 0.0,
                "memory_available_bytes": 10**9,
                "segments_sent": 100,
                "segments_sent_again": 0,
            }
        )
    machine.close()


def test_a_busy_machine_states_loadsims_share(tmp_path: Path) -> None:
    """Two engines with 0.2 and 0.4 of a core took 30% of two cores; of an engine without samples, nothing is said."""
    for engines, code, share in (([0.2, 0.4], Code.CORES_BUSY_BY_OTHERS, 0.3), ([0.2, None], Code.CORES_BUSY, None)):
        samples = [[] if one is None else [sample(at_s, cpu_share=one) for at_s in (1, 2)] for one in engines]
        place = tmp_path / f"{engines}"
        place.mkdir()
        write_machine(place, 0.93)
        run_of(place, *samples)
        (busy,) = (one for one in summarise([place]).verdict.warnings if one.code is code)
        assert busy.values == {"busy_share": pytest.approx(0.93), "engines_share": share and pytest.approx(share)}


def test_a_clock_step_is_reported_once_per_machine() -> None:
    """By how much, and when; all engines of a machine see the same clock."""
    engine = replace(ENGINE, clock_steps=((33.2, -5000.0),))
    engines = (engine, replace(engine, name="c1.2"), replace(ENGINE, name="c2.1"))
    assert suspicious((), engines, embedded=False) == [finding(Code.CLOCK_SET, "c1", step_ms=-5000, at_s=33)]


def test_a_loop_that_blocks_now_and_then_invalidates_the_run(tmp_path: Path) -> None:
    """0.2 s in each of 30 seconds out of 100 are 6 % of the ticks."""
    samples = [sample(at_s, blocked(200) if 40 < at_s <= 70 else CALM) for at_s in range(1, 101)]
    summary = run_of(tmp_path, samples)
    assert summary.exit_status == 3
    (late,) = summary.verdict.defects
    assert (late.code, late.where) == (Code.EVENT_LOOP_LATE, "c1.0")
    assert late.values == {"lag_p99_ms": pytest.approx(170), "limit_ms": 5}
