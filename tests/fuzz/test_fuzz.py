"""The fuzzer itself: planted faults are found, cases repeat, and each oracle fires."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from types import SimpleNamespace

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
from .mutate import mutated, odd_document
from .oracle import BrokenOff, judge, watched
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


@pytest.mark.parametrize("processes", [1, 3])
def test_a_planted_fault_is_found(processes: int) -> None:
    """The case is the same when it is repeated, for any number of processes."""
    (tally,) = run([PLANTED], 1, LONG_S, processes, most=2000).values()
    assert tally.cases == 2000
    ((number, finding, data),) = tally.found.values()
    assert "ValueError" in finding.kind and "planted" in finding.detail
    assert case(PLANTED, 1, number) == data
    assert judge(PLANTED, data) == finding
    assert shrunk(PLANTED, b"xx" * 100 + data, finding.kind) == b"(("


def test_the_command_repeats_a_case(tmp_path: Path) -> None:
    """Of a real target, saved and from its number, with another seed of Python's hashes."""
    target = TARGETS["log-contents"]
    saved = tmp_path / "case"
    saved.write_bytes(case(target, 5, 3))
    for seed in "1", "2":
        script = (
            "import hashlib; from fuzz.all_targets import TARGETS; from fuzz.target import case; "
            "print({name: hashlib.sha256(case(each, 5, 3)).hexdigest() for name, each in TARGETS.items()})"
        )
        environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{SUPPORT}:{ROOT}", "PYTHONHASHSEED": seed}
        made = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert made.stdout == f"{_digests()}\n"
        for arguments in (["--seed", "5", "--case", "3"], ["--file", str(saved)]):
            done = subprocess.run(
                [sys.executable, "-m", "fuzz", "--target", target.name, *arguments],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.returncode, done.stdout) == (0, f"log-contents: {saved.stat().st_size} bytes: as documented\n")


def _digests() -> dict[str, str]:
    return {name: sha256(case(target, 5, 3)).hexdigest() for name, target in TARGETS.items()}


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_targets_pass_their_first_cases(target: Target) -> None:
    """And their cases differ."""
    cases = [case(target, 1, number) for number in range(20)]
    assert len(set(cases)) > 10
    with watched([0], longest_s=0):
        assert [finding for data in cases if (finding := judge(target, data)) is not None] == []


def _target(run_case: object) -> Target:
    return replace(PLANTED, run=run_case, documented=(ConfigError,))  # type: ignore[arg-type]


def test_slow_cases_are_found_and_busy_machines_are_not() -> None:
    """A case that is slow each time is a finding; one that is slow once is none."""
    calls = []

    def spin(_: bytes) -> None:
        ends = time.process_time() + 0.2
        while time.process_time() < ends:
            pass

    def spin_once(data: bytes) -> None:
        calls.append(data)
        if len(calls) == 1:
            spin(data)

    slow = judge(_target(spin), b"x")
    assert slow is not None and slow.kind == "slow"
    assert judge(_target(spin_once), b"x") is None
    assert judge(_target(spin), b"x" * 100_000) is None  # 2 us for each byte


def test_a_case_without_end_is_broken_off() -> None:
    """Also below an event loop, which holds up other exceptions."""

    def spin(_: bytes) -> None:
        async def main(_: object) -> None:
            asyncio.get_running_loop().call_soon(_spin)
            await asyncio.sleep(1)

        play(lambda *_: None, main)

    with watched([0], longest_s=0):
        found = judge(_target(spin), b"x")
    assert found is not None and found.kind == "slow"
    assert issubclass(BrokenOff, KeyboardInterrupt)


def _spin() -> None:
    while True:
        pass


def test_memory_is_found() -> None:
    """A peak counts, also if nothing of it is kept."""

    def grow(data: bytes) -> None:
        bytearray(int(data)).count(1)

    target = replace(_target(grow), base_ms=1e6)

    (tally,) = run([replace(target, make=lambda _: b"%d" % (100 << 20))], 1, LONG_S, 1, most=2).values()
    assert [finding.kind for _, finding, _ in tally.found.values()] == ["memory"]
    (tally,) = run([replace(target, make=lambda _: b"1000")], 1, LONG_S, 1, most=2).values()
    assert not tally.found


def test_what_is_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no single case takes much."""
    monkeypatch.setattr(worker, "MOST_GROWTH_MIB", 20)
    kept: list[bytes] = []
    target = replace(_target(lambda _: kept.append(b"x" * (8 << 20))), make=lambda _: b"x")
    (tally,) = run([target], 1, LONG_S, 1, most=40).values()
    assert [finding.kind for _, finding, _ in tally.found.values()] == ["memory kept"]


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


def test_cuts_that_change_a_meaning_are_found() -> None:
    """A reader that takes each piece for a line."""
    wire = SimpleNamespace(feed=lambda data: [data])
    with pytest.raises(Different):
        whole_and_cut(lambda: wire.feed, b"x" * 5000)


def test_documents_are_not_shared() -> None:
    """Odd values are copies: a case does not depend on the cases before it."""
    document = {"a": [1, {"b": "c"}], "d": {}}
    before = [odd_document(Random(number), document) for number in range(300)]
    assert repr([odd_document(Random(number), document) for number in range(300)]) == repr(before)
    assert document == {"a": [1, {"b": "c"}], "d": {}}


def test_the_page_names_every_target() -> None:
    """In docs/explanation/reliability.md, and no other."""
    page = (ROOT / "docs" / "explanation" / "reliability.md").read_text()
    rows = page.partition("| target | what is read |")[2].partition("\n\n")[0].splitlines()
    names = [name for row in rows[2:] if row for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert sorted(names) == sorted(TARGETS)


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
