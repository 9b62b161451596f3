"""The collection of monitors' streams from real child processes, as a run does it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from findings_of import codes
from patience import PATIENCE_S
from processes import ended
from timing_samples import ENDED, done, write_sample

from loadsim.analysis.summary import summarise
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.monitor.collector import Allowances, Collector, collected
from loadsim.monitor.monitor_log import open_monitor_log, read_monitor_log
from loadsim.processes.event_loop import run
from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.file import open_log

PATIENT = Allowances(start_s=PATIENCE_S, end_s=PATIENCE_S, terminated_s=PATIENCE_S)
SHORT = Allowances(start_s=PATIENCE_S, end_s=0.1, terminated_s=0.1)
SILENT = Allowances(start_s=0.5, end_s=0.1, terminated_s=0.1)


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return stream_at(tmp_path / "stream")


def stream_at(path: Path, name: str = "mx1", probe: str = "host@mx1", **facts: object) -> Path:
    writer = open_monitor_log(name, path)
    writer.facts(facts)
    for at_ns in (1_000, 2_000):
        writer.health({"at_ns": at_ns, "wall_clock_ns": 10**18 + at_ns})
        writer.health({"at_ns": at_ns, "probe": probe, "figures": {"cpu_busy_share": 0.5}})
    writer.close()
    return path


def shell(script: str, *arguments: object) -> list[str]:
    return ["sh", "-c", script, "sh", *map(str, arguments)]


def collector_of(place: Path, words: list[str], limits: Allowances = PATIENT, name: str = "mx1") -> Collector:
    (place / "logs").mkdir(exist_ok=True)
    return Collector(name, words, place / "logs" / f"{name}.tlog", limits)


def collect(place: Path, words: list[str], limits: Allowances = PATIENT) -> tuple[str | None, str | None, Path]:
    """Collect until the first sample, or the reason for none, then to the end. Return both reasons and the file."""
    collector = collector_of(place, words, limits)
    collector.start()
    sampled = collector.sampled.result(PATIENCE_S)
    collector.end()
    return sampled, collector.ended.result(PATIENCE_S), collector.path


def lacks_of(path: Path) -> str:
    text: str = open_log(path).facts.collection
    return text


def test_a_stream_is_stored_unchanged(tmp_path: Path, stream: Path) -> None:
    """The command ends when its standard input does, even if it ignores SIGTERM."""
    sampled, why, path = collect(tmp_path, shell('trap "" TERM; cat "$1"; cat', stream))
    assert (sampled, why) == (None, None)
    assert path.read_bytes() == stream.read_bytes()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 255", "(exit status 255)"),
        ("kill -9 $$", "(signal 9)"),
        ("echo no route to host; cat", "something else than a timing log first"),
        ("exec >&-; exec sleep 1000", "no sample within 0.5 s"),
        ('head -c 100 "$1"; exec sleep 1000', "no sample within 0.5 s"),
        (
            'head -c 8 "$1"; printf "\\377\\377"; tail -c +11 "$1"; exec sleep 1000',  # the version of the format
            "no sample within 0.5 s: it printed no log that this version of loadsim reads; does it run the same",
        ),
        ('printf "LSTLOG\\r\\n"; exec cat /dev/zero', "more than a monitor does"),
    ],
)
def test_a_monitor_without_a_first_sample_states_a_reason(
    script: str, reason: str, tmp_path: Path, stream: Path
) -> None:
    limits = SILENT if "no sample" in reason else SHORT
    sampled, why, path = collect(tmp_path, shell(script, stream), limits)
    assert sampled is not None
    assert why is not None
    assert reason in sampled
    assert reason in why
    assert lacks_of(path) == why


def test_a_command_that_is_not_installed_is_not_shown(tmp_path: Path) -> None:
    """Its first word may be PASSWORD=secret, as in a shell."""
    sampled, why, _ = collect(tmp_path, ["PASSWORD=hunter", "ssh", "mx1"])
    assert sampled is not None
    assert "its program is not installed" in sampled
    assert "hunter" not in f"{sampled} {why}"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('cat "$1"; exit 3', "before the run ended (exit status 3)"),
        ('cat "$1"; exit 0', "before the run ended (status 0)"),
        ('cat "$1"; exec cat /dev/zero', "more than a monitor does"),
    ],
)
def test_a_killed_monitor_is_recorded_in_its_file(script: str, reason: str, tmp_path: Path, stream: Path) -> None:
    """With all samples until then; nothing but the file changes."""
    collector = collector_of(tmp_path, shell(script, stream))
    collector.start()
    assert collector.sampled.result(PATIENCE_S) is None
    why = collector.ended.result(PATIENCE_S)
    collector.end()
    assert why is not None
    assert reason in why
    assert collector.path.read_bytes().startswith(stream.read_bytes())
    assert lacks_of(collector.path) == why
    assert len(open_log(collector.path).health) == 4


def test_garbage_after_samples_is_cut_off_and_counted(tmp_path: Path, stream: Path) -> None:
    sampled, why, path = collect(tmp_path, shell('cat "$1"; printf "%s" "$2"; cat', stream, "x" * 50))
    size = stream.stat().st_size + 50
    assert (sampled, why) == (None, f"the last 50 of {size:,} bytes were cut off or damaged, and were not kept")
    assert lacks_of(path) == why
    assert open_log(path).damage is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "probe", "facts", "reason"),
    [
        ("mx2", "host@mx2", {}, "found that of the monitor mx2"),
        ("mx1", "host", {}, "no sample within 0.5 s"),
        ("mx1", "host@mx1", {"lost_users": 3}, "no sample within 0.5 s"),
    ],
)
def test_a_log_of_another_monitor_is_set_aside(
    name: str, probe: str, facts: dict[str, object], reason: str, tmp_path: Path
) -> None:
    """A log without samples, which each reader takes, has its place."""
    foreign = stream_at(tmp_path / "foreign", name, probe, **facts)
    sampled, why, path = collect(
        tmp_path, shell('cat "$1"; cat', foreign), SILENT if "no sample" in reason else PATIENT
    )
    assert sampled is not None
    assert reason in sampled
    assert why is not None
    assert "its output is in mx1.tlog.rejected" in why
    assert (tmp_path / "logs" / "mx1.tlog.rejected").read_bytes() == foreign.read_bytes()
    assert lacks_of(path) == why
    assert not read_monitor_log(path, "mx1").health


@pytest.mark.parametrize("dies", [False, True])
def test_a_collected_monitor_leaves_no_process(dies: bool, tmp_path: Path, stream: Path) -> None:
    """Neither of a command that ignores the end of its input and SIGTERM, nor a child of one that has exited."""
    script = 'trap "" TERM; (while :; do sleep 1; done) & echo $! > "$2"; cat "$1"'
    script += "" if dies else "; while :; do sleep 1; done"
    collector = collector_of(tmp_path, shell(script, stream, tmp_path / "pid"), SHORT)
    collector.start()
    assert collector.sampled.result(PATIENCE_S) is None
    if dies:
        collector.ended.result(PATIENCE_S)
    collector.end()
    why, path = collector.ended.result(PATIENCE_S), collector.path
    assert why is not None
    assert ("before the run ended" if dies else "did not end within 0.2 s of the run, and was killed") in why
    assert len(open_log(path).health) == 4
    assert ended(int((tmp_path / "pid").read_text()))


def test_a_first_sample_after_the_request_to_end_changes_no_limit(tmp_path: Path, stream: Path) -> None:
    """It is printed when the standard input has ended; the command goes on, and is ended all the same."""
    collector = collector_of(tmp_path, shell('cat; cat "$1"; exec sleep 1000', stream), Allowances(end_s=1.0))
    collector.start()
    collector.end()
    collector.ended.result(PATIENCE_S)


def test_a_command_may_need_sigterm(tmp_path: Path, stream: Path) -> None:
    """As tail -f does: nothing is missing then."""
    sampled, why, _ = collect(
        tmp_path,
        shell('cat "$1"; exec sleep 1000', stream),
        Allowances(start_s=PATIENCE_S, end_s=0.1, terminated_s=PATIENCE_S),
    )
    assert (sampled, why) == (None, None)


def test_two_monitors_are_collected_for_a_block(tmp_path: Path, stream: Path) -> None:
    other = stream_at(tmp_path / "other", "mx2", "host@mx2")
    script = 'cat "$1"; cat'

    async def block() -> None:
        async with collected({"mx1": shell(script, stream), "mx2": shell(script, other)}, tmp_path / "logs", PATIENT):
            assert {path.name for path in (tmp_path / "logs").iterdir()} == {"mx1.tlog", "mx2.tlog"}

    run(block())
    assert (tmp_path / "logs" / "mx2.tlog").read_bytes() == other.read_bytes()


def test_a_run_that_cannot_start_leaves_no_monitor(tmp_path: Path, stream: Path) -> None:
    """One error for each monitor without a sample; the others end, too."""
    good, bad = shell('echo $$ > "$2"; cat "$1"; exec cat', stream, tmp_path / "pid"), shell("exit 7")

    async def block() -> None:
        async with collected({"mx1": good, "mx2": bad, "mx3": bad}, tmp_path / "logs", PATIENT):
            pytest.fail("the block began")

    with pytest.raises(ConfigError, match=r"monitors\.mx2: expected a first sample.*exit status 7") as refused:
        run(block())
    assert [str(each).partition(":")[0] for each in refused.value.problems] == ["monitors.mx2", "monitors.mx3"]
    assert not (tmp_path / "logs").exists()
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize("began", [False, True])
def test_ctrl_c_ends_monitors(began: bool, tmp_path: Path, stream: Path) -> None:
    """Before the first sample, nothing is left of the run. In the block, samples stay: a cluster's logs come later."""
    script = 'echo $$ > "$2"; ' + ('cat "$1"; exec cat' if began else "exec sleep 1000")
    pid_file = tmp_path / "pid"

    async def block() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            task.cancel() if pid_file.exists() and pid_file.read_text() else loop.call_soon(cancel)

        if not began:
            cancel()
        async with collected({"mx1": shell(script, stream, pid_file)}, tmp_path / "logs", SHORT):
            assert began
            task.cancel()
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        run(block())
    assert (tmp_path / "logs").exists() is began
    if began:
        assert read_monitor_log(tmp_path / "logs" / "mx1.tlog", "mx1").health
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()


def test_a_failure_after_the_load_began_keeps_the_files(tmp_path: Path, stream: Path) -> None:
    async def block() -> None:
        async with collected({"mx1": shell('cat "$1"; cat', stream)}, tmp_path / "logs", PATIENT):
            (tmp_path / "logs" / "c1.0.tlog").touch()
            raise KeyError

    with pytest.raises(KeyError):
        run(block())
    assert (tmp_path / "logs" / "mx1.tlog").read_bytes() == stream.read_bytes()


def die(place: Path) -> list[str]:
    return shell('cat "$1"; exit 255', stream_at(place / "stream"))


def lie(place: Path) -> list[str]:
    return shell('cat "$1"; cat', stream_at(place / "stream", "mx2", "host@mx2"))


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (die, "(exit status 255)"),
        (lie, "expected the log of the monitor mx1 (--name mx1), found that of the monitor mx2"),
    ],
)
def test_an_answer_names_the_monitor_and_what_is_missing(
    command: Callable[[Path], list[str]], why: str, tmp_path: Path
) -> None:
    """The run is as valid as without it, and a criterion on its figures is missed."""
    criteria = {"probes.host@mx1.cpu_busy_share.mean": {"max": 1.0}}
    basic = {"window_s": [10.0, 40.0], "duration_s": 50.0, "criteria": criteria}
    tasks = [done("READ", 1000 * n + 500, 40) for n in range(50)]
    write_sample(tmp_path / "logs" / "c1.0.tlog", tasks, header=basic)
    write_sample(
        tmp_path / "logs" / "c1.machine.tlog", header=basic | {"engine": "machine", "engine_users": 0}, facts=ENDED
    )
    without = summarise([tmp_path])
    collect(tmp_path, command(tmp_path))
    found = summarise([tmp_path])
    assert found.verdict.validity == without.verdict.validity
    (lacking,) = (one for one in found.verdict.warnings if one.code is Code.MONITOR_DEFECT)
    assert lacking.where == "mx1" and why in str(lacking.values["why"])
    assert Code.MONITOR_MISSING not in codes(found.verdict.warnings)
    (result,) = found.criteria
    assert (result.passed, result.figure) == (False, None)


COMMAND = "ssh mx1 loadsim monitor --probe host --name mx1"


def read(*settings: str) -> object:
    return load_scenario("quickstart", settings)


def test_a_scenario_declares_monitors() -> None:
    """They do not change the load, and the file of a run does not have their commands."""
    plain, monitored = load_scenario("quickstart"), load_scenario("quickstart", [f"monitors.mx1.command={COMMAND}"])
    assert monitored.monitors == {"mx1": tuple(COMMAND.split())}
    assert monitored.digest() == plain.digest()
    assert "ssh" not in f"{monitored.to_yaml()} {monitored!r}"
    assert "mx1" in monitored.to_yaml()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("monitors=hunter", "expected a mapping, found a value that is not shown"),
        ("monitors.Mx_1.command=hunter", "expected the name of a monitor"),
        ("monitors.mx1=hunter", "expected a mapping, found a value that is not shown"),
        ("monitors.mx1.command=[hunter]", "expected a text of printable characters, found a value"),
        ("monitors.mx1.command=' '", "expected a text of printable characters, found a value"),
        ("monitors.mx1.command=hunter '2", "found unclosed quotation marks"),
    ],
)
def test_wrong_monitors_are_refused_without_their_commands(setting: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=r"monitors") as refused:
        read(setting)
    assert expected in str(refused.value)
    assert "hunter" not in str(refused.value)
