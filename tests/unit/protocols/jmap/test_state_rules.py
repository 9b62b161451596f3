"""Rules that a JMAP server's responses must keep: each broken one is found, and what RFC 8620 allows is not one."""

from __future__ import annotations

from typing import Any

import pytest

from loadsim.model.state_checks import StateChecks
from loadsim.protocols.jmap.calls import Answers, Call, MethodResponse
from loadsim.protocols.jmap.state_rules import LATE_PUSH_S, RULES, JmapUserCheck
from loadsim.protocols.jmap.values import Members


class Conversation:
    """A user's requests and the answers to them; each step is answered before the next unless a test begins both."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.checks = StateChecks(1.0)
        self.check = JmapUserCheck(self.checks, 1, lambda: self.now_s)

    def ask(self, *steps: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
        self.answer(self.begin(*steps))

    def begin(self, *steps: tuple[str, dict[str, Any], dict[str, Any]]) -> tuple[Answers, int]:
        calls = [Call(name, arguments) for name, arguments, _ in steps]
        found = [MethodResponse(at, name, Members(answer, name)) for at, (name, _, answer) in enumerate(steps)]
        return Answers(calls, found), self.check.begin(calls)

    def answer(self, begun: tuple[Answers, int]) -> None:
        self.check.answered(*begun)

    @property
    def broken(self) -> set[str]:
        return {*self.checks.violations}


def got(state: str, *emails: tuple[str, str, str], not_found: Any = ()) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """An Email/get: the state, and each Email with its keywords and mailboxes."""
    found = [
        {"id": its_id, "keywords": dict.fromkeys(words.split(), True), "mailboxIds": dict.fromkeys(boxes.split(), True)}
        for its_id, words, boxes in emails
    ]
    return "Email/get", {}, {"state": state, "list": found, "notFound": list(not_found)}


def changed(since: str, new: str, more: bool = False, **ids: list[str]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "Email/changes", {"sinceState": since}, {"newState": new, "hasMoreChanges": more, **ids}


def flagged(old: str, new: str, email: str = "a", value: Any = True) -> tuple[str, dict[str, Any], dict[str, Any]]:
    update = {email: {"keywords/$seen": value}}
    return "Email/set", {"update": update}, {"oldState": old, "newState": new, "updated": {email: None}}


def destroyed(old: str, new: str, email: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "Email/set", {"destroy": [email]}, {"oldState": old, "newState": new, "destroyed": [email]}


def stored(old: str, new: str, email: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "Email/import", {"emails": {}}, {"oldState": old, "newState": new, "created": {"k": {"id": email}}}


def queried(*ids: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "Email/query", {}, {"ids": list(ids)}


A, A_SEEN, B = ("a", "", "i"), ("a", "$seen", "i"), ("b", "", "i")

BROKEN: list[tuple[str, list[Any]]] = [
    ("state-unchanged", [got("1", A), flagged("1", "1")]),
    ("state-unchanged", [got("1", A), flagged("1", "2"), got("1", A_SEEN)]),
    ("state-unchanged", [stored("1", "1", "c")]),
    ("changes-incomplete", [got("1", A), flagged("1", "2"), changed("1", "2")]),
    ("changes-incomplete", [got("1", A, B), destroyed("1", "2", "b"), changed("1", "2", updated=["b"])]),
    ("changes-incomplete", [got("1"), stored("1", "2", "c"), changed("1", "2")]),
    ("changes-invented", [got("1", A), got("2"), flagged("2", "3"), changed("2", "3", created=["a"])]),
    ("listed-not-found", [(queried("a"), got("1", not_found=["a"]))]),
    ("listed-not-found", [(changed("1", "2", created=["x"]), got("2", not_found=["x"]))]),
]


@pytest.mark.parametrize(("rule", "steps"), BROKEN)
def test_a_broken_rule_is_found(rule: str, steps: list[Any]) -> None:
    talk = Conversation()
    for step in steps:
        talk.ask(*(step if isinstance(step[0], tuple) else [step]))
    assert talk.broken == {rule}
    assert talk.checks.violations[rule].section == RULES[rule]


ALLOWED: list[list[Any]] = [
    # The state changes without the data, as on Cyrus, and what is set already keeps the state, as on James.
    [got("1", A), got("2", A), changed("1", "2")],
    [got("1", A_SEEN), flagged("1", "1"), changed("1", "1")],
    # A change is listed under another kind, in parts, or not any more.
    [got("1", A), flagged("1", "2"), changed("1", "x", more=True), changed("x", "2", updated=["a"])],
    [got("1"), stored("1", "2", "c"), got("2", ("c", "", "i")), destroyed("2", "3", "c"), changed("1", "3")],
    [got("1", A), destroyed("1", "2", "a"), (queried("a"), got("2", not_found=["a"]))],
    # Nothing is known of the state, or of the Email's keywords before.
    [got("1", A), flagged("1", "2"), changed("other", "2")],
    [flagged("1", "2"), changed("1", "2")],
    # A new Email with the id of one that was destroyed: on Cyrus the ids are hashes.
    [got("1", A), destroyed("1", "2", "a"), stored("2", "3", "a"), changed("2", "3", created=["a"])],
]


@pytest.mark.parametrize("steps", ALLOWED)
def test_what_the_rfc_allows_is_no_violation(steps: list[Any]) -> None:
    talk = Conversation()
    for step in steps:
        talk.ask(*(step if isinstance(step[0], tuple) else [step]))
    assert talk.broken == set()


def test_requests_that_overlap_prove_nothing() -> None:
    """Another session's list may be older or newer than a change that is under way."""
    talk = Conversation()
    talk.ask(got("1", A))
    listing, changing = talk.begin(got("1", A_SEEN)), talk.begin(flagged("1", "2"))
    talk.answer(listing)
    talk.answer(changing)
    talk.ask(changed("1", "1"))
    assert talk.broken == set()
    other = Conversation()
    other.ask(got("1", A))
    since, changing = other.begin(changed("1", "1")), other.begin(flagged("1", "2"))
    other.answer(changing)
    other.answer(since)
    assert other.broken == set()


@pytest.mark.parametrize(
    ("state", "later_s", "is_old"),
    [("1", LATE_PUSH_S + 1, True), ("1", 0.0, False), ("2", 100.0, False), ("unknown", 100.0, False)],
)
def test_a_pushed_state_may_overtake_but_not_be_old(state: str, later_s: float, is_old: bool) -> None:
    talk = Conversation()
    talk.ask(got("1", A))
    talk.now_s = later_s
    talk.ask(got("2", A))
    talk.check.pushed(state)
    assert talk.broken == ({"pushed-state-old"} if is_old else set())


def test_an_ignored_condition_is_a_violation() -> None:
    talk = Conversation()
    talk.check.ignored_if_in_state()
    assert talk.broken == {"if-in-state-ignored"}
