"""The fuzzer itself: planted faults are found, cases repeat, and each oracle fires."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from loadsim.errors import ConfigError
from loadsim.model.mail_program import SUBMISSIONS
from loadsim.protocols.aioimaplib import open_driver as open_library
from loadsim.protocols.imap import open_driver as open_own
from loadsim.protocols.imap.wire import ImapWire
from loadsim.protocols.smtp.wire import SmtpWire

from . import control_targets, file_targets, mail_targets, mapi_targets
from .all_targets import TARGETS
from .mail_targets import Different, whole_and_cut
from .mutate import mutated
from .oracle import judge
from .target import Target, case
from .visit_targets import sending, sendings, visiting
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


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_targets_pass_their_first_cases(target: Target) -> None:
    """And their cases differ."""
    cases = [case(target, 1, number) for number in range(20)]
    assert len(set(cases)) > 10
    assert [finding for data in cases if (finding := judge(target, data)) is not None] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TARGETS if name.startswith("smtp-p") or name.startswith("smtp-a")])
def test_only_the_final_dots_reply_accepts_a_message(name: str) -> None:
    """With each answer at each place of a message; each driver has a seventh of the table, and another one."""
    for data in sendings()[list(TARGETS).index(name) % 7 :: 7]:
        TARGETS[name].run(data)


def _target(run_case: object) -> Target:
    return replace(PLANTED, run=run_case, documented=(ConfigError,))  # type: ignore[arg-type]


_HUNDRED = range(100)


def test_an_input_that_takes_many_steps_is_found() -> None:
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
    "mapi-buffer": mapi_targets.BUFFERS,
    "mapi-body": mapi_targets.BODIES,
    "scenario": (file_targets.OWN, *file_targets.SCENARIOS),
    "profile": file_targets.PROFILES,
    "set": file_targets.SETTINGS,
    "criteria": file_targets.CRITERIA,
    "accounts": file_targets.TABLES,
    "manifest": (control_targets.MANIFEST,),
}


@pytest.mark.parametrize("name", SOUND)
def test_the_seeds_of_each_target_are_accepted(name: str) -> None:
    """Cases are made of it: were it refused, no case would come far."""
    for data in SOUND[name]:
        TARGETS[name].run(data)
        if name.endswith("wire") or name == "imap-fetch":
            wire = ImapWire() if name.startswith("imap") else SmtpWire()
            assert list(wire.feed(data)) and not wire.held_bytes


def test_no_call_fails_without_a_hostile_answer() -> None:
    """Without a hostile answer, no call of any driver fails."""
    for open_driver in (open_own, open_library):
        visiting(open_driver, Unforgiven)(b"39")
    for way in SUBMISSIONS:
        for connection in ("kept", "per-message"):
            sending(way, connection, Unforgiven)(b"39")


class Unforgiven(Exception):
    """Nothing raises this."""
