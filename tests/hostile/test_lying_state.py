"""Servers that contradict themselves, in virtual time: state checks name the rule, and healthy runs break none."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from loadsim.model.state_checks import StateChecks

from .acts import Act, Fault, Strike, ahead, closes, edits
from .cases import VICTIMS, play
from .links import Link

_SECTION = re.compile(rb"(BODY\[1\] )\{(\d+)\}\r\n")
_ANSWERED = "FETCH|STORE|MOVE|APPEND|NOOP|SELECT"


def _another_body() -> Act:
    """Give each message the text of the first one that was read."""
    first: list[bytes] = []

    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        found = _SECTION.search(answer)
        if found is not None:
            text = answer[found.end() : found.end() + int(found[2])]
            first.append(text)
            rest = answer[found.end() + len(text) :]
            answer = answer[: found.start()] + found[1] + b"{%d}\r\n" % len(first[0]) + first[0] + rest
        await link.change(b"" if found and text != first[0] else answer, answer)

    return act


def _without_data() -> Act:
    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        await link.change(answer, answer[answer.rindex(tag + b" OK") :] if tag + b" OK" in answer else answer)

    return act


def _one_more() -> Act:
    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        await link.change(answer, answer.replace(tag + b" OK", b"* 1 EXPUNGE\r\n" + tag + b" OK", 1))

    return act


_gone: dict[Link, bytes] = {}


def _notes_moved() -> Act:
    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        if found := re.search(rb"COPYUID \d+ (\d+) ", answer):
            _gone[link] = found[1]
        await link.change(answer, answer)

    return act


def _reuses() -> Act:
    """Give the newest message in a list the UID of one that was moved away."""

    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        newest = [*re.finditer(rb"UID (\d+)(?= .*ENVELOPE)", answer)][-1:]
        changed = answer
        if newest and link in _gone:
            changed = answer[: newest[0].start(1)] + _gone[link] + answer[newest[0].end(1) :]
        await link.change(answer, changed)

    return act


_held: dict[Link, bytes] = defaultdict(bytes)


def _holds() -> Act:
    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        _held[link] += answer
        await link.send(b"")

    return act


def _releases() -> Act:
    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        await link.change(answer, _held.pop(link, b"") + answer)

    return act


LIARS = [
    ("size-wrong", [Strike("FETCH", _another_body())]),
    ("fetch-without-data", [Strike("FETCH", _without_data())]),
    ("expunge-not-asked", [Strike("MOVE|EXPUNGE", _one_more())]),
    ("uid-reused", [Strike("MOVE", _notes_moved()), Strike("FETCH", _reuses())]),
    ("uidvalidity-changed", [Strike("SELECT", edits(rb"(?<=UIDVALIDITY )\d+", b"4711"))]),
    ("idle-silent", [Strike("IDLING", _holds()), Strike(_ANSWERED, _releases())]),
    ("flags-lost", [Strike("MOVE", closes()), Strike("FETCH", edits(rb"\\Seen", b""))]),  # a log-on lists again
    ("exists-shrinks", [Strike("FETCH", ahead(b"* 0 EXISTS\r\n"))]),
]


def _played(fault: Fault | None, seed: int = 23) -> StateChecks:
    checks = StateChecks(1.0) if fault is None else StateChecks(1.0, idle_s=2, silent=1)
    outcome = play(fault, "imap", checks=checks, seed=seed)
    assert not outcome.own_faults
    assert fault is None or outcome.struck
    return checks


@pytest.mark.parametrize(("rule", "strikes"), LIARS, ids=[rule for rule, _ in LIARS])
def test_a_server_that_breaks_a_rule_is_named_by_that_rule(rule: str, strikes: list[Strike]) -> None:
    """Only for its own users. What follows from the lie may break other rules."""
    found = _played(Fault("liar", "lies", tuple(strikes), heals=rule == "uidvalidity-changed")).violations
    assert next(iter(found), None) == rule
    assert {one.user for one in found.values()} <= VICTIMS


@pytest.mark.parametrize("seed", [23, 24])
def test_a_healthy_server_breaks_no_rule(seed: int) -> None:
    checks = _played(None, seed)
    assert checks.document == {"users": 4, "violations": []}


@pytest.mark.nightly(part="drivers")
def test_a_healthy_server_breaks_no_rule_in_200_runs() -> None:
    found = {seed: checks.violations for seed in range(200) if (checks := _played(None, seed)).violations}
    assert found == {}
