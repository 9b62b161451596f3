"""Files of `loadsim monitor` on the time axis of a run."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from documents import all_tables
from findings_of import warnings_of
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import ENDED, HEADER, START_NS, done, write_sample

from loadsim.analysis.reasons import monitor_findings
from loadsim.analysis.recorded_run import read_run
from loadsim.analysis.summary import Summary, summarise
from loadsim.cluster.collect import check_run
from loadsim.errors import ConfigError, LogError
from loadsim.findings.catalogue import Code
from loadsim.model.terms import Window
from loadsim.report.one_run import describe_run
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog, read_log
from loadsim.timinglog.writer import TimingLogWriter

WINDOW = Window(10.0, 40.0)
START = datetime(2026, 1, 5, 8, 0, 3, tzinfo=UTC)
"""The common start by the run's time of day: three seconds behind the log's begin."""

BOOT, OTHER_BOOT = "boot-of-the-run", "boot-of-the-server"
SERVER_EPOCH_NS = 5_000_000_000_000
"""The server's monotonic clock has nothing in common with the run's."""

CRITERIA = {"probes.postfix@mx1.oldest_message_s.max": {"max": 60}}


def run_at(place: Path, error_ns: int | None = 1_000_000, **header: Any) -> Path:
    basic = {"window_s": [*WINDOW], "duration_s": 50.0, **header}
    tasks = [done("READ", 1000 * n + 500, 40) for n in range(50)]
    write_sample(place / "logs" / "c1.0.tlog", tasks, header=basic)
    write_sample(
        place / "logs" / "c1.machine.tlog",
        header=basic | {"engine": "machine", "engine_users": 0},
        facts=ENDED | {"boot_id": BOOT, "wall_clock_error_ns": error_ns, "server_here": False},
    )
    return place


def monitor_at(
    path: Path,
    samples: Iterable[tuple[float, Mapping[str, float]]],
    *,
    begun_s: float = -5.0,
    set_by_s: Mapping[float, float] | None = None,
    error_ns: int | None = 2_000_000,
    boot: str = OTHER_BOOT,
    epoch_ns: int = SERVER_EPOCH_NS,
    ended: bool = True,
    name: str = "mx1",
    probe: str = "postfix",
    **hostile: Mapping[str, Any],
) -> Path:
    """The file of a monitor; instants are seconds from the run's common start, by true time.

    `set_by_s` has by instant the error in seconds to which its time of day was set then. `hostile` has further
    keys of its `header`, its `facts`, and each sample of its probe (`sample`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {
        "monitor": name,
        "run": "",
        "client": name,
        "engine": "monitor",
        "users": 0,
        "engine_users": 0,
        "wall_clock_start": (START + timedelta(seconds=begun_s)).isoformat(),
    }
    writer = TimingLogWriter(path, header | hostile.get("header", {}), epoch_ns)
    writer.facts({"boot_id": boot, "wall_clock_error_ns": error_ns, "server_here": True})
    stated = {} if error_ns is None else {"wall_clock_error_ns": error_ns}
    for at_s, figures in samples:
        at_ns = epoch_ns + round((at_s - begun_s) * 1e9)
        wrong_s = sum(by_s for since_s, by_s in (set_by_s or {}).items() if at_s >= since_s)
        wall_ns = round((START.timestamp() + at_s + wrong_s) * 1e6) * 1000
        writer.health({"at_ns": at_ns, "wall_clock_ns": wall_ns, **stated})
        writer.health(
            {"at_ns": at_ns, "probe": f"{probe}@{name}", "figures": dict(figures)} | hostile.get("sample", {})
        )
    writer.facts(hostile.get("facts", {}))
    writer.facts({"probes": {f"{probe}@{name}": {"package": "p 1", "samples": 1, "failures": 0, "last_failure": None}}})
    if ended:
        writer.facts({"ended": "completed"})
    writer.close()
    return path


def seconds(begin: int = 0, end: int = 50, **figures: float) -> list[tuple[float, Mapping[str, float]]]:
    return [(at_s + 0.25, {"oldest_message_s": at_s + 0.25, **figures}) for at_s in range(begin, end)]


def samples_of(log: TimingLog) -> list[Any]:
    return [(sample["at_s"], sample["figures"]["oldest_message_s"]) for sample in log.health if "probe" in sample]


def judged(place: Path, **options: Any) -> Summary:
    return summarise([place], **options)


@settings(max_examples=25, deadline=None)
@given(
    begun_s=st.floats(-500, 40).map(lambda value: round(value, 3)),
    epoch_ns=st.integers(1, 2**60),
    begin=st.integers(-30, 5),
)
def test_samples_are_placed_by_time_of_day(
    begun_s: float, epoch_ns: int, begin: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """To a microsecond, with any begin and any monotonic clock; each figure is its instant."""
    place = run_at(tmp_path_factory.mktemp("run"))
    monitor_at(place / "logs" / "mx1.tlog", seconds(begin), begun_s=begun_s, epoch_ns=epoch_ns)
    found = samples_of(read_logs([place]))
    assert len(found) == 50 - begin
    assert all(at_s == pytest.approx(figure, abs=2e-6) for at_s, figure in found)


def place_of(log: TimingLog) -> Any:
    (found,) = (source.monitor for source in log.sources if source.monitor)
    return found


def test_samples_of_a_client_are_placed_by_its_monotonic_clock(tmp_path: Path) -> None:
    """The monotonic clock is one: a time of day that is an hour wrong changes nothing."""
    place = run_at(tmp_path)
    epoch_ns = START_NS - 5_000_000_000
    path = monitor_at(place / "logs" / "m.tlog", seconds(), boot=BOOT, epoch_ns=epoch_ns, set_by_s={-9.0: 3600.0})
    log = read_logs([place])
    assert samples_of(log) == [(pytest.approx(at_s), at_s) for at_s, _ in seconds()]
    found = place_of(log)
    assert found.error_ms == 0
    assert path.exists()


@pytest.mark.parametrize("set_by_s", [2.5, -2.5])
def test_a_set_clock_keeps_samples_apart(set_by_s: float, tmp_path: Path) -> None:
    """In the last fifth of the run: all samples stay a second apart and in place, and the error has the step."""
    place = run_at(tmp_path)
    monitor_at(place / "logs" / "mx1.tlog", seconds(), set_by_s={40.0: set_by_s})
    log = read_logs([place])
    assert all(at_s == pytest.approx(figure, abs=1e-5) for at_s, figure in samples_of(log))
    found = place_of(log)
    assert found.error_ms == pytest.approx(2500 + 1 + 2, abs=0.01)
    (apart,) = monitor_findings(log, WINDOW)
    assert (apart.code, apart.where) == (Code.MONITOR_CLOCK_APART, "mx1")
    assert apart.values["error_ms"] == found.error_ms


def test_differing_client_clocks_add_to_the_error(tmp_path: Path) -> None:
    """Each says another time of day at the common start: the middle is taken."""
    place = run_at(tmp_path)
    later = (datetime.fromisoformat(HEADER["wall_clock_start"]) + timedelta(seconds=4)).isoformat()
    header = {"client": "c2", "engine": "machine", "engine_users": 0, "wall_clock_start": later}
    write_sample(
        place / "logs" / "c2.machine.tlog",
        header={"window_s": [*WINDOW], "duration_s": 50.0} | header,
        facts=ENDED | {"wall_clock_error_ns": 500_000},
    )
    monitor_at(place / "logs" / "mx1.tlog", seconds())
    found = place_of(read_logs([place]))
    assert found.error_ms == pytest.approx(4000 + 1 + 2, abs=0.01)


def test_a_declared_monitor_without_a_file_has_a_warning(tmp_path: Path) -> None:
    """As one with a gap has, also if no criterion names it."""
    place = run_at(tmp_path, monitors=["mx1", "mx2"])
    monitor_at(place / "logs" / "mx1.tlog", seconds())
    assert [(one.code, one.where) for one in warnings_of(judged(place))] == [(Code.MONITOR_MISSING, "mx2")]


def test_a_killed_monitor_leaves_the_run_valid_and_its_criterion_missed(tmp_path: Path) -> None:
    """At 20 s, in the middle of a block: its figures are not measured, and the run is what it was."""
    place = run_at(tmp_path, criteria=CRITERIA)
    path = monitor_at(place / "logs" / "mx1.tlog", seconds(0, 20), ended=False)
    summary = judged(place)
    assert summary.verdict.validity == "valid"
    assert [(one.figure, one.passed) for one in summary.criteria] == [(None, False)]
    (killed,) = warnings_of(summary)
    assert (killed.code, killed.where, killed.values) == (Code.MONITOR_GAP, "mx1", {"begin_s": 19, "end_s": 40})
    path.write_bytes(path.read_bytes() + b"\x06\x40")
    summary = judged(place)
    assert (summary.verdict.validity, [one.passed for one in summary.criteria]) == ("valid", [False])
    assert len(place_of(read_logs([place])).damages) == 1
    (files,) = (each for each in all_tables(describe_run(read_run(str(place)))) if "monitor" in each.caption)
    assert [(row[0], row[3]) for row in files.rows] == [("mx1", "no")]


def test_damage_to_a_monitors_file_is_named(tmp_path: Path) -> None:
    """A flipped bit in the middle ends the readable part: that monitor was not killed."""
    place = run_at(tmp_path)
    path = monitor_at(place / "logs" / "mx1.tlog", seconds())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert [(one.code, one.where) for one in warnings_of(judged(place))] == [(Code.MONITOR_DEFECT, "mx1")]


@pytest.mark.parametrize("days", [-1, 1])
def test_a_file_of_another_day_has_no_sample(days: int, tmp_path: Path) -> None:
    """A clock that is a day wrong, or the file of another run."""
    place = run_at(tmp_path, criteria=CRITERIA)
    shifted = [(at_s + 86_400 * days, figures) for at_s, figures in seconds()]
    monitor_at(place / "logs" / "mx1.tlog", shifted, begun_s=86_400 * days - 5)
    summary = judged(place)
    (warning,) = warnings_of(summary)
    assert warning.code is Code.MONITOR_OF_OTHER_TIME
    assert warning.values == {"begin_s": 86_400 * days, "end_s": 86_400 * days + 49}
    assert [one.figure for one in summary.criteria] == [None]
    assert "probes" not in summary.score


def test_a_monitor_without_a_time_of_day_is_not_placed(tmp_path: Path) -> None:
    place = run_at(tmp_path, wall_clock_start="")
    monitor_at(place / "logs" / "mx1.tlog", seconds())
    assert [one.code for one in warnings_of(judged(place))] == [Code.MONITOR_WITHOUT_TIME]


def test_a_restarted_monitor_has_two_files(tmp_path: Path) -> None:
    """Each covers a part of the window; together, they have no gap."""
    place = run_at(tmp_path, criteria=CRITERIA)
    monitor_at(place / "logs" / "mx1.tlog", seconds(0, 22), ended=False)
    monitor_at(place / "logs" / "mx1b.tlog", seconds(24, 50), begun_s=23)
    summary = judged(place)
    assert warnings_of(summary) == ()
    assert [one.figure for one in summary.criteria] == [39.25]


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    place = run_at(tmp_path)
    for name in ("mx1", "copy"):
        monitor_at(place / "logs" / f"{name}.tlog", seconds())
    with pytest.raises(LogError, match="expected each file once, found the file of monitor mx1 twice"):
        judged(place)


def test_a_monitors_file_alone_is_no_run(tmp_path: Path) -> None:
    path = monitor_at(tmp_path / "mx1.tlog", seconds())
    with pytest.raises(LogError, match=r"^expected logs of a run, found only those of monitor mx1$"):
        read_logs([path])


def test_a_monitor_does_not_change_the_runs_figures(tmp_path: Path) -> None:
    """All but the figures of the probe: users, machines, verdict and score."""
    place = run_at(tmp_path)
    before = judged(place).score
    monitor_at(place / "logs" / "mx1.tlog", seconds())
    after = judged(place).score
    assert after.pop("probes").keys() == {"postfix@mx1"}
    assert json.dumps(after) == json.dumps(before)


def test_two_machines_of_one_name_are_refused(tmp_path: Path) -> None:
    """An idle and a busy one: their mean would be the figure of neither, and one may die unseen."""
    place = run_at(tmp_path)
    for name, boot, ends_s in (("a", "boot-a", 20), ("b", "boot-b", 50)):
        monitor_at(place / "logs" / f"{name}.tlog", seconds(-5, ends_s), boot=boot, epoch_ns=10**12 * ends_s)
    with pytest.raises(LogError, match=r"^merge: expected one machine for monitor mx1, found files of two that"):
        judged(place)


def test_a_run_begins_when_its_engines_do(tmp_path: Path) -> None:
    """And not when the monitor was started, the day before."""
    place = run_at(tmp_path)
    monitor_at(place / "logs" / "mx1.tlog", seconds(), begun_s=-86_400)
    run = read_run(str(place))
    assert "2026-01-05 08:00:00 UTC" in describe_run(run).subtitle


def test_logs_of_the_run_may_still_be_collected(tmp_path: Path) -> None:
    """Next to the file of a monitor, which is of no run; not next to logs of another run."""
    place = run_at(tmp_path)
    monitor_at(place / "logs" / "mx1.tlog", seconds())
    check_run(place, "run-1")
    with pytest.raises(ConfigError, match="expected a log of run run-2, found one of run run-1"):
        check_run(place, "run-2")


@pytest.mark.parametrize(
    ("hostile", "found"),
    [
        ({"header": {"users": 5}}, "header: users: expected 0 of a monitor, found 5"),
        ({"header": {"engine_users": 5}}, "header: engine_users: expected 0 of a monitor, found 5"),
        ({"header": {"client": "c1"}}, "header: client: expected 'mx1' of a monitor, found 'c1'"),
        ({"header": {"monitor": ""}}, "header: monitor: expected a-z, 0-9 and -, at most 40 characters, found ''"),
        ({"facts": {"own_faults": {"OSError: x": 3}}}, "facts: own_faults: expected no such fact of a monitor"),
        ({"facts": {"ended_why": "x"}}, "facts: ended_why: expected no such fact of a monitor, found 'x'"),
        ({"facts": {"start_ns": 5}}, "facts: start_ns: expected no such fact of a monitor, found 5"),
        ({"sample": {"engine": "0"}}, "health: engine: expected no such key of a monitor, found one"),
        ({"sample": {"lags_us": [9]}}, "health: lags_us: expected no such key of a monitor, found one"),
        ({"sample": {"probe": "host"}}, "health: probe: expected names that end with @mx1, found 'host'"),
        ({"sample": {"probe": "a@mx2"}}, "health: probe: expected names that end with @mx1, found 'a@mx2'"),
        ({"sample": {"figures": {"{a}": 1}}}, "health: figures: expected names of a-z, 0-9 and _, at most 40"),
    ],
)
def test_a_monitor_does_not_count_as_generator(hostile: dict[str, Any], found: str, tmp_path: Path) -> None:
    """A file that says so is refused: it would make the run invalid, or change the samples of other probes."""
    place = run_at(tmp_path)
    path = monitor_at(place / "logs" / "mx1.tlog", seconds(), **hostile)
    with pytest.raises(LogError) as refused:
        judged(place)
    assert str(refused.value).startswith(f"{path}: {found}")


@pytest.mark.parametrize("ended", ["early", "given up"])
def test_a_monitors_end_is_not_the_runs(ended: str, tmp_path: Path) -> None:
    place = run_at(tmp_path)
    monitor_at(place / "logs" / "mx1.tlog", seconds(), ended=False, facts={"ended": ended})
    with pytest.raises(LogError, match="facts: ended: expected completed of a monitor, found"):
        judged(place)


def test_hostile_samples_are_refused(tmp_path: Path) -> None:
    for number, sample in enumerate(
        ({"at_ns": 1, "wall_clock_ns": "x"}, {"wall_clock_ns": 5}, {"at_ns": 1, "wall_clock_error_ns": 5})
    ):
        with pytest.raises(LogError, match="health: "):
            read_log(write_sample(tmp_path / f"{number}.tlog", health=[sample]))


@settings(max_examples=25, deadline=None)
@given(
    samples=st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62)), max_size=4),
    epoch_ns=st.integers(-(2**62), 2**62),
    begun=st.sampled_from(["", "1970-01-01T00:00:00", "9998-12-31T23:59:59+00:00"]),
)
def test_samples_at_any_instants_are_read(
    samples: list[tuple[int, int]], epoch_ns: int, begun: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = run_at(tmp_path_factory.mktemp("run"))
    header = {"monitor": "mx1", "run": "", "client": "mx1", "engine": "monitor", "users": 0, "engine_users": 0}
    writer = TimingLogWriter(place / "logs" / "mx1.tlog", header | {"wall_clock_start": begun}, epoch_ns)
    for at_ns, wall_ns in samples:
        writer.health({"at_ns": at_ns, "wall_clock_ns": wall_ns})
        writer.health({"at_ns": at_ns, "probe": "p@mx1", "figures": {"a_ms": 1.0}})
    writer.close()
    summary = summarise([place])
    assert bool(warnings_of(summary)) or "probes" in summary.score
