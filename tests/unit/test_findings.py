"""Findings of `loadsim check`: refusals by what they are, limits and quotas of servers."""

from __future__ import annotations

import pytest

from loadsim.cli.check import described
from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import ServerOffer
from loadsim.model.scenario import load_scenario
from loadsim.protocols.imap.grammar import parse
from loadsim.protocols.imap.responses import QuotaLimits
from loadsim.provisioning.check_limits import new_mail, size_finding
from loadsim.provisioning.findings import (
    CAN_RUN,
    Finding,
    ServerReport,
    Severity,
    TaskFinding,
    lacking,
)
from loadsim.provisioning.sessions import about_limit
from loadsim.report.document import Listing

FORBIDDEN = "the server forbids it: let accounts send as their own addresses, and to the domain x"

REFUSALS = [
    (ServerRefused("553 MAIL", "553 5.7.1 sender address rejected: not owned by user"), "the server forbids it: let"),
    (ServerRefused("553 MAIL", "553 not owned"), "let the account send as me@x"),
    (ServerRefused("550 RCPT", "550 5.1.1 <you@x>: unknown user"), "the server must accept mail for you@x: create"),
    (ServerRefused("554 RCPT", "554 5.7.1 <you@x>: Relay access denied"), FORBIDDEN),
    (ServerRefused("552 RCPT", "552 5.2.2 Mailbox full"), "a mailbox is full: raise its quota"),
    (ServerRefused("NO [OVERQUOTA] APPEND", "NO [OVERQUOTA] over quota"), "a mailbox is full: raise its quota"),
    (ServerRefused("450 RCPT", "450 4.2.0 see you in 5 min"), "exempt this machine's address"),
    (ServerRefused("451 RCPT", "451 4.7.1 later"), "exempt this machine's address"),
    (ServerRefused("NO [NONEXISTENT] SELECT", "NO [NONEXISTENT] Mailbox does not exist"), "create the folder, or let"),
    (ServerRefused("530 MAIL", "530 5.7.0 Must issue a STARTTLS command first"), "the server requires TLS or a log-on"),
    (ServerRefused("421 RCPT", "421 4.3.2 Service shutting down"), "the server is not available: its log says why"),
    (ServerRefused("NO SELECT", "NO it does not work"), "the server answered: NO SELECT: NO it does not work"),
    (ServerRefused("NO [PRIVACYREQUIRED] LOGIN", "NO [PRIVACYREQUIRED] no"), "the server requires TLS: set server.im"),
    (ServerRefused("NO [NOPERM] CREATE", "NO [NOPERM] denied"), "let accounts create folders"),
]


@pytest.mark.parametrize(("failure", "advice"), REFUSALS, ids=[str(failure) for failure, _ in REFUSALS])
def test_a_refusal_is_named_by_its_code(failure: TaskFailed, advice: str) -> None:
    """The advice says what to change, and the finding has the server's line."""
    finding = lacking("SEND", failure, sender="me@x", recipient="you@x")
    assert finding.severity is Severity.LACKS
    assert failure.line in finding.found
    assert finding.advice.startswith(advice)


@pytest.mark.parametrize(
    ("code", "of_a_list"), [("550 5.1.1", True), ("554 5.7.1", False), ("550", False), ("552", False)]
)
def test_a_list_is_missing_if_the_code_names_an_unknown_address(code: str, of_a_list: bool) -> None:
    """Not for each final refusal of its address."""
    failure = ServerRefused(f"{code[:3]} RCPT", f"{code} no")
    assert (
        "create the list you@x" in lacking("to a list", failure, recipient="you@x", to_list=True).advice
    ) is of_a_list


def test_a_limit_is_read_from_an_offer() -> None:
    """SIZE of SMTP has a blank, APPENDLIMIT of IMAP an equals sign; without a number there is no limit."""
    offer = ServerOffer(frozenset({"SIZE 1000", "APPENDLIMIT=77", "IDLE"}), "plain")
    assert (offer.limit("SIZE"), offer.limit("APPENDLIMIT"), offer.limit("IDLE")) == (1000, 77, None)
    assert ServerOffer(frozenset({"SIZE", "APPENDLIMIT=-1"}), "").limit("SIZE", "APPENDLIMIT") is None
    assert ServerOffer(frozenset({"SIZE 0"}), "").limit("SIZE") is None  # RFC 1870 section 4: no fixed maximum


def test_a_size_limit_is_compared_with_the_plan() -> None:
    """The advice has the exact number."""
    assert size_finding("SIZE", 100, 100).severity is Severity.OK
    assert size_finding("SIZE", 33554432, 1000).found == "33,554,432 bytes; the largest planned message has 1,000"
    assert size_finding("SIZE", 99, 100).advice == "raise the largest message size to at least 100 bytes"


@pytest.mark.parametrize(
    ("program", "offered", "severity"),
    [
        ("outlook-like", {"IDLE"}, Severity.OK),
        ("outlook-like", set(), Severity.OK),
        ("thunderbird", {"IDLE"}, Severity.OK),
        ("thunderbird", set(), Severity.LACKS),
        ("phone", {"IDLE"}, Severity.OK),  # its default limit allows the time between its looks
    ],
)
def test_a_program_that_looks_too_rarely_is_named(program: str, offered: set[str], severity: Severity) -> None:
    """On a server that announces no mail: no server could meet the limit of delivery."""
    scenario = load_scenario("quickstart", [f"topology.0.program={program}"])
    assert new_mail(scenario, offered).severity is severity


def test_the_verdict_is_one_sentence() -> None:
    """It says what to change first, and how many more there are."""
    report = ServerReport(("u1",), (), (), ())
    assert (report.can_run, report.verdict) == (True, CAN_RUN)
    lacks = Finding("to a list", "refused", Severity.LACKS, "create the list l@x")
    failed = TaskFinding("imap", "MOVE", (), 0.1, Finding("MOVE, u1", "NO", Severity.LACKS, "allow it"))
    report = ServerReport(("u1",), (lacks,), (failed,), (lacks,))
    assert report.verdict == ("This scenario cannot run on this server: create the list l@x (1 more to change, below).")


def test_quotas_are_read() -> None:
    """RFC 9208 section 5.1; Courier leaves out an empty list."""
    assert parse(b'* QUOTA "" (STORAGE 10 512 message 3 9)') == QuotaLimits((("STORAGE", 10, 512), ("MESSAGE", 3, 9)))
    assert parse(b'* QUOTA "ROOT"') == parse(b'* QUOTA "" ()') == QuotaLimits(())
    for raw in (b'* QUOTA "" (STORAGE 10)', b'* QUOTA "" (STORAGE x 5)', b'* QUOTA "" ((a) 1 2)', b'* QUOTA "" 5'):
        with pytest.raises(ProtocolError):
            parse(raw)


def test_each_remedy_is_printed_once() -> None:
    """The verdict has the first one, and counts the others."""
    lacks = tuple(Finding(f"row {at}", "refused", Severity.LACKS, f"mend it {at % 3}") for at in range(9))
    report = ServerReport((), lacks, (), ())
    first, *others = described("there", {}, report, ())
    assert isinstance(first, Listing)
    assert (first.caption, first.items) == ("Also to change", ("mend it 1", "mend it 2"))
    assert report.verdict.endswith("mend it 0 (2 more to change, below).")
    assert "mend it" not in str(others)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ServerLost("connection lost"), True),
        (ServerLost("BYE", "Too many connections"), True),
        (ServerRefused("NO [LIMIT] LOGIN", "NO [LIMIT] 10 connections"), True),
        (ServerRefused("NO LOGIN", "NO Maximum number of connections from user+IP exceeded"), True),
        (ServerRefused("NO [UNAVAILABLE] LOGIN", "NO [UNAVAILABLE] Temporary failure"), True),
        (ServerRefused("NO [AUTHENTICATIONFAILED] LOGIN", "NO [AUTHENTICATIONFAILED] Authentication failed."), False),
        (ServerRefused("LOGINDISABLED", "the server takes neither"), False),
        (ServerSilent("no answer to CONNECT"), False),
    ],
)
def test_which_failures_may_be_a_limit(failure: TaskFailed, expected: bool) -> None:
    assert about_limit(failure) is expected
