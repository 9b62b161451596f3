"""One run of an engine with one fault: four users at work on a real server, two of them through the fault.

The fault strikes at every occasion in the first 120 s of the run; then the server is well again.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import math
import os
import shutil
import signal
import socket
import sys
import tempfile
from atexit import register
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import keeper
from imap_script import certificate
from timing_samples import HEADER
from virtual_runs import Tape, contents, quiet, scenario_of

from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.errors import ConfigError
from loadsim.model.ports import INBOX, Account, Driver, Endpoint, Observer, Services, Session
from loadsim.model.state_checks import StateChecks
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.clean import clean
from loadsim.provisioning.initialise import initialise
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.reader import read_log
from loadsim.timinglog.writer import TimingLogWriter

from .acts import Fault
from .links import ImapLink, Link, SmtpLink
from .loop import HOST, Client, Loop, network, run
from .server import Server, serve

USERS = 4
VICTIMS = frozenset({2, 3})
DAY_S = 240.0
HEALED_S = 120.0
"""The end of the fault, in seconds of the run."""

LIMIT_S = 10.0
"""The time limit of each command."""

ENDLESS_S = 600.0
"""The CPU time after which a run has no end; most take a quarter of a second, so no slow machine needs it."""

VISIT_LIMIT_S = 600.0
"""The time in which two mailboxes are initialised or cleaned, or the command ends with an error."""

DONE = "done"
PASSWORD = "secret-word"
SECRETS = (PASSWORD, b64encode(f"\0user{min(VICTIMS)}\0{PASSWORD}".encode()).decode(), "; kind=", "charset=")
"""Parts of passwords and messages, which no event has: they include lines of hostile servers."""

HUMAN = b"From: mother@home.test\r\nSubject: lunch\r\nX-Human: yes\r\n\r\nAt noon?\r\n"

IMAP_PORT, SMTP_PORT, BAD_IMAP_PORT, BAD_SMTP_PORT = 143, 587, 10143, 10587

PROFILE = quiet(
    new_mail={"per_day": 1.5, "recipients": 2, "list_chance": "0%"},
    process_inbox={"per_day": 2},
    browse={"per_day": 1},
    schedule={"per_day": 1},
    after_reading={"reply": "5%", "reply_all": 0, "forward": "5%", "move": "35%", "copy": "25%", "delete": "30%"},
    messages={"ups1K": 1, "ups10Kat": 1},
    start_state={"inbox": 2, "folders": 2, "messages_per_folder": 2},
)
RUN = {"day_length": f"{DAY_S:g}s", "ramp_up": "1s", "warm_up": "0s", "window": f"{DAY_S:g}s"}
SEED = 23
"""With this seed, the victims send, read, copy, move, delete and browse before the fault ends."""


@dataclass
class Outcome:
    fault: str
    ended: str = ""
    struck: int = 0
    tasks: list[dict[str, Any]] = field(default_factory=list)
    accepted: set[tuple[str, int]] = field(default_factory=set)
    seen: set[tuple[str, int]] = field(default_factory=set)
    took: set[tuple[str, int]] = field(default_factory=set)
    undelivered: int = 0
    users_on: int = 0
    own_faults: dict[str, int] = field(default_factory=dict)
    events: str = ""
    memory_mib: int = 0
    noise: list[str] = field(default_factory=list)
    deceived: bool = False

    def recorded(self) -> dict[str, set[str]]:
        """Kinds of failure of the victims' tasks, by outcome."""
        kinds: dict[str, set[str]] = {}
        for task in self.tasks:
            if task["user"] in VICTIMS and task["outcome"] not in ("ok", "skipped"):
                kinds.setdefault(task["outcome"], set()).add(task["error"])
        return kinds

    def told(self, event: str) -> list[dict[str, Any]]:
        """Return the events of this kind."""
        return [line for line in map(json.loads, self.events.splitlines()) if line["event"] == event]

    def cell(self) -> str:
        """Return the cell of the table: each outcome with its kinds."""
        kinds = self.recorded()
        cells = (f"{name}: {', '.join(sorted(filter(None, kinds[name])))}".rstrip(": ") for name in sorted(kinds))
        deceived = ["accepted, but not taken"] if self.deceived and self.accepted - self.took else []
        return "; ".join([*cells, *deceived]).replace("|", "\\|") or "nothing"

    def problems(self, fault: Fault | None) -> list[str]:
        found = list(self.noise)
        found += [f"{secret!r} is in the events" for secret in SECRETS if secret in self.events]
        told = self.told("failure")
        kept = {each["kind"] for each in told if each["lines"]}
        refused = {each["kind"] for each in told if each["outcome"] == "refused"}
        found += [f"no lines of {kind}" for kind in sorted(refused - kept)]
        if self.ended != "completed":
            found.append(f"the run ended {self.ended!r}")
        if fault is not None and not self.struck:
            found.append("the fault never struck")
        found += [f"failure of the generator itself: {kind}" for kind in self.own_faults]
        if self.users_on != USERS:
            found.append(f"{self.users_on} of {USERS} users had a session at the end of the day")
        for task in self.tasks:
            outcome = task["outcome"]
            if outcome not in ("ok", "refused", "lost", "timeout", "unfinished", "skipped"):
                found.append(f"{task['task']} of user {task['user']}: {outcome} {task['error']}")
            elif task["user"] not in VICTIMS and outcome != "ok":
                found.append(f"bystander {task['user']}: {task['task']} {outcome} {task['error']}")
        if self.deceived and self.accepted <= self.took:
            found.append("no message was counted as accepted that the server has not taken")
        elif not self.deceived and (fault is None or not fault.lies):
            found += [f"accepted, but the server has not taken it: {key}" for key in sorted(self.accepted - self.took)]
        unaccounted = len(self.accepted - self.seen) - self.undelivered
        if unaccounted:
            found.append(f"{unaccounted} messages were accepted, and are neither seen nor undelivered")
        return [f"{each} ({times} times)" if times > 1 else each for each, times in Counter(found).items()]


class Shared:
    """A driver whose victims reach the server through the fault."""

    name = "fake"  # as the scenarios of `virtual_runs` call it

    def __init__(self, others: Driver, victims: Driver) -> None:
        self._others, self._victims = others, victims
        self.supported_tasks = others.supported_tasks

    def session(self, account: Account, observer: Observer) -> Session:
        return (self._victims if account.number in VICTIMS else self._others).session(account, observer)


class Middle:
    def __init__(
        self, server: Server, fault: Fault | None, imap: bool, loop: Loop, outcome: Outcome | Provisioned
    ) -> None:
        self._server = server
        self._fault = fault
        self._imap = imap
        self._loop = loop
        self._outcome = outcome
        self._running: set[asyncio.Task[None]] = set()
        self.heals_s = 0.0
        self._links: list[Link] = []

    def listening(self) -> dict[int, Any]:
        """Return the functions that take the far end of a connection, by port."""
        return {
            IMAP_PORT: partial(self._accept, ImapLink, None),
            SMTP_PORT: partial(self._accept, SmtpLink, None),
            BAD_IMAP_PORT: partial(self._accept, ImapLink, self._fault if self._imap else None),
            BAD_SMTP_PORT: partial(self._accept, SmtpLink, None if self._imap else self._fault),
        }

    def _accept(self, kind: type[Link], fault: Fault | None, near: socket.socket, client: Client) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        link = kind(client, ours, fault, self._sick, server_tls())
        serves = self._server.imap if kind is ImapLink else self._server.smtp
        self._links.append(link)
        for serving in (serves(theirs), link.run(near)):
            task = self._loop.create_task(serving)
            self._running.add(task)
            task.add_done_callback(self._done)

    def _sick(self) -> bool:
        if self._fault is None or self._struck() >= self._fault.most:
            return False
        return self._loop.time() < self.heals_s or not self._fault.heals

    def _struck(self) -> int:
        return sum(link.struck for link in self._links)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._outcome.noise.append(f"the middle itself: {error!r}")

    async def close(self) -> None:
        self._outcome.struck = self._struck()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)


def _directory() -> Path:
    """Return a new directory, which is removed with the process, and by the keeper of a killed test run."""
    directory = Path(tempfile.mkdtemp(prefix="loadsim-hostile-", dir=os.environ.get(keeper.PLACE)))
    register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@cache
def tls_files() -> tuple[Path, Any]:
    return certificate(_directory(), f"IP:{HOST}")


def server_tls() -> Any:
    return tls_files()[1]


def play(
    fault: Fault | None,
    driver: str,
    submission: str = "sequential",
    *,
    imap: bool = True,
    checks: StateChecks | None = None,
    seed: int = SEED,
) -> Outcome:
    """Run a day with this fault between the victims and IMAP (or else SMTP)."""
    outcome = Outcome(fault.name if fault else "none")
    outcome.deceived = fault is not None and submission in fault.deceives
    scenario = _scenario(seed)
    workload = Workload(scenario)
    accounts = [scenario.account(number) for number in range(1, USERS + 1)]
    tls = "starttls" if fault is not None and fault.tls else "none"
    connection = fault.connection if fault is not None else "kept"
    ca_file = str(tls_files()[0])

    def services(imap_port: int, smtp_port: int, imap_tls: str, smtp_tls: str) -> Services:
        own = Endpoint(HOST, imap_port, tls=imap_tls, ca_file=ca_file, sources=(HOST,))
        smtp = replace(own, port=smtp_port, tls=smtp_tls, connection=connection)
        return Services(own, smtp, LIMIT_S, submission, state_checks=checks)

    # One run: the engine's victims go through the middle, the others go to the server.
    async def main(loop: Loop) -> None:
        server = await serve(accounts, workload.own_folders(1))
        middle = Middle(server, fault, imap, loop, outcome)
        others = open_driver(driver, services(IMAP_PORT, SMTP_PORT, "none", "none"))
        bad = services(BAD_IMAP_PORT, BAD_SMTP_PORT, tls if imap else "none", "none" if imap else tls)
        log = TimingLogWriter(place / "run.tlog", HEADER, loop.now_ns())
        tape = Tape(log)
        drivers = {"fake": Shared(others, open_driver(driver, bad))}
        load = EngineLoad(workload, range(1, USERS + 1), drivers, contents(), "run-1")
        engine = Engine(load, EngineRecords(tape, Events(said)), EngineOptions(loop, owns_process=False))
        middle.heals_s = loop.time() + HEALED_S
        with network(middle.listening()):
            try:
                await engine.run()
            finally:
                # Collect what was recorded, also by a run that failed.
                await middle.close()
                outcome.ended = str(tape.told.get("ended", "without an end"))
                outcome.undelivered = int(tape.told.get("undelivered", -1))
                outcome.own_faults = tape.told.get("own_faults", {})
                outcome.users_on = USERS - int(tape.told.get("lost_users", USERS))
                outcome.tasks = tape.tasks
                outcome.accepted = {
                    (mail["message"], mail["user"]) for mail in tape.mails if mail["event"] == "accepted"
                }
                outcome.seen = {
                    (mail["message"], mail["user"]) for mail in tape.mails if mail["event"] in ("seen", "found")
                }
                outcome.took = server.delivery.took
                outcome.events = said.getvalue()
                log.close()

    # Make the run, and compare its log with what was recorded.
    said = io.StringIO()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(_guarded(outcome))
        try:
            _, complaints = run(main)
            outcome.noise += complaints
        except (Exception, Stuck) as error:  # noqa: BLE001 - any of them is what we look for
            outcome.noise.append(f"the engine was lost: {_leaves(error)}")
        else:
            recorded = read_log(place / "run.tlog")
            if len(recorded.tasks) < len(outcome.tasks):
                outcome.noise.append(f"{len(recorded.tasks)} of {len(outcome.tasks)} tasks are in the log")
    return outcome


@dataclass
class Provisioned:
    """The ends of `initialise` and `clean` through a fault: "done", or the one line of their error."""

    initialised: str = ""
    cleaned: str = ""
    memory_mib: int = 0
    struck: int = 0
    noise: list[str] = field(default_factory=list)

    ended = "completed"

    def cell(self) -> str:
        ends = {"init": self.initialised, "clean": self.cleaned}
        return ", ".join(f"{name}: {'done' if end == DONE else 'error'}" for name, end in ends.items())

    def problems(self, fault: Fault) -> list[str]:
        found = list(self.noise)
        if not self.struck:
            found.append("the fault never struck")
        for line in (self.initialised, self.cleaned):
            if not line.isprintable() or len(line) > 700 or PASSWORD in line:
                found.append(f"not one clear line: {line[:200]!r}")
        return found


def provision(fault: Fault) -> Provisioned:
    """Initialise two mailboxes and clean them, each through the fault, then again without it.

    A human's message in each mailbox has to be there at the end, and nothing of loadsim's.
    """
    found = Provisioned()
    scenario = _provisioned()
    workload = Workload(scenario)
    accounts = [scenario.account(number) for number in (1, 2)]
    own = Endpoint(HOST, IMAP_PORT, tls="none", ca_file=str(tls_files()[0]), sources=(HOST,))
    bad = replace(own, port=BAD_IMAP_PORT, tls="starttls" if fault.tls else "none")

    # The end of one command: done, or its error.
    async def through(endpoint: Endpoint, what: Callable[[Services], Coroutine[Any, Any, Any]]) -> str:
        try:
            async with asyncio.timeout(VISIT_LIMIT_S):
                await what(Services(endpoint, endpoint, LIMIT_S))
        except ConfigError as error:
            return str(error)
        except TimeoutError:
            found.noise.append(f"{what.__name__}: no end after {VISIT_LIMIT_S:.0f} s")
            return "no end"
        except Exception as error:  # noqa: BLE001 - any of them is what we look for
            found.noise.append(f"{what.__name__}: {_leaves(error)}")
            return "lost"
        return DONE

    async def initialising(services: Services) -> None:
        await initialise(workload, services, "auto", lambda *_: None)

    async def cleaning(services: Services) -> None:
        await clean(scenario, services, False, lambda *_: None)

    # Each command through the fault, then without it; human mail arrives in between.
    async def main(loop: Loop) -> None:
        server = await serve(accounts, ())
        middle = Middle(server, fault, True, loop, found)
        with network(middle.listening()):
            try:
                middle.heals_s = math.inf
                found.initialised = await through(bad, initialising)
                middle.heals_s = 0.0
                if (again := await through(own, initialising)) != DONE:
                    found.noise.append(f"initialised again: {again}")
                for account in accounts:
                    await server.put(account, INBOX, HUMAN)
                middle.heals_s = math.inf
                found.cleaned = await through(bad, cleaning)
                middle.heals_s = 0.0
                if (again := await through(own, cleaning)) != DONE:
                    found.noise.append(f"cleaned again: {again}")
                for account in accounts:
                    left = await server.messages(account)
                    if left != [HUMAN]:
                        found.noise.append(f"{account.login}: {len(left)} messages left, {left.count(HUMAN)} a human's")
            finally:
                await middle.close()

    with _guarded(found):
        try:
            _, complaints = run(main)
            found.noise += complaints
        except (Exception, Stuck) as error:  # noqa: BLE001 - any of them is what we look for
            found.noise.append(f"the command was lost: {_leaves(error)}")
    return found


class Stuck(BaseException):
    """The run has no end."""


@contextmanager
def _guarded(outcome: Outcome | Provisioned) -> Iterator[None]:
    """Break off an endless run, measure the memory, collect all that is printed or logged as an error."""

    def stuck(*_: Any) -> None:
        raise Stuck(f"more than {ENDLESS_S:.0f} s of CPU")

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name.partition(".")[0] not in ("mail", "pymap"):  # the servers' own affair
                outcome.noise.append(f"logged by {record.name}: {record.getMessage()[:300]}")

    # Take over signals, logs and hooks, and restore them behind the run.
    before = signal.signal(signal.SIGPROF, stuck)
    printed = io.StringIO()
    keep = Keep(logging.ERROR)
    logging.getLogger().addHandler(keep)
    base_kib = _forget_peak()
    signal.setitimer(signal.ITIMER_PROF, ENDLESS_S, 2.0)
    unraisable, sys.unraisablehook = (
        sys.unraisablehook,
        lambda it: outcome.noise.append(f"unraisable: {it.exc_value!r}"),
    )
    # Collections look at what the run leaves: all that was there before would take 0.1 s. The engine would unfreeze it.
    gc.freeze()
    try:
        with redirect_stderr(printed), patch.multiple(gc, freeze=_nothing, unfreeze=_nothing):
            yield
            gc.collect()
    finally:
        gc.unfreeze()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        sys.unraisablehook = unraisable
        logging.getLogger().removeHandler(keep)
        outcome.memory_mib = (_peak_kib() - base_kib) // 1024
        if printed.getvalue():
            outcome.noise.append(f"printed: {printed.getvalue()[-300:]}")


def _nothing() -> None:
    pass


def _forget_peak() -> int:
    """Let the kernel measure the peak from now on; what the process has now, in KiB (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_kib()


def _peak_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _leaves(error: BaseException) -> str:
    """Types and texts of all that a group of exceptions holds."""
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(dict.fromkeys(map(_leaves, error.exceptions)))
    return f"{type(error).__name__}: {str(error)[:200]}"


@cache
def _scenario(seed: int) -> Scenario:
    place = _directory()
    accounts = {"user": "user{index}", "password": PASSWORD}
    run, client = {**RUN, "seed": seed}, {"trace": min(VICTIMS)}
    return scenario_of(place, (PROFILE, USERS), run=run, accounts=accounts, initialise="never", client=client)


@cache
def _provisioned() -> Scenario:
    place = _directory()
    topology = [{"profile": str(place / "profile0.yaml"), "users": 2, "protocol": "imap"}]
    return scenario_of(place, (PROFILE, 2), topology=topology, accounts={"user": "user{index}", "password": PASSWORD})
