"""Probes: sampled during a run, shown in its report, and without any effect on its score."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from example_plugins import SOURCE, package_of
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S
from timing_samples import ENDED, HEADER, done, sample_log
from virtual_runs import NOWHERE, quiet, scenario_of

from loadsim.analysis.generator.health import generator_health
from loadsim.analysis.probes.statistics import probe_facts, probe_statistics
from loadsim.analysis.summary import summarise
from loadsim.engine.clock import MonotonicClock
from loadsim.errors import ConfigError
from loadsim.model.figures import ProbeStatistics
from loadsim.model.terms import Window
from loadsim.monitor.cpu_affinity import REAL_TIME_PRIORITY
from loadsim.monitor.probes import MOST_FIGURES, OpenedProbe, check_probes, checked, open_probes, sampled
from loadsim.plugins import plugins
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.timinglog.facts import ProbeCounts
from loadsim.timinglog.reader import TimingLog, read_log
from loadsim.timinglog.writer import TimingLogWriter

PROBE = """
def open_probe(services, start=0):
    taken = []
    def sample():
        taken.append(1)
        return {"taken_count": start + len(taken)}
    return sample
"""
"""A probe that counts its samples."""

NOBODY = 65_534

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    def installed(code: str) -> None:
        place = package_of(tmp_path / "package", code, probes="count = other:open_probe")
        monkeypatch.delitem(sys.modules, "other", raising=False)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.setattr(sys, "path", [str(place), *sys.path])

    return installed


def counting(place: Path) -> Scenario:
    return scenario_of(place, (quiet(), 2), probes={"count": {"start": 5}})


def check_of(scenario: Scenario) -> None:
    check_probes(scenario.name, scenario.probes)


def opened(scenario: Scenario, **options: Any) -> tuple[OpenedProbe, ...]:
    check_of(scenario)
    return asyncio.run(open_probes(scenario.name, scenario.probes, NOWHERE, **options))


class Enough:
    """Set by a probe's thread, and in the loop behind the samples that the thread has passed on before."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    def set(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.event.set)


def recorded(tmp_path: Path, probes: tuple[OpenedProbe, ...], enough: Enough, **options: Any) -> TimingLog:
    """A log of samples that were taken, as fast as they can be, until there are enough."""
    clock = MonotonicClock()
    log = TimingLogWriter(tmp_path / "machine.tlog", HEADER | {"engine_users": 0}, clock.now_ns())
    log.facts({"start_ns": clock.now_ns()})

    async def run() -> None:
        enough.loop = asyncio.get_running_loop()
        with sampled(probes, log, clock, each_s=0.001, **options):
            await asyncio.wait_for(enough.event.wait(), PATIENCE_S)

    asyncio.run(run())
    log.close()
    return read_log(tmp_path / "machine.tlog")


def test_the_figures_of_the_first_samples_are_announced_once(tmp_path: Path) -> None:
    """With rates, which the first sample does not have, and without failed samples."""
    told: list[tuple[str, set[str]]] = []
    enough, numbers = Enough(), iter(range(1, 1000))

    def sample() -> Mapping[str, float]:
        number = next(numbers)
        if number == 2:
            raise OSError("busy")
        if number > 20:
            enough.set()
        return {"a_count": 1} | ({"a_per_s": 1} if number > 2 else {}) | ({"late_count": 1} if number > 4 else {})

    probe = OpenedProbe("count", "other 1", sample)
    recorded(tmp_path, (probe,), enough, on_figures=lambda probe, figures: told.append((probe, set(figures))))
    assert told == [("count", {"a_count", "a_per_s"})]


def test_a_probe_has_no_real_time_priority(tmp_path: Path) -> None:
    """`--pin` gives one to the engines. A probe with the same would keep their core for as long as it samples."""
    policies: list[tuple[int, int]] = []
    enough = Enough()

    def sample() -> Mapping[str, float]:
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"], capture_output=True, check=True
        )
        policies.append((os.sched_getscheduler(0), int(child.stdout)))
        enough.set()
        return {"a_count": 1}

    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        with suppress(PermissionError):  # only root may
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REAL_TIME_PRIORITY))
        own = os.sched_getscheduler(0)
        recorded(tmp_path, (OpenedProbe("count", "other 1", sample),), enough)
        assert os.sched_getscheduler(0) == own
    finally:
        os.sched_setscheduler(0, *before)
    assert policies[0] == (os.SCHED_OTHER, os.SCHED_OTHER)


def test_figures_are_recorded_with_their_instants(install: Install, tmp_path: Path) -> None:
    """Each sample is in the machine's log, in order; the probe got its settings and the server's addresses."""
    install(PROBE)
    probes = opened(counting(tmp_path / "scenario"))
    taken: list[float] = []
    enough = Enough()

    def sample() -> Mapping[str, float]:
        taken.append(probes[0].sample()["taken_count"])
        if len(taken) > 20:
            enough.set()
        return {"taken_count": taken[-1]}

    log = recorded(tmp_path, (OpenedProbe("count", "other 1", sample),), enough)
    samples = [each for each in log.health if "probe" in each]
    assert [each["figures"]["taken_count"] for each in samples] == taken[: len(samples)]
    assert taken[0] == 6
    assert len(samples) >= 20
    instants = [each["at_s"] for each in samples]
    assert instants == sorted(instants)
    assert all(0 <= at_s <= PATIENCE_S for at_s in instants)
    assert probe_facts(log) == {"count": ProbeCounts("other 1", len(samples), 0, None)}
    assert probe_statistics(log, Window(1e6, 2e6)) is None


def test_a_failing_or_hanging_probe_loses_only_its_own_samples(tmp_path: Path) -> None:
    """Another probe is sampled meanwhile, failures are counted with the last reason, and the block ends at once."""
    release, enough, taken, failed = threading.Event(), Enough(), [], []

    def hangs() -> Mapping[str, float]:
        release.wait(PATIENCE_S)
        return {"late_count": 1}

    def fails() -> Mapping[str, float]:
        failed.append(1)
        if len(failed) == 1:
            raise SystemExit(3)
        raise OSError("no such\x1b queue\nand more")

    def counts() -> Mapping[str, float]:
        taken.append(1)
        if len(taken) > 5 and len(failed) > 5:
            enough.set()
        return {"taken_count": len(taken)}

    probes = tuple(OpenedProbe(each.__name__, "other 1", each) for each in (hangs, fails, counts))
    log = recorded(tmp_path, probes, enough)
    release.set()
    found = probe_facts(log)
    assert found["fails"].failures >= 4
    assert found["fails"].last_failure == "OSError: no such\\x1b queue"
    assert (found["hangs"].samples, found["hangs"].failures) == (0, 1)
    assert found["hangs"].last_failure == "did not return for 0 s"
    assert found["counts"].failures == 0
    assert found["counts"].samples >= 4
    assert (probe_statistics(log, Window(0, 1e6)) or {}).keys() == {"counts"}


@pytest.mark.parametrize(("hung_s", "failures"), [(0.0, 1), (PATIENCE_S, 0)])
def test_a_probe_that_hangs_after_a_while_has_a_failure(hung_s: float, failures: int, tmp_path: Path) -> None:
    """A sample under way at the end of a run is one only if it took too long."""
    release, enough, taken = threading.Event(), Enough(), []

    def hangs() -> Mapping[str, float]:
        taken.append(1)
        if len(taken) > 3:
            enough.set()
            release.wait(PATIENCE_S)
        return {"a_count": 1}

    log = recorded(tmp_path, (OpenedProbe("hangs", "other 1", hangs),), enough, hung_s=hung_s)
    release.set()
    (facts,) = probe_facts(log).values()
    assert facts.failures == failures
    assert (facts.last_failure is None) == (failures == 0)


@pytest.mark.parametrize(
    "figures",
    [
        None,
        {"a_count": "1"},
        {"a_count": True},
        {"a_count": float("nan")},
        {"a_count": 1e16},
        {"A": 1},
        {5: 1},
        {f"a{n}": n for n in range(MOST_FIGURES + 1)},
    ],
)
def test_anything_but_finite_numbers_by_name_is_a_failed_sample(figures: object) -> None:
    """So a log has nothing that its reader would refuse."""
    with pytest.raises(ValueError, match="expected"):
        checked(figures)


PROBE_OF = "expected other:open_probe of other 1 to"


@pytest.mark.parametrize(
    ("code", "limit_s", "says"),
    [
        ("import nothing_of_this_name", 60, "found ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("def open_probe(services, start): pass", 60, f"{PROBE_OF} return a function, found None"),
        ("def open_probe(services, start): exit(3)", 60, f"{PROBE_OF} take its settings, found SystemExit: 3"),
        ("def open_probe(services): exit(3)", 60, "expected no settings, found 'start'"),
        ("def open_probe(services, *, state): exit(3)", 60, "expected one of the settings state, found 'start'"),
        # The event loop, which takes signals, goes on meanwhile, and the process ends without it.
        (
            "import threading\ndef open_probe(services, start): threading.Event().wait()",
            0.01,
            f"{PROBE_OF} open within 0 s, found it still at work",
        ),
    ],
)
def test_an_unusable_probe_is_refused_in_one_line(
    code: str, limit_s: float, says: str, install: Install, tmp_path: Path
) -> None:
    install(code)
    with pytest.raises(ConfigError, match=r"^probe count: expected .*\Z") as refusal:
        opened(counting(tmp_path / "scenario"), limit_s=limit_s)
    assert says in str(refusal.value)


def test_a_probe_may_take_any_settings(install: Install, tmp_path: Path) -> None:
    install("def open_probe(services, **settings): return lambda: {'start_count': settings['start']}")
    (probe,) = opened(counting(tmp_path / "scenario"))
    assert probe.sample() == {"start_count": 5}


def test_a_missing_probe_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        check_of(counting(tmp_path / "scenario"))
    own = ", ".join(each.name for each in plugins("probe"))
    assert str(refusal.value) == f"virtual: probes: expected installed probes ({own}), found 'count'"


def test_two_probes_of_a_name_have_labels(install: Install, tmp_path: Path) -> None:
    """Each has its own settings and samples, and its whole key in the log."""
    install(PROBE)
    probes = {"count/a": {"start": 10}, "count/b-2": {"start": 20}, "count": {"start": 30}}
    scenario = scenario_of(tmp_path / "scenario", (quiet(), 2), probes=probes)
    found = opened(scenario)
    assert {probe.name: probe.sample()["taken_count"] for probe in found} == {
        "count/a": 11,
        "count/b-2": 21,
        "count": 31,
    }
    assert {probe.origin for probe in found} == {"other 1"}


@pytest.mark.parametrize("label", ["", "A", "a" * 41])
def test_malformed_labels_are_refused_in_one_line(label: str, install: Install, tmp_path: Path) -> None:
    """They are shown in tables and on terminals."""
    install(PROBE)
    with pytest.raises(ConfigError) as refusal:
        check_of(scenario_of(tmp_path / "scenario", (quiet(), 2), probes={f"count/{label}": {}}))
    expected = "virtual: probes: expected a label of a-z, 0-9, _ and - after count/, found "
    assert str(refusal.value) == f"{expected}{label!r:.60}"


@pytest.mark.parametrize("said", ["probe count: start: expected 5, found 6", "start: expected 5, found 6"])
def test_an_error_of_a_probe_has_its_key(said: str, install: Install, tmp_path: Path) -> None:
    install(f"from loadsim.errors import ConfigError\ndef open_probe(services): raise ConfigError({said!r})")
    with pytest.raises(ConfigError, match=r"^probe count/two: start: expected 5, found 6$"):
        opened(scenario_of(tmp_path / "scenario", (quiet(), 2), probes={"count/two": {}}))


@pytest.mark.parametrize("probes", [["count"], {"count": [1]}, {"count": {"a": {}}}, {5: {}}])
def test_probes_are_a_mapping_to_settings(probes: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"scenario\.yaml: probes.*: expected .*, found "):
        scenario_of(tmp_path, (quiet(), 2), probes=probes)


def test_probes_do_not_change_the_load(tmp_path: Path) -> None:
    """They are in the scenario that a run keeps, and not in its digest."""
    scenario = counting(tmp_path)
    assert scenario.digest() == scenario_of(tmp_path, (quiet(), 2)).digest()
    kept = tmp_path / "kept.yaml"
    kept.write_text(scenario.to_yaml())
    assert load_scenario(str(kept)).probes == {"count": {"start": 5}}


def sample_at(at_s: float, **sample: Any) -> dict[str, Any]:
    return {"at_ns": ENDED["start_ns"] + round(at_s * 1e9), **sample}


def test_probes_change_neither_score_nor_generator_health(tmp_path: Path) -> None:
    """Samples of a probe between those of a machine change no figure."""
    machine = [
        sample_at(
            at_s,
            core_shares=[0.5],
            cpu_share=0.5,
            stolen_share=0.0,
            memory_available_bytes=1,
            segments_sent=10,
            segments_sent_again=0,
        )
        for at_s in range(1, 8)
    ]
    probe = [sample_at(at_s + 0.5, probe="count", figures={"a_count": 1.0}) for at_s in range(8)]
    tasks = [done("READ", 1000 * n, 40) for n in range(1, 8)]
    without = sample_log(tmp_path / "a.tlog", tasks, health=machine)
    having = sample_log(tmp_path / "b.tlog", tasks, health=sorted(machine + probe, key=lambda each: each["at_ns"]))
    window = Window(0, 8)
    assert generator_health(having, window) == generator_health(without, window)
    found = summarise([having], begin_s=0, end_s=8).score
    statistics = found.pop("probes")
    assert found == summarise([without], begin_s=0, end_s=8).score
    assert statistics["count"]["a_count"]["samples"] == 8


@contextmanager
def unprivileged() -> Iterator[None]:
    """Have the rights of another user in the block; root may read any directory."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_the_example_probe_fails_at_an_unreadable_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts messages in subdirectories, and states no 0 for a directory that it may not read."""
    monkeypatch.setattr(sys, "path", [str(SOURCE), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    open_probe = import_module("loadsim_example.probe").open_probe
    with TemporaryDirectory() as spool:
        Path(spool).chmod(0o755)  # another user reaches the queues
        for queue in ("incoming", "active", "deferred/A/B"):
            (Path(spool) / queue).mkdir(parents=True, mode=0o755)
            (Path(spool) / queue / "message").touch()
        sample = open_probe(NOWHERE, directory=spool)
        with unprivileged():
            assert sample() == {"incoming_messages": 1, "active_messages": 1, "deferred_messages": 1}
        for name in ("deferred/A/B", "active"):
            place = Path(spool) / name
            place.chmod(0o700 if os.geteuid() == 0 else 0)
            with unprivileged(), pytest.raises(PermissionError, match=name):
                sample()
            place.chmod(0o755)


def statistics_of(place: Path, samples: Iterable[tuple[float, float]], window: Window) -> ProbeStatistics:
    health = [sample_at(at_s, probe="p", figures={"a_ms": value}) for at_s, value in samples]
    log = sample_log(place / "a.tlog", [done("READ", 1000, 40)], health=health)
    return (probe_statistics(log, window) or {})["p"]["a_ms"]


@settings(max_examples=25)
@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=60), st.integers(1, 8))
def test_statistics_of_the_window_are_numpys(values: list[float], eighths: int) -> None:
    """The nearest rank, as of the tasks; samples before the window and from its end on do not count."""
    each_s = eighths / 8
    window = Window(10, 10 + len(values) * each_s)
    inside = [(10 + n * each_s, value) for n, value in enumerate(values)]
    with TemporaryDirectory() as place:
        found = statistics_of(Path(place), [(9.875, 1e15), *inside, (window.end_s, 1e15)], window)
    assert found.samples == len(values)
    ranks = [float(np.percentile(values, percent, method="inverted_cdf")) for percent in (50, 95)]
    assert [found.p50, found.p95] == ranks
    assert (found.min, found.max) == (min(values), max(values))
    assert found.mean == pytest.approx(np.mean(values))


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(-1000, 1000)), min_size=2, max_size=40))
def test_samples_are_weighted_by_time(samples: list[tuple[int, int]]) -> None:
    """Mean and percentiles over time, each instant having the value of the next sample: counted out in eighths."""
    at = np.cumsum([8, *(gap for gap, _ in samples[1:])])
    window = Window(0, 1 + at[-1] / 8)
    instants = np.arange(at[0] - samples[1][0], at[-1]) + 0.5
    each = np.array([value for _, value in samples])[np.searchsorted(at, instants)]
    with TemporaryDirectory() as place:
        values = [value for _, value in samples]
        found = statistics_of(Path(place), zip(at / 8, map(float, values), strict=True), window)
    assert found.mean == pytest.approx(each.mean())
    assert [found.p50, found.p95] == [float(np.percentile(each, at, method="inverted_cdf")) for at in (50, 95)]


@settings(max_examples=25)
@given(st.floats(-1e15, 1e15), st.lists(st.floats(0.1, 0.3), min_size=40, max_size=60))
def test_the_mean_of_a_constant_is_the_constant(value: float, gaps_s: list[float]) -> None:
    """A criterion on it is met at the very value, however the instants of the samples are rounded."""
    at = np.cumsum(gaps_s)
    with TemporaryDirectory() as place:
        found = statistics_of(Path(place), [(float(at_s), value) for at_s in at], Window(0, float(at[-1])))
    assert found.mean == value


@pytest.mark.parametrize(
    ("at_s", "length_s", "gap_s"),
    [
        (range(0, 601, 30), 601, 30),
        ((*range(0, 571, 30), 600.5), 605, None),  # 30.5 s within
        (range(31, 601, 20), 601, None),  # at the begin
        (range(0, 566, 20), 600, None),  # at the end
        (range(0, 61, 6), 61, 6),
        (range(0, 61, 7), 61, None),  # more than a tenth of a short window
        ((0, 5), 10, 5),
        ((0,), 10, None),
    ],
)
def test_a_figure_with_a_long_gap_is_not_measured(
    at_s: Iterable[float], length_s: float, gap_s: float | None, tmp_path: Path
) -> None:
    """A probe that fails while the server is overloaded shows only quiet times: a criterion on it is missed."""
    found = statistics_of(tmp_path, [(each, 1.0) for each in at_s], Window(0, length_s))
    assert gap_s is None or found.longest_gap_s == gap_s
    assert {found.mean, found.p50, found.p95, found.min, found.max} == ({1.0} if gap_s else {None})


CRITERIA = """
server: embedded
topology: [{profile: loadsim-5.5/medium, users: 4}]
probes: {postfix: {}, command/a: {run: "true"}}
criteria: {%s}
"""


@pytest.mark.parametrize(
    ("criterion", "found"),
    [
        ("probes.dovecot.active_messages.p95: {max: 50}", "expected one of command/a, postfix, found 'dovecot."),
        ("probes.postfix.Active.p95: {max: 50}", "expected one of the figures of the probe, found 'Active.p95'"),
        ("probes.postfix.active_messages.p96: {max: 50}", "expected one of mean, p50, p95, min, max, found 'p96'"),
    ],
)
def test_criteria_on_unknown_probes_are_rejected(criterion: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(CRITERIA % criterion)
    with pytest.raises(ConfigError, match=re.escape(found)):
        load_scenario(str(path))


@pytest.mark.parametrize(
    ("samples", "passed", "said"), [([3.0] * 7 + [9.0], False, "9.0 ms"), ([], False, "not measured")]
)
def test_a_criterion_on_a_probe_decides_the_verdict(
    samples: list[float], passed: bool, said: str, tmp_path: Path
) -> None:
    """As of any other figure, in its unit; without samples it is missed."""
    asked = {"criteria": {"probes.disk.wait_ms.p95": {"max": 5}}}
    health = [sample_at(at_s, probe="disk", figures={"wait_ms": value}) for at_s, value in enumerate(samples)]
    tasks = [done("READ", 1000 * n, 40) for n in range(1, 8)]
    log = sample_log(tmp_path / "a.tlog", tasks, health=health, header=asked)
    (result,) = summarise([log], begin_s=0, end_s=8).criteria
    assert (result.passed, result.found) == (passed, said)
