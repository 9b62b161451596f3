"""State checks: each rule names the server that breaks it, and no legal dialogue is a violation."""

# ruff: noqa: E501 - dialogues are easier to read with a command and its answer to a line
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timing_samples import DELIVERED, ENDED, LOGGED_ON, done, sample_log

from loadsim.analysis.summary import summarise
from loadsim.campaign.runs import CampaignRun
from loadsim.findings.catalogue import Code
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.model.state_checks import StateChecks, Violation
from loadsim.protocols.imap.grammar import parse
from loadsim.protocols.imap.known_state import MOST_MESSAGES, Known
from loadsim.protocols.imap.state_rules import RULES, SessionCheck, UserCheck
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.check_state import state_of
from loadsim.provisioning.sessions import NullObserver

OPEN = ["C: SELECT INBOX", "S: * 3 EXISTS", "S: * OK [UIDVALIDITY 7] .", "S: * OK [UIDNEXT 10] .", "S: OK done"]
SENT = ['C: SELECT "Sent Items"', "S: * 1 EXISTS", "S: * OK [UIDVALIDITY 8] .", "S: * OK [UIDNEXT 5] .", "S: OK done"]
SENT6 = [line.replace("NEXT 5", "NEXT 6") for line in SENT]
LIST = ["C: FETCH 1:* (UID FLAGS)", *(f"S: * {n} FETCH (UID {n + 1} FLAGS (\\Seen))" for n in (1, 2, 3)), "S: OK done"]
KEEPS = [*OPEN[:-1], r"S: * OK [PERMANENTFLAGS (\Seen \Deleted \*)] .", "S: OK done"]


class Dialogue:
    """Sessions of a user, by the letters before their lines; `C` and `S` are the client and server of session A."""

    def __init__(self, checks: StateChecks | None = None) -> None:
        self.checks = checks or StateChecks(1.0, idle_s=30, silent=3)
        self.now_s = 0.0
        self._waiting: list[Callable[[], None]] = []
        self.known = Known(self.checks, 1)
        self._user = UserCheck(self.known, self._waiting.append, lambda: self.now_s)
        self._sessions: dict[str, SessionCheck] = {}
        self._tags: dict[str, list[str]] = {}
        self._last = 0

    def play(self, lines: Sequence[str]) -> list[str]:
        """Return the rules that are broken; "+30" lets seconds pass."""
        for line in lines:
            if line.startswith("+"):
                self.now_s += float(line)
                continue
            who, text = re.fullmatch(r"([A-Z]{1,2}): (.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
            name, is_client = who.rstrip("CS") or "A", who.endswith("C")
            session = self._sessions.setdefault(name, self._user.session())
            tags = self._tags.setdefault(name, [])
            if is_client and text == "DONE":
                session(b"DONE")
            elif is_client:
                self._last += 1
                tags.append(f"t{self._last}")
                session(f"{tags[-1]} {text}\r\n".encode())
            else:
                raw = text if text.startswith("*") else f"{tags.pop(0)} {text}"
                response = parse(raw.encode())
                assert response is not None
                session(response)
        while self._waiting:
            self._waiting.pop(0)()
        self._user.run()
        return list(self.checks.violations)


BROKEN = [
    ("exists-shrinks", [*OPEN, "C: NOOP", "S: * 2 EXISTS", "S: OK"]),
    ("number-out-of-range", [*OPEN, "C: NOOP", "S: * 4 EXPUNGE", "S: OK"]),
    ("number-out-of-range", [*OPEN, "C: NOOP", "S: * 4 FETCH (FLAGS ())", "S: OK"]),
    ("expunge-out-of-turn", [*OPEN, *LIST, r"C: UID STORE 2 +FLAGS.SILENT (\Deleted)", "S: OK", "S: * 1 EXPUNGE"]),
    ("expunge-not-asked", [*OPEN, *LIST, "C: UID EXPUNGE 2", "S: * 1 EXPUNGE", "S: * 1 EXPUNGE", "S: OK"]),
    ("expunge-not-asked", [*OPEN, "C: UID MOVE 2 Trash", "S: * 1 EXPUNGE", "S: * 1 EXPUNGE", "S: OK"]),
    ("uid-changed", [*OPEN, *LIST, "C: UID FETCH 2 (FLAGS)", "S: * 2 FETCH (UID 2 FLAGS ())", "S: OK"]),
    ("uid-reused", [*OPEN, *LIST, "C: UID MOVE 4 Trash", "S: * 3 EXPUNGE", "S: * 3 EXISTS", "S: OK",
                    "C: UID FETCH 4:* (FLAGS)", "S: * 3 FETCH (UID 4 FLAGS ())", "S: OK"]),
    ("uid-reused", [*OPEN, *LIST, "C: UID EXPUNGE 2", "S: * 1 EXPUNGE", "S: OK", *OPEN, *LIST]),
    ("uid-reused", [*OPEN, *LIST, "C: UID MOVE 2 Trash", "S: * 1 EXPUNGE", "S: OK", "BC: SELECT INBOX",
                    *(line.replace("S:", "BS:") for line in OPEN[1:]), "BC: UID FETCH 2 (FLAGS)",
                    "BS: * 1 FETCH (UID 2 FLAGS ())", "BS: OK"]),
    ("uid-not-ascending", [*OPEN, "C: FETCH 1:* (UID)", "S: * 1 FETCH (UID 3)", "S: * 2 FETCH (UID 2)"]),
    ("message-changed", [*OPEN, "C: UID FETCH 2 (ENVELOPE)",
                         'S: * 1 FETCH (UID 2 ENVELOPE (NIL NIL NIL NIL NIL NIL NIL NIL NIL "<a@b>"))', "S: OK",
                         "BC: SELECT inbox", *(line.replace("S:", "BS:") for line in OPEN[1:]), "BC: UID FETCH 2 (ENVELOPE)",
                         'BS: * 1 FETCH (UID 2 ENVELOPE (NIL NIL NIL NIL NIL NIL NIL NIL NIL "<c@b>"))', "BS: OK"]),
    ("message-changed", [*OPEN, *["C: UID FETCH 2 (BODY.PEEK[1])", "S: * 1 FETCH (UID 2 BODY[1] {2}\r\nab)", "S: OK",
                                  "C: UID FETCH 2 (BODY.PEEK[1])", "S: * 1 FETCH (UID 2 BODY[1] {2}\r\nac)", "S: OK"]]),
    ("size-wrong", [*OPEN, "C: UID FETCH 2 (RFC822.SIZE BODY.PEEK[])", "S: * 1 FETCH (UID 2 RFC822.SIZE 3 BODY[] {2}\r\nab)"]),
    ("size-wrong", [*OPEN, "C: UID FETCH 2 (BODYSTRUCTURE)",
                    'S: * 1 FETCH (UID 2 BODYSTRUCTURE ("text" "plain" NIL NIL NIL "7bit" 9 1))', "S: OK",
                    "C: UID FETCH 2 (BODY.PEEK[1])", "S: * 1 FETCH (UID 2 BODY[1] {2}\r\nab)", "S: OK"]),
    ("fetch-without-data", [*OPEN, "C: FETCH 2:* (UID FLAGS)", "S: * 2 FETCH (UID 3 FLAGS ())", "S: OK"]),
    ("fetch-without-data", [*OPEN, *LIST, "C: UID FETCH 3 (BODYSTRUCTURE)", "S: OK"]),
    ("fetch-without-data", [*OPEN, *LIST, "C: UID FETCH 3 (BODY.PEEK[1])", "S: * 2 FETCH (UID 3 FLAGS ())", "S: OK"]),
    ("message-not-arrived", [*OPEN, *LIST, 'C: UID MOVE 2 "Sent Items"', "S: * OK [COPYUID 8 2 5] .", "S: * 1 EXPUNGE",
                             "S: OK", *SENT6, "C: FETCH 1:* (UID FLAGS)", "S: * 1 FETCH (UID 4 FLAGS ())", "S: OK"]),
    ("message-not-arrived", ['C: APPEND "Sent Items" (\\Seen) {3}', "S: OK [APPENDUID 8 5] .", *SENT6,
                             "C: UID FETCH 1:* (FLAGS)", "S: * 1 FETCH (UID 4 FLAGS ())", "S: OK"]),
    ("message-not-arrived", ['C: APPEND "Sent Items" (\\Seen) {3}', "S: OK [APPENDUID 8 5] .", SENT6[0], "S: * 0 EXISTS",
                             *SENT6[2:]]),
    ("moved-still-there", [*OPEN, *LIST, "C: UID MOVE 2 Trash", "S: OK [COPYUID 9 2 1] .", *OPEN, *LIST]),
    ("flags-lost", [*KEEPS, *LIST, r"C: UID STORE 3 +FLAGS.SILENT (\Seen)", "S: OK",
                    "C: UID FETCH 3 (FLAGS)", "S: * 2 FETCH (UID 3 FLAGS ())", "S: OK"]),
    ("flags-lost", [*KEEPS, *LIST, r"BC: SELECT INBOX", *(line.replace("S:", "BS:") for line in KEEPS[1:]),
                    r"C: UID STORE 3 +FLAGS.SILENT (\Seen)", "S: OK", *KEEPS,
                    "C: FETCH 2 (UID FLAGS)", r"S: * 2 FETCH (UID 3 FLAGS (\Answered))", "S: OK"]),
    ("idle-silent", [*OPEN, *[line for n in (4, 5, 6) for line in (
        "C: IDLE", "+31", "C: DONE", "S: OK", "C: NOOP", f"S: * {n} EXISTS", "S: OK")]]),
    ("uidvalidity-changed", [*OPEN, "C: NOOP", "S: OK", *[line.replace("VALIDITY 7", "VALIDITY 8") for line in OPEN]]),
    ("uidvalidity-changed", [*SENT, 'C: APPEND "Sent Items" {3}', "S: OK [APPENDUID 9 5] ."]),
    ("uidvalidity-changed", ['C: APPEND "Sent Items" {3}', "S: OK [APPENDUID 9 3] .", *SENT]),
    ("uidnext-shrinks", [*OPEN, *[line.replace("UIDNEXT 10", "UIDNEXT 9") for line in OPEN]]),
    ("uidnext-shrinks", [*OPEN, "C: NOOP", "S: * 4 EXISTS", "S: OK", "C: FETCH 4 (UID)", "S: * 4 FETCH (UID 12)", "S: OK",
                         *OPEN[:1], "S: * 4 EXISTS", *OPEN[2:]]),
    ("uidnext-shrinks", [*SENT, 'C: APPEND "Sent Items" {3}', "S: OK [APPENDUID 8 4] ."]),
]  # fmt: skip
"""Rules, and dialogues that break them and no other."""


@pytest.mark.parametrize(("rule", "lines"), BROKEN)
def test_a_server_that_breaks_a_rule_is_named(rule: str, lines: Sequence[str]) -> None:
    assert Dialogue().play(lines) == [rule]


def test_each_rule_is_broken_by_a_dialogue() -> None:
    assert {rule for rule, _ in BROKEN} == {rule.name for rule in RULES}


B_OPEN = [line.replace("S:", "BS:").replace("C:", "BC:") for line in KEEPS]
LEGAL = {
    "another session expunges what it has asked to remove": [
        *OPEN, *LIST, *B_OPEN, "C: UID MOVE 3 Trash", "S: * OK [COPYUID 9 3 1] .", "S: * 2 EXPUNGE", "S: OK",
        "BC: FETCH 1:* (UID FLAGS)", "BS: * 1 FETCH (UID 2 FLAGS ())", "BS: * 2 FETCH (UID 3 FLAGS ())",
        "BS: * 3 FETCH (UID 4 FLAGS ())", "BS: OK", "BC: NOOP", "BS: * 2 EXPUNGE", "BS: OK"],
    "it shows nothing of a message that is gone, and has not been expunged here": [
        *OPEN, *LIST, *B_OPEN, "C: UID MOVE 3 Trash", "S: * 2 EXPUNGE", "S: OK",
        "BC: FETCH 1:* (UID FLAGS)", "BS: * 1 FETCH (UID 2 FLAGS ())", "BS: * 3 FETCH (UID 4 FLAGS ())", "BS: OK"],
    "an open mailbox shows flags as they were": [
        *KEEPS, *LIST, *B_OPEN, r"C: UID STORE 3 +FLAGS.SILENT (\Seen)", "S: OK",
        "BC: UID FETCH 3 (FLAGS)", "BS: * 2 FETCH (UID 3 FLAGS ())", "BS: OK"],
    "another session removes a flag": [
        *KEEPS, *LIST, *B_OPEN, r"C: UID STORE 3 +FLAGS.SILENT (\Seen)", "S: OK", r"BC: UID STORE 3 -FLAGS.SILENT (\Seen)",
        "C: UID FETCH 3 (FLAGS)", "S: * 2 FETCH (UID 3 FLAGS ())", "S: OK"],
    "a keyword that is not kept": [
        *KEEPS, *LIST, r"C: UID STORE 3 +FLAGS.SILENT ($Forwarded)", "S: OK",
        "C: UID FETCH 3 (FLAGS)", "S: * 2 FETCH (UID 3 FLAGS ())", "S: OK"],
    "flags in an answer in two pieces": [
        *KEEPS, *LIST, r"C: UID STORE 3 +FLAGS.SILENT (\Seen)", "S: OK", "C: UID FETCH 3 (FLAGS)",
        "S: * 2 FETCH (FLAGS ())", r"S: * 2 FETCH (UID 3 FLAGS (\Seen))", "S: OK"],
    "a STORE that fails": [
        *KEEPS, *LIST, r"C: UID STORE 3 +FLAGS.SILENT (\Seen)", "S: NO",
        "C: UID FETCH 3 (FLAGS)", "S: * 2 FETCH (UID 3 FLAGS ())", "S: OK"],
    "a MOVE that fails": [*OPEN, *LIST, "C: UID MOVE 2 Trash", "S: NO", *OPEN, *LIST],
    "a message marked as deleted by others": [
        *OPEN, "C: FETCH 1:* (UID FLAGS)", *(rf"S: * {n} FETCH (UID {n + 1} FLAGS (\Deleted))" for n in (1, 2, 3)), "S: OK",
        "C: NOOP", "S: * 2 EXPUNGE", "S: OK"],
    "mail behind the largest UID": [*OPEN, "C: UID FETCH 4294967296:* (UID FLAGS)", "S: OK"],
    "UIDs that are not there": [*OPEN, *LIST, "C: UID FETCH 40 (FLAGS)", "S: OK"],
    "mail and expunges while an answer arrives": [
        *OPEN, *LIST, "BC: NOOP", "BS: OK", "C: UID EXPUNGE 2", "S: * 1 EXPUNGE", "S: OK", "C: UID FETCH 4:* (FLAGS)",
        "S: * 3 EXISTS", "S: * 2 FETCH (UID 4 FLAGS ())", "S: * 3 FETCH (UID 11 FLAGS ())", "S: OK"],
    "mail that came between EXISTS and UIDNEXT of a SELECT": [
        *OPEN, "C: NOOP", "S: * 4 EXISTS", "S: OK", "C: UID FETCH 9:* (UID)", "S: * 4 FETCH (UID 9)", "S: OK"],
    "EXISTS behind the data of a message": [
        *OPEN, "C: UID FETCH 10:* (UID FLAGS)", "S: * 4 FETCH (FLAGS () UID 10)", "S: * 4 EXISTS", "S: OK"],
    "mail that comes while an answer arrives, and is announced with its flags": [
        *OPEN, *LIST, "C: UID FETCH 4:* (BODY.PEEK[1])", "S: * 3 FETCH (UID 4 BODY[1] {2}\r\nab)", "S: * 4 EXISTS",
        "S: * 4 FETCH (FLAGS () UID 10)", "S: OK"],
    "a mailbox that is deleted and made again": [
        *SENT, 'C: DELETE "Sent Items"', "S: OK", 'C: CREATE "Sent Items"', "S: OK",
        *[line.replace("VALIDITY 8", "VALIDITY 9").replace("NEXT 5", "NEXT 1") for line in SENT]],
    "a CREATE that is refused, of an open mailbox": [
        *OPEN, *LIST, "BC: CREATE INBOX", "BS: NO", *B_OPEN, "C: UID EXPUNGE 2", "S: * 1 EXPUNGE", "S: OK",
        "BC: NOOP", "BS: * 1 EXPUNGE", "BS: OK"],
    "COPYUID while another folder is opened": [
        *SENT, *OPEN, *LIST, "C: UID MOVE 2 Trash", 'C: SELECT "Sent Items"', "S: * OK [COPYUID 9 2 5] .",
        "S: * 1 EXPUNGE", "S: OK", *SENT[1:]],
    "an expunge while another session opens the mailbox": [
        *OPEN, *LIST, B_OPEN[0], "C: UID EXPUNGE 2", "S: * 1 EXPUNGE", "S: OK", *B_OPEN[1:], "BC: UID FETCH 2 (FLAGS)",
        "BS: * 1 FETCH (UID 2 FLAGS ())", "BS: OK"],
    "messages that are removed as soon as they arrive": [
        *OPEN, *LIST, 'C: UID COPY 2 "Sent Items"', "S: OK [COPYUID 8 2 5] .", *SENT6, "C: UID EXPUNGE 5", "S: * 1 EXPUNGE",
        "S: OK", SENT6[0], "S: * 0 EXISTS", *SENT6[2:]],
    "data between two folders": [
        *OPEN, *LIST, "C: UID FETCH 1:* (FLAGS)", 'C: SELECT "Sent Items"', "S: * 1 FETCH (UID 2 FLAGS ())", "S: OK",
        "S: * 1 EXISTS", "S: * OK [UIDVALIDITY 8] .", "S: OK", "C: NOOP", "S: * 1 EXPUNGE", "S: OK"],
    "mail that comes right behind IDLE to a user who sends": [
        *OPEN, *[line for n in (4, 5, 6, 7) for line in (
            "C: IDLE", "+31", "C: DONE", f"S: * {n} EXISTS", "S: OK", "C: APPEND Sent {3}", "S: OK")]],
    "mail that comes while an IDLE is short": [
        *OPEN, *[line for n in (4, 5, 6, 7) for line in (
            "C: IDLE", "+3", "C: DONE", "S: OK", "C: NOOP", f"S: * {n} EXISTS", "S: OK")]],
    "an IDLE that announces": [
        *OPEN, "C: IDLE", "S: * 4 EXISTS", "C: DONE", "S: OK", *[line for n in (5, 6, 7) for line in (
            "C: IDLE", "+31", "C: DONE", "S: OK", "C: NOOP", f"S: * {n} EXISTS", "S: OK")]],
    "a message that came and went": [
        'C: APPEND "Sent Items" {3}', "S: OK [APPENDUID 8 4] .", *SENT, r"C: UID STORE 4 +FLAGS.SILENT (\Deleted)", "S: OK",
        "C: UID EXPUNGE 4", "S: * 1 EXPUNGE", "S: OK", *SENT[:1], "S: * 0 EXISTS", *SENT[2:], "C: UID FETCH 1:* (FLAGS)", "S: OK"],
}  # fmt: skip


@pytest.mark.parametrize("lines", LEGAL.values(), ids=LEGAL.keys())
def test_a_legal_dialogue_is_no_violation(lines: Sequence[str]) -> None:
    assert Dialogue().play(lines) == []


DOUBLE = [*OPEN, *LIST, "C: UID EXPUNGE 4", "S: * 3 EXPUNGE", "S: * 3 EXPUNGE", "S: OK"]
"""GreenMail 2.1 sends EXPUNGE twice for one message: the second is beyond the mailbox, or of another message."""


OF_OTHERS = {"expunge-not-asked", "fetch-without-data", "message-not-arrived", "flags-lost", "uidvalidity-changed"}


@pytest.mark.parametrize(("rule", "lines"), BROKEN)
def test_others_may_change_the_public_folder(rule: str, lines: Sequence[str]) -> None:
    """Only the server's own doing is a violation there."""
    dialogue = Dialogue()
    dialogue.known.shared = b'"Sent Items"' if any('SELECT "Sent' in line for line in lines) else b"INBOX"
    assert dialogue.play(lines) == ([] if rule in {*OF_OTHERS, "moved-still-there"} else [rule])


def test_a_violation_caused_by_another_is_not_reported() -> None:
    """Until the mailbox is opened again, by the session that has the wrong numbers."""
    played = Dialogue()
    unasked = ["C: UID FETCH 2 (FLAGS)", "S: * 1 EXPUNGE", "S: OK"]
    played.play([*DOUBLE, *unasked])
    codes = [(one.rule, one.finding.code) for one in played.checks.violations.values()]
    assert codes == [("number-out-of-range", Code.SERVER_STATE_WRONG), ("expunge-not-asked", Code.SERVER_STATE_FOLLOWS)]
    played.play([*OPEN, "C: UID FETCH 3 (FLAGS)", "S: * 2 FETCH (UID 3 FLAGS ())", "S: * 2 EXPUNGE", "S: OK"])
    (found,) = [one for one in played.checks.violations.values() if one.rule == "expunge-not-asked"]
    assert (found.finding.code, found.times) == (Code.SERVER_STATE_WRONG, 2)


def test_a_violation_has_its_place_and_no_contents() -> None:
    played = Dialogue()
    played.play([*OPEN, *["C: UID FETCH 2 (RFC822.SIZE BODY.PEEK[])",
                          "S: * 1 FETCH (UID 2 RFC822.SIZE 3 BODY[] {6}\r\nsecret)", "S: OK"] * 2])  # fmt: skip
    (found,) = played.checks.violations.values()
    assert (found.rule, found.section, found.user, found.folder) == ("size-wrong", "RFC 9051 2.3.4", 1, "INBOX")
    assert found.times == 2
    assert "UID FETCH 2 (RFC822.SIZE BODY.PEEK[])" in found.excerpt and "BODY[] {6}" in found.excerpt
    assert "secret" not in found.excerpt and found.excerpt.isprintable()


def test_an_unsolicited_expunge_affects_no_other_session() -> None:
    """GreenMail 2.1 sends it to the session in IDLE only: no UID is used again when another session lists the message."""
    idling = ["BC: SELECT INBOX", *(line.replace("S:", "BS:") for line in OPEN[1:])]
    idling += [line.replace("C:", "BC:").replace("S:", "BS:") for line in LIST] + ["BC: IDLE"]
    removed = [*OPEN, *LIST, "C: UID EXPUNGE 2", "BS: * 1 EXPUNGE", "BS: * 1 EXPUNGE", "S: * 1 EXPUNGE", "S: OK"]
    again = ["C: SELECT INBOX", "S: * 2 EXISTS", *OPEN[2:], *LIST[:1], *LIST[2:]]
    again = [re.sub(r"\* (\d) F", lambda found: f"* {int(found[1]) - 1} F", line) for line in again]
    assert Dialogue().play([*idling, *removed, *again]) == ["expunge-not-asked"]


def test_the_first_user_and_a_share_of_the_others_are_checked() -> None:
    def checked(share: float) -> list[int]:
        checks = StateChecks(share, seed=1)
        return [user for user in range(1, 2001) if checks.of(user, object) is not None]

    assert checked(0.0) == []
    assert checked(1.0) == list(range(1, 2001))
    assert checked(0.1) == checked(0.1) and checked(0.1)[0] == 1
    assert 150 < len(checked(0.1)) < 250


@pytest.mark.parametrize("share", [0.0, 1e-9])
def test_a_changed_uidvalidity_is_reported_for_unchecked_users(share: float) -> None:
    """Unless no user is."""
    checks = StateChecks(share, seed=1)
    at = Endpoint("127.0.0.1", 1)
    driver = open_driver("imap", Services(at, at, state_checks=checks))
    session: Any = driver.session(Account(2, "b", "b@example.test", "secret"), NullObserver())
    session.mailbox.session.broken(Violation("uidvalidity-changed", "9051 2.3.1.1", 2, "INBOX", "1, then 2"))
    assert bool(checks.violations) == bool(share)


def test_foreign_use_excuses_violations_in_its_mailbox_only() -> None:
    checks = StateChecks(1.0)
    for user, rule in enumerate(("gone", "flags"), 1):
        checks.of(user, object)
        checks.broken(Violation(rule, "9051 7.4", user, "INBOX", "S: OK"))
    accused = [
        [each.finding.values["rule"] for each in state_of(checks, others) if each.finding] for others in ([], [2])
    ]
    assert accused == [["gone", "flags"], ["gone"]]


def test_an_unchecked_server_is_not_cleared() -> None:
    used = StateChecks(1.0)
    used.of(1, object)
    seen = [[each.seen[:10] for each in state_of(*each)] for each in ((StateChecks(1.0),), (used, (), False), (used,))]
    assert seen == [["not judged"], [], ["no respons"]]


def test_a_mailbox_above_the_limit_is_not_checked() -> None:
    huge = ["C: SELECT INBOX", f"S: * {MOST_MESSAGES + 1} EXISTS", *OPEN[2:], "C: NOOP", "S: * 2 EXISTS", "S: OK"]
    assert Dialogue().play(huge) == []


def test_a_server_cannot_name_more_messages_than_the_command() -> None:
    """Each would take memory."""
    played = Dialogue()
    played.play([*OPEN, *LIST, "C: UID COPY 2:4 Trash", "S: OK [COPYUID 9 1:9999 1:9999] ."])
    assert not played.known.mailbox(b"Trash").due
    played.play(["C: UID COPY 2:4 Trash", "S: OK [COPYUID 9 2,4 7:8] ."])
    assert [*played.known.mailbox(b"Trash").due] == [7, 8]


LINES = st.sampled_from(
    sorted({line for _, lines in BROKEN for line in lines if line[0] in "CS" and line[-2:] != "OK"})
)


@given(st.lists(LINES | st.sampled_from(["S: * 4294967295 FETCH (UID 4294967295)", "S: * 1 EXPUNGE"]), max_size=40))
def test_any_dialogue_leaves_the_check_working(lines: list[str]) -> None:
    played, open_commands = Dialogue(), 0
    for line in lines:
        if line.startswith("S: OK") or (line == "C: DONE"):
            if not open_commands:
                continue
            open_commands -= line != "C: DONE"
        open_commands += line.startswith("C") and line != "C: DONE"
        played.play([line])


def test_broken_rules_miss_a_criterion(tmp_path: Path) -> None:
    """Each rule is one finding, over all engines, with the first violation; without any, there is none."""
    checks = StateChecks(1.0)
    first = Violation("uid-reused", "RFC 9051 2.3.1.1", 2, "INBOX", "* 3 FETCH (UID 4): UID 4 was expunged")
    for found in (first, first._replace(user=1), first._replace(rule="flags-lost")):
        checks.broken(found)
    tasks = [LOGGED_ON, *(done("READ", number, 5) for number in range(40))]
    header = {"users": 4, "machines": [{"client": "c1", "users": 2}, {"client": "c2", "users": 2}]}
    facts = ENDED | {"state_checks": checks.document}
    one = sample_log(tmp_path / "1.tlog", tasks, DELIVERED, header=header, facts=facts)
    two = sample_log(tmp_path / "2.tlog", tasks, (), header=header | {"client": "c2"}, facts=facts)
    summary = summarise([one, two])
    assert CampaignRun("run", "4", 4).with_summary(summary).broken  # one such run decides a search
    verdict = summary.verdict
    assert verdict.missed[-2:] == (first._replace(times=4).finding, first._replace(rule="flags-lost", times=2).finding)
    healthy = ENDED | {"state_checks": StateChecks(1.0).document}
    passed = summarise([sample_log(tmp_path / "3.tlog", tasks, DELIVERED, facts=healthy)]).verdict
    assert not [one for one in passed.findings if one.code is Code.SERVER_STATE_WRONG]


def test_a_rule_is_recorded_when_it_is_first_broken() -> None:
    """A violation is in the log even if the engine is killed later."""
    recorded: list[int] = []
    checks = StateChecks(1.0)
    checks.record = lambda: recorded.append(len(checks.document["violations"]))
    for rule in ("uid-reused", "uid-reused", "flags-lost"):
        checks.broken(Violation(rule, "RFC 9051", 1, "INBOX", ""))
    assert recorded == [1, 2]
    assert checks.violations["uid-reused"].times == 2
