"""Every figure of `score.json` is computed a second time, by code that shares nothing with loadsim's.

`recompute` knows the documentation and the CSV exports only. A new key of `score.json` that it does not compute fails
here, until it does, or stands in `LEFT_OUT` with a reason.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from health_samples import write_blind_machine
from recompute import Exports, recompute
from recompute_numbers import Figures, rows_of
from virtual_runs import live, scenario_of

from loadsim.cli import main
from loadsim.engine.clock import LoopClock
from loadsim.engine.control import StandaloneControl
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.draws import draw
from loadsim.model.workload import Workload, plan_digest
from loadsim.protocols.in_memory import InMemoryDriver, Mail
from loadsim.runs.log_header import load_of_plan, run_header
from loadsim.runs.watcher import SILENT

TEXT = "a text"
FACT = "a fact of the log that no export has"
LEFT_OUT = {
    "verdict.reasons": TEXT,
    "verdict.criteria.*.found": TEXT,
    "verdict.criteria.*.wanted": TEXT,
    "warnings": TEXT,
    "advice": TEXT,
    "run": TEXT,
    "name": TEXT,
    "mode": TEXT,
    "method": TEXT,
    "server": TEXT,
    "submission": TEXT,
    "plan_digest": TEXT,
    "no_score_interval": TEXT,
    "tasks.*.no_interval": TEXT,
    "by_protocol.*.no_score_interval": TEXT,
    "by_protocol.*.no_interval": TEXT,
    "score_interval_ms": "intervals are held by a simulation",
    "tasks.*.interval_ms": "as the score's",
    "by_protocol.*.score_interval_ms": "as the score's",
    "by_protocol.*.interval_ms": "as the score's",
    "by_protocol.*.spell_s": "as the score's",
    "embedded": FACT,
    "start_at": "null but for a start that was agreed on",
    "slice": "null but for slices",
    "throughput": "null but in stress mode",
    "per_client": "empty but for several machines",
    "by_protocol.*.repeats": "null but for several runs",
    "preparation.*": "facts of the log of each machine; tests/unit/test_removed_before.py holds them",
    "machines.*.server_here": FACT,
    "machines.*.shares_cpus": FACT,
    "machines.*.generator_cores": FACT,
    "machines.*.pinned": FACT,
    "machines.*.unobserved_s": "it takes the samples of the machine's engines, and test_own_faults holds it",
}
"""Keys of `score.json` that `recompute` leaves out, as patterns, and why."""

PROFILE_DAY_S = 8 * 3600
"""The day of all profiles that are used here."""

KINDS = ("tasks", "mails", "commands", "health")

NAMED_BY = ("task", "command", "name")
"""Elements of lists in `score.json` are told apart by one of these."""


def normal(value: Any) -> Any:
    """Return a value of `score.json` as `recompute` has it: elements of lists by their names, infinity as a number."""
    if isinstance(value, dict):
        return {key: normal(each) for key, each in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], dict):
            if "outcome" in value[0]:
                return {f"{each['outcome']} {each['kind']}": each["times"] for each in value}
            (name,) = [key for key in NAMED_BY if key in value[0]]
            return {each[name]: normal(each) for each in value}
        return set(value) if value and isinstance(value[0], str) else value
    return math.inf if value == "inf" else value


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the figures of nested dictionaries with their paths; what is empty has none."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}" if path else key)
    elif value not in ([], set()):
        yield path, value


def same(path: str, told: Any, found: Any) -> bool:
    """Return whether two figures agree: counts exactly, times to a millionth or the microsecond of the exports."""
    if isinstance(told, bool) or not isinstance(told, int | float) or not isinstance(found, int | float):
        return bool(told == found)
    if isinstance(told, int) and isinstance(found, int):
        return told == found
    return math.isclose(told, found, rel_tol=1e-6, abs_tol=0.0011 if "lateness" in path else 0)


def differences(score: Mapping[str, Any], figures: Figures) -> list[str]:
    """Return what `score.json` and the recomputation do not agree on."""
    told, found = dict(leaves(normal(score))), dict(leaves(figures))
    left_out = {path for path in told if any(fnmatchcase(path, pattern) for pattern in LEFT_OUT)}
    missing = object()
    return [
        f"{path}: score.json has {told.get(path, 'nothing')}, recomputed {found.get(path, 'nothing')}"
        for path in told.keys() - left_out | found.keys()
        if not same(path, told.get(path, missing), found.get(path, missing))
    ]


def loadsim(*arguments: str | Path, statuses: Sequence[int] = (0,)) -> str:
    """Execute a command in this process, and return what it prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        status = main([*map(str, arguments)])
    assert status in statuses
    return out.getvalue()


def exports_of(log: Path, scenario: Mapping[str, Any], path: Path) -> Exports:
    """Export a run, and plan its scenario, which is the file at `path`."""
    tables = {kind: rows_of(loadsim("log", "export", "csv", log, "--kind", kind)) for kind in KINDS}
    plan = json.loads(loadsim("plan", path, "--json"))
    return Exports(**tables, scenario=scenario, plan=plan, profile_day_s=PROFILE_DAY_S)


def status_of(figures: Figures) -> int:
    """Return the exit status that the documentation has for a verdict."""
    verdict = figures["verdict"]
    return 3 if verdict["validity"] == "invalid" else int(not verdict["passed"])


def test_a_run_by_the_command_line(tmp_path: Path) -> None:
    """Users of all three kinds on the embedded server: all that the run says of itself is what its records come to."""
    wide = {"response_p95_ms": {"max": 60_000}, "failed_share": {"max": 0.05}, "done_share": {"min": 0.8}}
    document = {
        "server": "embedded",
        "topology": [{"profile": f"loadsim-5.5/{kind}", "users": 2} for kind in ("light", "medium", "heavy")],
        "run": {"day_length": "24s", "ramp_up": "1s", "warm_up": "6s", "window": "15s"},
        "criteria": {
            "score_ms": {"max": 10_000},
            "response_score_ms": {"max": 30_000},
            "done_share": {"min": 0.8},
            "tasks.scored": wide,
            "tasks.SEND.p99_ms": {"min": 0, "max": 60_000},
        },
        "limits": {
            "window": "15s",
            "done": 0.8,
            "load": 0.8,
            "hits": 1,
            "generator": {"lag_p99_ms": 50, "lag_share": None},
        },
    }
    path, out = tmp_path / "short.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    loadsim("run", path, "--out", out, "--no-report", statuses=(0, 1, 3))
    score = json.loads((out / "score.json").read_text(encoding="utf-8"))
    resolved = yaml.safe_load((out / "scenario.yaml").read_text(encoding="utf-8"))
    figures = recompute(exports_of(out, resolved, path))
    answer = json.loads(loadsim("log", "answer", out, "--commands", "--json", statuses=[status_of(figures)]))
    assert differences(answer, figures) == []
    assert {key: value for key, value in answer.items() if key != "commands"} == score
    assert len(figures["covers"]["scored"]) >= 8
    assert len(figures["machines"]) == 1


# --- a server that does wrong -------------------------------------------------------------------------------------

OUTAGE_S = (100, 120)
"""The users up to `OUT` have no session then."""

OUT = 5

SHUT_OUT_S = 180
"""From then on, the user `SHUT_OUT` does not get on again."""

SHUT_OUT = 12

HANG_S = 225
"""From then on, these users get no answers."""

HANGING = (6, 7, 8)


class Broken(StandaloneControl):
    """The engine's control, and all that its mail system does wrong: failures at random, too."""

    def __init__(self, clock: LoopClock, module: InMemoryDriver) -> None:
        super().__init__(clock)
        self._clock = clock
        self._module = module
        self._start_ns: int | None = None
        self._accepted = 0
        module.fault, module.pace, module.post = self.fault, self.pace, self.post

    async def common_start(self) -> int:
        """Break sessions so long afterwards."""
        self._start_ns = start_ns = await super().common_start()
        for at_s, users in ((OUTAGE_S[0], range(1, OUT + 1)), (SHUT_OUT_S, [SHUT_OUT])):
            for user in users:
                asyncio.get_running_loop().call_later(
                    at_s, lambda user: self._module.mailboxes[user].break_off(ServerLost("reset")), user
                )
        return start_ns

    def fault(self, user: int, name: str, number: int) -> TaskFailed | None:
        """`InMemoryDriver.fault`."""
        at_s = self._at_s(self._clock.now_ns())
        in_outage = user <= OUT and OUTAGE_S[0] <= at_s < OUTAGE_S[1]
        if name.startswith("IMAP") and (in_outage or (user == SHUT_OUT and at_s >= SHUT_OUT_S)):
            return ServerLost("connection lost")
        u = draw(1, user, "fault", number)
        if u < 0.010:
            return ServerRefused("NO", "random")
        if u < 0.012:
            return ServerLost("reset")
        return ServerSilent("no answer") if u < 0.013 else None

    def pace(self, user: int, _: str, at_ns: int, service_s: float) -> float:
        """`InMemoryDriver.pace`."""
        return math.inf if user in HANGING and self._at_s(at_ns) > HANG_S else service_s

    def post(self, mail: Mail, users: Sequence[int]) -> None:
        """`InMemoryDriver.post`: some messages never arrive, and some twice."""
        self._accepted += 1
        for _ in range(0 if self._accepted % 40 == 0 else 2 if self._accepted % 9 == 0 else 1):
            self._module.arrive(mail, users)

    def _at_s(self, at_ns: int) -> float:
        """The instant, from the common start; -1 before it."""
        return -1.0 if self._start_ns is None else (at_ns - self._start_ns) * 1e-9


def test_a_run_with_faults_of_every_kind(tmp_path: Path) -> None:
    """Failures, lost sessions, mail lost, doubled and found: in virtual time, and held against the load of the plan."""
    scenario = scenario_of(
        tmp_path,
        *(({"from": f"loadsim-5.5/{kind}"}, 12) for kind in ("light", "medium", "heavy")),
        run={"day_length": "240s", "ramp_up": "1s", "warm_up": "60s", "window": "180s"},
        limits={"command": "20s", "grace": "5s", "drain": "20s"},
    )
    modules: list[InMemoryDriver] = []

    def kept(module: InMemoryDriver) -> InMemoryDriver:
        modules.append(module)
        return module

    workload = Workload(scenario)
    load = load_of_plan(scenario, SILENT, even_invalid=True)
    header = run_header(workload, "run-1", "in memory", plan_digest(workload), None, load=load)
    header |= {"client": "c1", "engines": 1, "engine_users": scenario.users}
    lived = live(
        scenario, tmp_path, limit_s=20, wrap=kept, control=lambda clock: Broken(clock, modules[0]), header=header
    )
    assert lived.failure is None
    (log,) = tmp_path.glob("*.tlog")
    resolved = yaml.safe_load(scenario.to_yaml())
    figures = recompute(exports_of(log, resolved, tmp_path / "scenario.yaml"))
    machine = write_blind_machine(tmp_path / "machine.tlog", header)
    answer = json.loads(loadsim("log", "answer", log, machine, "--commands", "--json", statuses=[status_of(figures)]))
    answer["machines"] = []  # it shows nothing
    assert differences(answer, figures) == []
    # All that recomputation has to get right is there.
    for count in ("unfinished", "skipped", "sessions_lost", "sessions_restored", "users_without_session"):
        assert figures[count], count
    for outcome in ("refused", "lost", "timeout"):
        assert any(task[outcome] for task in figures["tasks"].values()), outcome
    for count in ("found", "undelivered", "undelivered_at_end", "duplicates", "under_way_max"):
        assert figures["delivery"][count], count
    assert 0 < figures["down_share"] < 1
    assert 0 < figures["logon_failed_share"] < 1
    assert 0 < figures["load"]["share"] < 1
    assert any(task["response_p99_ms"] == math.inf > task["response_p50_ms"] for task in figures["tasks"].values())
    assert figures["inbox"]["unfinished"]
    assert not figures["verdict"]["passed"]


def test_a_new_key_is_found() -> None:
    """A figure that nothing recomputes, and one that differs, are differences."""
    assert differences({"users": 3, "newcomer": 1.0}, {"users": 3}) == [
        "newcomer: score.json has 1.0, recomputed nothing"
    ]
    assert differences({"users": 3}, {"users": 4}) == ["users: score.json has 3, recomputed 4"]
    assert differences({"score_ms": 3.0}, {"score_ms": 3.000004}) == [
        "score_ms: score.json has 3.0, recomputed 3.000004"
    ]
    assert differences({"score_ms": 3.0, "advice": "rest"}, {"score_ms": 3.000002}) == []
