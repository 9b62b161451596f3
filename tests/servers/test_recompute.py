"""Every figure of `score.json` is computed a second time, by code that shares nothing with loadsim's."""

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path

import yaml
from health_samples import write_observed_machine
from recompute import recompute
from recomputed import differences, exports_of, printed, status_of
from virtual_runs import live, scenario_of

from loadsim.engine.clock import VirtualLoop
from loadsim.engine.control import StandaloneControl
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.draws import draw
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.protocols.in_memory_mail import MailInMemory
from loadsim.runs.log_header import load_of_plan, run_header
from loadsim.runs.watcher import SILENT
from loadsim.scenario.workload import Workload, plan_digest

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

    def __init__(self, clock: VirtualLoop, driver: InMemoryDriver) -> None:
        super().__init__(clock)
        self._clock = clock
        self._driver = driver
        self._start_ns: int | None = None
        self._accepted = 0
        driver.fault, driver.pace, driver.post = self.fault, self.pace, self.post

    async def common_start(self) -> int:
        """Break sessions so long afterwards."""
        self._start_ns = start_ns = await super().common_start()
        for at_s, users in ((OUTAGE_S[0], range(1, OUT + 1)), (SHUT_OUT_S, [SHUT_OUT])):
            for user in users:
                asyncio.get_running_loop().call_later(
                    at_s, lambda user: self._driver.mailboxes[user].break_off(ServerLost("reset")), user
                )
        return start_ns

    def fault(self, user: int, name: str, number: int) -> TaskFailed | None:
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
        return math.inf if user in HANGING and self._at_s(at_ns) > HANG_S else service_s

    def post(self, mail: MailInMemory, users: Sequence[int]) -> None:
        """`InMemoryDriver.post`: some messages never arrive, and some twice."""
        self._accepted += 1
        for _ in range(0 if self._accepted % 40 == 0 else 2 if self._accepted % 9 == 0 else 1):
            self._driver.arrive(mail, users)

    def _at_s(self, at_ns: int) -> float:
        """The instant, from the common start; -1 before it."""
        return -1.0 if self._start_ns is None else (at_ns - self._start_ns) * 1e-9


def test_every_figure_of_a_run_with_faults_is_recomputed(tmp_path: Path) -> None:
    """Failures, lost sessions, mail lost, doubled and found: in virtual time, and held against the load of the plan."""
    scenario = scenario_of(
        tmp_path,
        *(({"from": f"loadsim-5.5/{kind}"}, 12) for kind in ("light", "medium", "heavy")),
        run={"day_length": "240s", "ramp_up": "1s", "warm_up": "60s", "window": "180s"},
        limits={"command": "20s", "grace": "5s", "drain": "20s"},
    )
    drivers: list[InMemoryDriver] = []

    def kept(driver: InMemoryDriver) -> InMemoryDriver:
        drivers.append(driver)
        return driver

    workload = Workload(scenario)
    load = load_of_plan(scenario, SILENT, even_invalid=True)
    header = run_header(workload, "run-1", "in memory", plan_digest(workload), None, load=load)
    header |= {"client": "c1", "engines": 1, "engine_users": scenario.users}
    lived = live(
        scenario, tmp_path, limit_s=20, wrap=kept, control=lambda clock: Broken(clock, drivers[0]), header=header
    )
    assert lived.failure is None
    (log,) = tmp_path.glob("*.tlog")
    resolved = yaml.safe_load(scenario.to_yaml())
    figures = recompute(exports_of(log, resolved, tmp_path / "scenario.yaml"))
    machine = write_observed_machine(tmp_path / "machine.tlog", header)
    answer = json.loads(printed("log", "answer", log, machine, "--commands", "--json", statuses=[status_of(figures)]))
    answer["machines"] = []  # it shows nothing
    assert differences(answer, figures) == []
    # All that recomputation has to get right is there.
    for count in ("unfinished", "skipped", "sessions_lost", "sessions_restored", "users_without_session"):
        assert figures[count], count
    for outcome in ("refused", "lost", "timeout"):
        assert any(task[outcome] for task in figures["tasks"].values()), outcome
    for count in ("found", "undelivered", "undelivered_at_end", "duplicates"):
        assert figures["delivery"][count], count
    assert 0 < figures["down_share"] < 1
    assert 0 < figures["logon_failed_share"] < 1
    assert 0 < figures["load"]["share"] < 1
    assert any(task["response_p99_ms"] == math.inf > task["response_p50_ms"] for task in figures["tasks"].values())
    assert figures["inbox"]["unfinished"]
    assert not figures["verdict"]["passed"]


def test_a_key_that_is_not_recomputed_is_found() -> None:
    """A figure that nothing recomputes, and one that differs, are differences."""
    assert differences({"users": 3, "newcomer": 1.0}, {"users": 3}) == [
        "newcomer: score.json has 1.0, recomputed nothing"
    ]
    assert differences({"users": 3}, {"users": 4}) == ["users: score.json has 3, recomputed 4"]
    assert differences({"score_ms": 3.0}, {"score_ms": 3.000004}) == [
        "score_ms: score.json has 3.0, recomputed 3.000004"
    ]
    assert differences({"score_ms": 3.0, "next_step": "rest"}, {"score_ms": 3.000002}) == []
