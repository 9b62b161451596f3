"""Findings of `loadsim check`: refusals by what they are, limits and quotas of servers."""

from __future__ import annotations

import pytest

from loadsim.cli.check import described
from loadsim.errors import GeneratorFailed, ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.provisioning_ports import ServerOffer
from loadsim.protocols.imap.grammar import parse
from loadsim.protocols.imap.responses import QuotaLimits
from loadsim.provisioning.answers import meaning
from loadsim.provisioning.check_limits import new_mail, of_size
from loadsim.provisioning.check_state import place_of_copyuid
from loadsim.provisioning.server_check import checked_users
from loadsim.provisioning.server_report import Observation, ServerReport, TriedTask, lacking
from loadsim.provisioning.sessions import about_limit
from loadsim.report.document import Listing
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload

REFUSALS = [
    (ServerRefused("553 MAIL", "553 5.7.1 sender address rejected: not owned by user"), Code.MAIL_FORBIDDEN),
    (ServerRefused("553 MAIL", "553 not owned"), Code.MAIL_FORBIDDEN),
    (ServerRefused("550 RCPT", "550 5.1.1 <you@x>: unknown user"), Code.RECIPIENT_REFUSED),
    (ServerRefused("554 RCPT", "554 5.7.1 <you@x>: Relay access denied"), Code.MAIL_FORBIDDEN),
    (ServerRefused("552 RCPT", "552 5.2.2 Mailbox full"), Code.NO_ROOM),
    (ServerRefused("NO [OVERQUOTA] APPEND", "NO [OVERQUOTA] over quota"), Code.NO_ROOM),
    (ServerRefused("450 RCPT", "450 4.2.0 see you in 5 min"), Code.GREYLISTED),
    (ServerRefused("451 RCPT", "451 4.7.1 later"), Code.GREYLISTED),
    (ServerRefused("NO [NONEXISTENT] SELECT", "NO [NONEXISTENT] Mailbox does not exist"), Code.FOLDER_MISSING),
    (ServerRefused("NO [NONEXISTENT] DELETE", "NO [NONEXISTENT] Mailbox does not exist"), Code.ANSWER_UNKNOWN),
    (ProtocolError("IMAP syntax", "ENVELOPE: expected ten fields at byte 30: * 1 FETCH (...)"), Code.PROTOCOL_BROKEN),
    (ServerRefused("530 MAIL", "530 5.7.0 Must issue a STARTTLS command first"), Code.LOG_ON_REQUIRED),
    (ServerRefused("421 RCPT", "421 4.3.2 Service shutting down"), Code.SERVER_UNAVAILABLE),
    (ServerRefused("NO SELECT", "NO it does not work"), Code.ANSWER_UNKNOWN),
    (ServerRefused("NO [PRIVACYREQUIRED] LOGIN", "NO [PRIVACYREQUIRED] no"), Code.LOG_ON_REQUIRED),
    (ServerRefused("NO [NOPERM] CREATE", "NO [NOPERM] denied"), Code.RIGHT_MISSING),
    (ServerLost("connection lost"), Code.SERVER_UNAVAILABLE),
    (GeneratorFailed("no descriptor"), Code.MACHINE_FAILED),
]


@pytest.mark.parametrize(("failure", "code"), REFUSALS, ids=[str(failure) for failure, _ in REFUSALS])
def test_a_refusal_is_named_by_its_code(failure: TaskFailed, code: Code) -> None:
    """It keeps the scenario from running, and has the server's line."""
    lacks = lacking("SEND", failure, sender="me@x", recipient="you@x")
    assert lacks.lacks and lacks.finding is not None
    assert (lacks.finding.code, lacks.finding.values["answer"], lacks.seen) == (code, str(failure), str(failure))
    assert lacks.finding.values.get("recipient", "you@x") == "you@x"


@pytest.mark.parametrize(
    ("code", "of_a_list"), [("550 5.1.1", True), ("554 5.7.1", False), ("550", False), ("552", False)]
)
def test_a_list_is_missing_if_the_code_names_an_unknown_address(code: str, of_a_list: bool) -> None:
    """Not for each final refusal of its address."""
    failure = ServerRefused(f"{code[:3]} RCPT", f"{code} no")
    assert (meaning(failure, recipient="you@x", to_list=True).code is Code.LIST_UNKNOWN) is of_a_list


def test_a_recipient_without_entry_in_the_address_book_is_unknown() -> None:
    failure = ServerRefused("unknown recipient ResolveNames", "you@x")
    codes = [meaning(failure, recipient="you@x", to_list=to_list).code for to_list in (True, False)]
    assert codes == [Code.LIST_UNKNOWN, Code.RECIPIENT_REFUSED]


def test_limits_are_read_from_capabilities() -> None:
    """SIZE of SMTP has a blank, APPENDLIMIT of IMAP an equals sign; without a number there is no limit."""
    offer = ServerOffer(frozenset({"SIZE 1000", "APPENDLIMIT=77", "IDLE"}), "plain")
    assert (offer.limit("SIZE"), offer.limit("APPENDLIMIT"), offer.limit("IDLE")) == (1000, 77, None)
    assert ServerOffer(frozenset({"SIZE", "APPENDLIMIT=-1"}), "").limit("SIZE", "APPENDLIMIT") is None
    assert ServerOffer(frozenset({"SIZE 0"}), "").limit("SIZE") is None  # RFC 1870 section 4: no fixed maximum


def test_a_size_limit_is_compared_with_the_plan() -> None:
    assert of_size("SIZE", 100, 100).finding is None
    assert of_size("SIZE", 33554432, 1000).seen == "33,554,432 bytes; the largest planned message has 1,000"
    assert of_size("SIZE", 99, 100).finding == finding(Code.SMALL_LIMIT, "SIZE", planned=100, limit=99)


@pytest.mark.parametrize(
    ("program", "offered", "lacks"),
    [
        ("outlook-like", {"IDLE"}, False),
        ("outlook-like", set(), False),
        ("thunderbird", {"IDLE"}, False),
        ("thunderbird", set(), True),
        ("phone", {"IDLE"}, False),  # its default limit allows the time between its looks
    ],
)
def test_a_program_that_looks_too_rarely_is_named(program: str, offered: set[str], lacks: bool) -> None:
    """On a server that announces no mail: no server could meet the limit of delivery."""
    scenario = load_scenario("quickstart", [f"topology.0.program={program}"])
    assert new_mail(scenario, offered).lacks is lacks


def test_a_scenario_can_run_if_nothing_is_missing() -> None:
    """Each code counts once, in the order of the report; notes do not count."""
    note = Observation("to a list", "2 of 3", finding(Code.SENDER_LEFT_OUT))
    assert ServerReport(("u1",), (Observation("sessions", "2 of 2"),), (), (note,)).can_run
    of_list = lacking("to a list", ServerRefused("550 RCPT", "550 5.1.1 no"), recipient="l@x", to_list=True)
    of_move = lacking("MOVE, u1", ServerRefused("NO MOVE", "NO"))
    report = ServerReport(("u1",), (of_list,), (TriedTask("imap", "MOVE", (), 0.1, of_move),), (note, of_list))
    assert not report.can_run
    assert [one.code for one in report.lacks] == [Code.LIST_UNKNOWN, Code.ANSWER_UNKNOWN]


def test_quota_responses_are_parsed() -> None:
    """RFC 9208 section 5.1; Courier leaves out an empty list."""
    assert parse(b'* QUOTA "" (STORAGE 10 512 message 3 9)') == QuotaLimits((("STORAGE", 10, 512), ("MESSAGE", 3, 9)))
    assert parse(b'* QUOTA "ROOT"') == parse(b'* QUOTA "" ()') == QuotaLimits(())
    for raw in (b'* QUOTA "" (STORAGE 10)', b'* QUOTA "" (STORAGE x 5)', b'* QUOTA "" ((a) 1 2)', b'* QUOTA "" 5'):
        with pytest.raises(ProtocolError):
            parse(raw)


def test_each_missing_requirement_is_printed_once() -> None:
    answers = [ServerRefused("NO MOVE", "NO"), ServerRefused("530 MAIL", "530 no"), ServerRefused("421 RCPT", "421 no")]
    report = ServerReport((), tuple(lacking(f"row {at}", answers[at % 3]) for at in range(9)), (), ())
    first, *others = described("there", {}, report, ())
    assert isinstance(first, Listing) and first.caption == "To change"
    found = [str(item).partition("[")[2].partition("]")[0] for item in first.items]
    assert found == ["answer-unknown", "log-on-required", "server-unavailable"]
    assert "log-on-required" not in str(others)


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
def test_failures_that_may_come_from_a_limit_are_known(failure: TaskFailed, expected: bool) -> None:
    assert about_limit(failure) is expected


@pytest.mark.parametrize(("sizes", "count"), [([5], 2), ([1, 1], 2), ([2, 3, 2], 3), ([1] * 9, 6)])
def test_a_check_has_a_user_of_each_group(sizes: list[int], count: int) -> None:
    """With the first and the last of all users, at most six."""
    groups = ", ".join(f"{{profile: loadsim-5.5/light, users: {size}}}" for size in sizes)
    workload = Workload(load_scenario("quickstart", [f"topology=[{groups}]"]))
    users = checked_users(workload)
    assert (users[0], users[-1], len(users)) == (1, sum(sizes), count)
    assert users == sorted(users)
    assert len({id(workload.population.group(user)) for user in users}) == min(len(sizes), 6)


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ([b"* OK [COPYUID 1 2 3] moved", b"* 1 EXPUNGE", b"t2 OK done"], "untagged, before EXPUNGE"),
        ([b"* 1 EXPUNGE", b"* OK [copyuid 1 2 3] moved", b"t2 OK done"], "untagged, after EXPUNGE"),
        ([b"* 1 EXPUNGE", b"t2 OK [COPYUID 1 2 3] done"], "tagged"),
        ([b"* 1 EXPUNGE", b"t2 OK done"], "none"),
    ],
)
def test_copyuid_is_found_in_the_answer_to_move(answer: list[bytes], place: str) -> None:
    """In the answer to MOVE only; the next command ends it."""
    copied = [1, b"t1 UID COPY 1 x\r\n", b"* 1 EXPUNGE", b"t1 OK [COPYUID 1 2 3] done"]
    after = [3, b"t3 UID COPY 1 x", b"t3 OK [COPYUID 1 2 3] done"]
    assert place_of_copyuid(copied) == ""
    assert place_of_copyuid([*copied, 2, b"t2 UID MOVE 1 x\r\n", *answer, *after]) == place
