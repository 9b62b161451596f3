"""The fuzzer itself: planted faults are found, cases repeat, and each oracle fires."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from random import Random

import pytest
from paths import ROOT, SUPPORT, TESTS

from loadsim.errors import ConfigError
from loadsim.protocols.aioimaplib import open_driver as open_library
from loadsim.protocols.imap import open_driver as open_own
from loadsim.protocols.imap.wire import Wire
from loadsim.protocols.mail_driver import SUBMISSION
from loadsim.protocols.smtp.wire import Wire as SmtpWire

from . import control_targets, file_targets, mail_targets
from . import work as worker
from .all_targets import TARGETS
from .mail_targets import Different, whole_and_cut
from .mutate import mutated
from .oracle import forget_peak, judge
from .target import Target, case
from .virtual import Complaint, Stuck, Transport, play
from .visit_targets import sending, visiting
from .work import run, shrunk

LONG_S = 600.0
"""No run of a test lasts as long: it ends by the number of its cases."""


def _fails_on_brackets(data: bytes) -> None:
    if b"((" in data:
        raise ValueError("planted")


PLANTED = Target("planted", mutated((b"a (b) c",), (b"x", b"(")), _fails_on_brackets, (KeyError,))


def test_a_planted_fault_is_found() -> None:
    (tally,) = run([PLANTED], 1, LONG_S, 2, most=2000).values()
    assert tally.cases == 2000
    ((number, finding, data),) = tally.found.values()
    assert "ValueError" in finding.kind and "planted" in finding.detail
    assert case(PLANTED, 1, number) == data
    assert judge(PLANTED, data) == finding
    assert shrunk(PLANTED, b"xx" * 100 + data, finding.kind) == b"(("


def test_the_command_repeats_a_case() -> None:
    """Cases depend neither on those made before nor on Python's hashes."""
    for target in TARGETS.values():
        for number in range(3):
            case(target, 5, number)
    digests = {name: sha256(case(target, 5, 3)).hexdigest() for name, target in TARGETS.items()}
    script = (
        "import hashlib; from fuzz.all_targets import TARGETS; from fuzz.target import case; "
        "print({name: hashlib.sha256(case(each, 5, 3)).hexdigest() for name, each in TARGETS.items()})"
    )
    target = TARGETS["log-contents"]
    repeats = ["-m", "fuzz", "--target", target.name, "--seed", "5", "--case", "3"]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{SUPPORT}:{ROOT}", "PYTHONHASHSEED": "1"}
    for arguments, printed in (
        (["-c", script], f"{digests}\n"),
        (repeats, f"{target.name}: {len(case(target, 5, 3))} bytes: as documented\n"),
    ):
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, printed), done.stderr


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_targets_pass_their_first_cases(target: Target) -> None:
    """And their cases differ."""
    cases = [case(target, 1, number) for number in range(20)]
    assert len(set(cases)) > 10
    assert [finding for data in cases if (finding := judge(target, data)) is not None] == []


def _target(run_case: object) -> Target:
    return replace(PLANTED, run=run_case, documented=(ConfigError,))  # type: ignore[arg-type]


_HUNDRED = range(100)


def test_many_steps_are_found() -> None:
    """Above what a case of its length may have; they are counted before the case has ended."""
    judged = []

    def call(data: bytes) -> None:
        for _ in range(int(data)):
            sorted(_HUNDRED)
        judged.append(data)

    target = replace(PLANTED, run=call, base_steps=50_000, steps_per_byte=10)
    assert judge(target, b"40000") is None
    found = judge(target, b"60000")
    assert found is not None and found.kind == "slow" and "50,050 steps" in found.detail
    assert judged.count(b"60000") == 1
    assert judge(target, b" " * 2000 + b"60000") is None


def test_a_case_without_end_is_broken_off() -> None:
    """A loop without calls, also below an event loop, which holds up other exceptions."""

    def spin(_: bytes) -> None:
        async def main(_: object) -> None:
            asyncio.get_running_loop().call_soon(_spin)
            await asyncio.sleep(1)

        play(lambda *_: None, main)

    found = judge(_target(spin), b"x", endless_s=0.05)
    assert found is not None and found.kind == "slow" and "found none" in found.detail


def _spin() -> None:
    while True:
        pass


def test_memory_is_found() -> None:
    """A peak counts, also if nothing of it is kept."""
    target = _target(lambda data: bytearray(int(data)).count(1))
    forget_peak()
    found = judge(target, b"%d" % (100 << 20))
    assert found is not None and found.kind == "memory"
    assert judge(target, b"1000") is None


def test_what_is_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no single case takes much."""
    monkeypatch.setattr(worker, "MOST_KEPT_BLOCKS", 10_000)
    kept: list[list[object]] = []
    keeping, leaving = (
        replace(_target(run_case), name=name, make=lambda _: b"x")
        for name, run_case in (
            ("keeping", lambda _: kept.extend([] for _ in range(1000))),
            ("leaving", lambda _: [[] for _ in range(1000)]),
        )
    )
    for target, found in (keeping, ["memory kept"]), (leaving, []):
        (tally,) = run([target], 1, LONG_S, 1, most=40).values()
        assert [finding.kind for _, finding, _ in tally.found.values()] == found


def test_a_process_that_dies_names_its_case() -> None:
    """A crash of the interpreter, or the kernel's choice when memory is short."""

    def die(data: bytes) -> None:
        if data == b"7":
            os.kill(os.getpid(), signal.SIGKILL)

    target = replace(_target(die), make=_numbered)
    (tally,) = run([target], 1, LONG_S, 1, most=100).values()
    ((number, finding, _),) = tally.found.values()
    assert "SIGKILL" in finding.detail
    assert case(target, 1, number) == b"7"


def _numbered(random: Random) -> bytes:
    return b"%d" % random.randrange(20)


def test_documented_errors_are_one_printable_line() -> None:
    """Other texts are findings, as are undocumented errors, and those that no `except Exception` stops."""

    def raising(error: BaseException) -> Target:
        def fail(_: bytes) -> None:
            raise error

        return _target(fail)

    assert judge(raising(ConfigError("one line")), b"") is None
    for text in ("two\nlines", "\x1b[2J", "x" * 3000):
        found = judge(raising(ConfigError(text)), b"")
        assert found is not None and found.kind == "text of ConfigError"
    for error in (ValueError("x"), MemoryError(), SystemExit(2), asyncio.CancelledError()):
        found = judge(raising(error), b"")
        assert found is not None and found.kind.startswith(type(error).__name__)


def test_what_asyncio_would_log_is_raised() -> None:
    """So are tasks that are left, and a wait without an end."""

    async def complaint(_: object) -> None:
        asyncio.get_running_loop().call_soon(_refuse)
        await asyncio.sleep(1)

    async def left(_: object) -> None:
        task = asyncio.create_task(asyncio.sleep(1))
        await asyncio.sleep(0)
        assert not task.done()

    async def stuck(_: object) -> None:
        await asyncio.get_running_loop().create_future()

    for main, expected in ((complaint, Complaint), (left, Complaint), (stuck, Stuck)):
        with pytest.raises(expected):
            play(lambda *_: None, main)  # type: ignore[arg-type]


def _refuse() -> None:
    raise ValueError("planted")


def test_connections_are_functions() -> None:
    """Data arrives piece by piece, writes reach the peer, and time jumps."""
    written: list[bytes] = []

    def peer(transport: Transport, data: bytes) -> None:
        written.append(data)
        if data:
            transport.say(b"a", b"b")
            transport.end()

    async def main(loop: asyncio.AbstractEventLoop) -> tuple[bytes, float]:
        reader, writer = await asyncio.open_connection("mail.test", 1)
        writer.write(b"hello")
        began_s = loop.time()
        await asyncio.sleep(1000)
        return await reader.read(), loop.time() - began_s

    assert play(peer, main) == (b"ab", 1000)
    assert written == [b"", b"hello"]


def test_cuts_that_change_a_meaning_and_many_copies_are_found() -> None:
    """A reader that takes each piece for a line, and one that copies the rest for each byte."""
    with pytest.raises(Different):
        whole_and_cut(lambda: lambda data: [data], b"x" * 5000)
    with pytest.raises(AssertionError, match="bytes copied"):
        whole_and_cut(lambda: lambda data: [len(data[at:]) for at in range(len(data))], b"x" * 5000)


SOUND = {
    "imap-wire": mail_targets.LINES,
    "imap-fetch": mail_targets.FETCHES,
    "smtp-wire": mail_targets.REPLIES,
    "scenario": (file_targets.OWN, *file_targets.SCENARIOS),
    "profile": file_targets.PROFILES,
    "set": file_targets.SETTINGS,
    "criteria": file_targets.CRITERIA,
    "accounts": file_targets.TABLES,
    "manifest": (control_targets.MANIFEST,),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_input_is_sound(name: str) -> None:
    """Cases are made of it: were it refused, no case would come far."""
    for data in SOUND[name]:
        TARGETS[name].run(data)
        if name.endswith("wire") or name == "imap-fetch":
            wire = Wire() if name.startswith("imap") else SmtpWire()
            assert list(wire.feed(data)) and not wire.held_bytes


def test_sound_servers_are_sound() -> None:
    """Without a hostile answer, no call of any driver fails."""
    for open_driver in (open_own, open_library):
        visiting(open_driver, Unforgiven)(b"39")
    for driver in SUBMISSION:
        for connection in ("kept", "per-message"):
            sending(driver, connection, Unforgiven)(b"39")


class Unforgiven(Exception):
    """Nothing raises this."""
