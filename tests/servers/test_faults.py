"""Faults of a generator during a measurement, made in real ones on a real server: each ends in its verdict."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from findings_of import findings_in
from patience import PATIENCE_S, PATIENT_CRITERIA
from small_runs import AFTER_TEN_S, AT_WORK

from bench.nullserver import HOST, NullServer, Shape, started
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.severity import Severity
from loadsim.timinglog.reader import TimingLog, read_log

pytestmark = pytest.mark.nightly(part="runs")

USERS = 20
STOPPED_S = 8.0
NO_LIMITS = {"lag_p99_ms": None, "lag_share": None, "cpu": None, "lateness_p95_ms": None}
"""Where a test is about lost users, it does not matter how busy the machine is."""


@pytest.fixture(scope="module")
def server() -> Iterator[NullServer]:
    with started(Shape(users=USERS + 1, messages=4, folders=2)) as running:
        yield running


def written(
    place: Path, server: NullServer, limits: Mapping[str, Any], *, duration: str = "8s", protocol: str = "imap"
) -> Path:
    """A scenario at the rates of a day of ten minutes, that is made invalid by nothing but these limits."""
    services = server.services
    document = {
        "name": "faults",
        "domain": "null.test",
        "server": {
            "imap": {"host": HOST, "port": services.imap.port},
            "smtp": {"host": HOST, "port": services.smtp.port},
        },
        "accounts": {"user": "user{index}", "password": "any"},
        "topology": [{"profile": "loadsim-5.5/medium", "users": USERS, "protocol": protocol}],
        "lists": {"count": 0},
        "run": {
            **{"day_length": "10m", "duration": duration, "ramp_up": "0s", "warm_up": "0s", "window": duration},
            "audit": False,  # this server keeps no mail, and contradicts itself
        },
        "client": {"check_state": 0},
        "initialise": "never",
        "criteria": PATIENT_CRITERIA,
        "limits": {"window": "1s", "hits": 0, "done": 0, "load": 0, "drain": "60s", "command": "10s", **limits},
    }
    path = place / "scenario.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return path


class Ended:
    """An ended run: its exit status, its output with --json, its events, its engines' logs."""

    def __init__(self, out: Path, status: int, printed: str) -> None:
        self.out = out
        self.status = status
        self.score = json.loads(printed)
        self.events = events(out)

    @property
    def verdict(self) -> dict[str, Any]:
        verdict: dict[str, Any] = self.score["verdict"]
        return verdict

    @property
    def findings(self) -> list[Finding]:
        return findings_in(self.score)

    def logs(self) -> dict[str, TimingLog]:
        logs = map(read_log, sorted((self.out / "logs").glob("*.tlog")))
        return {log.sources[0].engine: log for log in logs if log.sources[0].simulates}


def events(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def run(
    scenario: Path,
    *,
    engines: int,
    at_work: Callable[[dict[str, int]], None],
    when: str = AT_WORK,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """A whole `loadsim run`; `at_work` is given the engines' processes once it says that all users are at work."""
    out = scenario.parent / "out"
    command = [
        sys.executable,
        "-m",
        "loadsim",
        "run",
        "--no-report",
        scenario,
        "--out",
        out,
        "--engines",
        str(engines),
        "--json",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if re.match(when, line):
                break
        else:
            pytest.fail(f"it never said {when!r}: {''.join(said)}")
        try:
            at_work({event["engine"]: event["pid"] for event in events(out) if event["event"] == "engine ready"})
            printed, complaints = process.communicate(timeout=PATIENCE_S)
        finally:
            process.terminate()
    assert "Traceback" not in complaints
    return Ended(out, process.returncode, printed)


@pytest.mark.parametrize(
    ("fault", "why", "lost_users", "validity", "status"),
    [(signal.SIGKILL, "signal 9", 0.5, "degraded", 0), (signal.SIGSTOP, "sent nothing for ", 0.4, "invalid", 3)],
)
def test_a_lost_engine_loses_its_users_only(
    server: NullServer, tmp_path: Path, fault: signal.Signals, why: str, lost_users: float, validity: str, status: int
) -> None:
    """Killed or frozen, it is given up while the other works on: half of the users are lost, and a limit judges that.

    Its log is read as far as it goes. Nothing that was sent to its users counts as undelivered.
    """
    limits = {"lost_users": lost_users, "generator": NO_LIMITS}
    scenario = written(tmp_path, server, limits, duration="26s")
    # What was measured before the fault is on disk a second or two later: the line after ten seconds tells.
    ended = run(scenario, engines=2, at_work=lambda pids: os.kill(pids["2"], fault), when=AFTER_TEN_S)
    assert (ended.verdict["validity"], ended.status) == (validity, status), ended.verdict
    (lost_users,) = (one for one in ended.findings if one.code is Code.USERS_LOST)
    assert (lost_users.values["lost"], lost_users.values["users"]) == (10, 20)
    assert ended.score["delivery"]["undelivered_at_end"] == 0
    (lost,) = [event for event in ended.events if event["event"] == "engine lost"]
    assert (lost["engine"], lost["users"]) == ("2", 10)
    assert lost["why"].startswith(why)
    (end,) = [event for event in ended.events if event["event"] == "end"]
    assert (end["engine"], end["ended"]) == ("1", "completed")
    assert 0 < lost["at_s"] < end["at_s"]
    logs = ended.logs()
    assert [logs[engine].sources[0].ended for engine in "12"] == [True, False]
    assert all((log.tasks["outcome"] == 0).any() for log in logs.values())


def test_an_engine_out_of_file_descriptors_invalidates_the_run(server: NullServer, tmp_path: Path) -> None:
    """Its sessions go on, and no connection can be made for a message: invalid, and nothing that the server failed."""

    def take_files(pids: dict[str, int]) -> None:
        opened = max(int(number.name) for number in Path(f"/proc/{pids['1']}/fd").iterdir())
        resource.prlimit(pids["1"], resource.RLIMIT_NOFILE, (opened + 1, opened + 1))

    limits = {"generator": NO_LIMITS}
    scenario = written(tmp_path, server, limits, duration="20s")
    ended = run(scenario, engines=1, at_work=take_files, when=AFTER_TEN_S)
    assert (ended.verdict["validity"], ended.status) == ("invalid", 3), ended.verdict
    own = ended.score["generator_failed"]
    assert own > 0
    kind = "no free file descriptor (EMFILE)"
    assert finding(Code.SHORTAGE, times=own, kinds=(kind,)) in ended.findings
    assert (ended.score["failed"], ended.score["sessions_lost"]) == (0, 0)
    assert {event["kind"] for event in ended.events if event["event"] == "failure"} == {kind}
    assert all(log.sources[0].ended for log in ended.logs().values())


def test_engines_go_on_while_their_parent_is_stopped(server: NullServer, tmp_path: Path) -> None:
    """Its engines go on without samples of the machine: the run is degraded, and the gap is named."""

    def stop(pids: dict[str, int]) -> None:
        parent = int(Path(f"/proc/{pids['1']}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGSTOP)
        try:
            time.sleep(STOPPED_S)
        finally:
            os.kill(parent, signal.SIGCONT)

    scenario = written(tmp_path, server, {"generator": NO_LIMITS}, duration="30s")
    ended = run(scenario, engines=1, at_work=stop, when=AFTER_TEN_S)
    assert (ended.verdict["validity"], ended.status) == ("degraded", 0), ended.verdict
    (machine,) = ended.score["machines"]
    ((begin_s, end_s),) = machine["unobserved_s"]
    assert STOPPED_S - 1.5 < end_s - begin_s < 20
    (gap,) = (one for one in ended.findings if one.severity is Severity.DEGRADED)
    assert (gap.code, gap.values["end_s"]) == (Code.NOT_OBSERVED, round(end_s))
    assert not [event for event in ended.events if event["event"] == "engine lost"]


BUSY = """
import os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print(flush=True)
end = time.monotonic() + float(sys.argv[2])
while (now := time.monotonic()) < end:
    while time.monotonic() < now + 0.1:
        pass
    time.sleep(0.2)
"""
"""A neighbour that has a core (argument 1) for 100 ms of each 300, before all others; for so many seconds at most. It
makes the loop later than is allowed even where the kernel times the answers."""


@contextmanager
def busy(core: int) -> Iterator[None]:
    """Run the neighbour during the block."""
    command = [sys.executable, "-c", BUSY, str(core), str(PATIENCE_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as neighbour:
        try:
            assert neighbour.stdout is not None
            assert neighbour.stdout.read(1)
            yield
        finally:
            neighbour.kill()


def test_a_starved_engine_invalidates_the_run(server: NullServer, tmp_path: Path) -> None:
    """A neighbour takes the engine's own core again and again: invalid, with which engine, and what may help."""
    core = max(os.sched_getaffinity(0))

    def starve(pids: dict[str, int]) -> None:
        os.sched_setaffinity(pids["2"], [core])
        neighbour.enter_context(busy(core))

    with ExitStack() as neighbour:
        ended = run(written(tmp_path, server, {}), engines=2, at_work=starve)
    assert_late(ended, "2")


def assert_late(ended: Ended, engine: str) -> None:
    """It is invalid because this engine's loop was late, although all its tasks were done."""
    assert (ended.verdict["validity"], ended.status) == ("invalid", 3), ended.verdict
    late = [one.where for one in ended.findings if one.code is Code.EVENT_LOOP_LATE]
    assert any(where.endswith(f".{engine}") for where in late)
    # It depends on the machine whether others are to be stopped first, or cores be pinned.
    by_rule = (Code.CORES_SHARED, Code.CORES_BUSY_BY_OTHERS, Code.EVENT_LOOP_LATE)
    assert ended.score["next_step"] in [code.remedy for code in by_rule]
    assert ended.score["generator"]["lag_p99_ms"] > ended.score["generator"]["lag_limit_ms"]
    assert not [event for event in ended.events if event["event"] == "engine lost"]
    assert all(log.sources[0].ended for log in ended.logs().values())
