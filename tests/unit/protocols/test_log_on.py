"""Log-on over a connection, through all drivers: servers that cheat, and what Google's and Microsoft's services send.

The dialogues of the services are from their documentation and from logs that users published
(developers.google.com/gmail/imap/xoauth2-protocol; issues 178 and 460 of MailKit). None was recorded from the service.
"""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from imap_script import PATIENCE_S

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.mail_program import AIOSMTPLIB, SUBMISSIONS
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.protocols.registry import open_driver
from loadsim.protocols.sasl import authenticate, choice
from loadsim.protocols.sasl.choice import Offer
from loadsim.protocols.sasl.exchange import Exchange
from loadsim.provisioning.sessions import NullObserver

TOKEN = "EwBAAl3BAAUFFpUAo7J3Ve0bjLBWZWCclRC3EoAA"
IMAP = ("imap", "aioimaplib")
EACH = (*IMAP, *SUBMISSIONS)
WITH_SCRAM = tuple(driver for driver in EACH if driver != AIOSMTPLIB)
USER = Account(1, "user", "user@sim.test", "pencil")

Step = tuple[str, str]
"""A pattern of a line from the client, and the answer: `%t` is the line's first word, lines end with |."""


@asynccontextmanager
async def served(greeting: str, steps: Sequence[Step]) -> AsyncIterator[Services]:
    """A server that plays these steps and accepts any end of a session; an unexpected line fails the test."""
    left, wrong = list(steps), list[str]()
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        tag = ""
        try:
            writer.write(f"{greeting}\r\n".encode())
            async with asyncio.timeout(PATIENCE_S):
                while line := (await reader.readline()).decode():
                    line = line.removesuffix("\r\n")
                    if re.fullmatch(r"(\w+ LOGOUT|QUIT)", line):
                        writer.write(
                            b"* BYE\r\n%b OK bye\r\n" % line.split()[0].encode() if "OUT" in line else b"221 \r\n"
                        )
                        break
                    if not left or not re.fullmatch(left[0][0], line):
                        wrong.append(f"{line!r} in place of {left[:1]}")
                        break
                    tag = line.split(" ")[0] if " " in line else tag
                    writer.write(left.pop(0)[1].replace("%t", tag).replace("|", "\r\n").encode())
        except ConnectionError:
            pass
        finally:
            writer.close()
            running.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield Services(endpoint, endpoint)
    finally:
        server.close()
        if running:
            await asyncio.wait(running, timeout=PATIENCE_S)
        await server.wait_closed()
        assert not wrong, wrong
    assert not left, left


async def log_on_and_off(driver: str, services: Services, account: Account, methods: tuple[str, ...] = ()) -> None:
    """Log on by one of these methods (none: `auto`), and off again. Raises `TaskFailed`."""
    imap, smtp = (replace(endpoint, methods=methods) for endpoint in (services.imap, services.smtp))
    submission = driver if driver in SUBMISSIONS else SUBMISSIONS[0]
    services = replace(services, imap=imap, smtp=smtp, submission=submission)
    made = open_driver(driver if driver in IMAP else "imap", services).session(account, NullObserver())
    try:
        if driver in IMAP:
            await made.mailbox.log_on()
            await made.mailbox.log_off()
        else:
            await made.submission.check()
    finally:
        made.mailbox.abandon()
        await made.submission.close()


def log_on(
    driver: str, greeting: str, steps: Sequence[Step], account: Account = USER, methods: tuple[str, ...] = ()
) -> TaskFailed | None:
    async def session() -> TaskFailed | None:
        async with served(greeting, steps) as services:
            try:
                await log_on_and_off(driver, services, account, methods)
            except TaskFailed as failure:
                return failure
        return None

    return asyncio.run(session())


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def dialogue(
    driver: str, mechanism: str, challenges: Sequence[Step], *, initial: bool = True
) -> tuple[str, list[Step]]:
    """Greeting and steps up to the log-on's end: the initial response, and each challenge with its answer's pattern."""
    imap = driver in IMAP
    capabilities = f"* CAPABILITY IMAP4rev1{' SASL-IR' * initial} AUTH={mechanism}|%t OK done|"
    steps = [(r"\w+ CAPABILITY", capabilities)] if imap else [(r"EHLO .*", f"250-mail|250 AUTH {mechanism}|")]
    command = rf"\w+ AUTHENTICATE {mechanism}" if imap else f"AUTH {mechanism}"
    first = challenges[0]
    steps.append((f"{command}{' ' * bool(first[0])}{first[0]}", first[1]))
    steps += challenges[1:]
    return "* OK ready" if imap else "220 mail", steps


def plus(driver: str, text: str) -> str:
    return f"{'+' if driver in IMAP else '334'} {in_base64(text)}|"


def end(driver: str, done: bool) -> str:
    if driver in IMAP:
        return "%t OK done|" if done else "%t NO [AUTHENTICATIONFAILED] no|"
    return "235 2.7.0 done|" if done else "535 5.7.8 no|"


AFTER: Step = (r"\w+ CAPABILITY", "* CAPABILITY IMAP4rev1|%t OK done|")


@pytest.mark.parametrize("driver", WITH_SCRAM)
def test_a_wrong_challenge_ends_the_connection(driver: str) -> None:
    """It ends the connection: no proof, against which passwords could be tried, is sent."""
    steps = [(r"\S+", plus(driver, "r=another,s=c2FsdA==,i=4096"))]
    failure = log_on(driver, *dialogue(driver, "SCRAM-SHA-256", steps))
    assert isinstance(failure, ProtocolError) and "SCRAM-SHA-256 nonce: expected ours" in str(failure)


@pytest.mark.parametrize("driver", WITH_SCRAM)
def test_a_server_that_cannot_prove_the_password_is_refused(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a wrong signature nor none is success."""
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "nonce")
    first = (r"\S+", plus(driver, "r=noncex,s=c2FsdA==,i=4096"))
    for last, says in ((plus(driver, "v=AAAA"), "server signature"), (end(driver, True), "without a signature")):
        failure = log_on(driver, *dialogue(driver, "SCRAM-SHA-256", [first, (r"\S+", last)]))
        assert isinstance(failure, ProtocolError) and says in failure.kind


@pytest.mark.parametrize("driver", IMAP)
def test_without_initial_responses_the_client_waits(driver: str) -> None:
    """Without SASL-IR, the message waits for the server (RFC 4422 section 3); an empty one is an empty line."""
    steps = [("", "+ |"), (in_base64("\0user\0pencil"), end(driver, True)), AFTER]
    assert log_on(driver, *dialogue(driver, "PLAIN", steps, initial=False)) is None


@pytest.mark.parametrize("driver", EACH)
def test_login_does_not_replace_a_missing_method(driver: str) -> None:
    """A scenario's method that is not offered: nothing is sent, the error names both sides."""
    greeting, steps = dialogue(driver, "PLAIN", [("", "")])
    failure = log_on(driver, greeting, steps[:1], methods=("scram-sha-1",))
    assert isinstance(failure, ServerRefused)
    assert "expected scram-sha-1, the server offers PLAIN" in failure.line


PLAIN = re.escape(in_base64("\0user\0pencil"))
NO = {True: "%t NO [AUTHENTICATIONFAILED] no|", False: "535 5.7.8 no|"}


def offering(driver: str, *log_ons: Sequence[tuple[str, str, str]]) -> tuple[str, list[Step]]:
    """A server with three methods. Each log-on has those that are tried, patterns of what follows, and the answers."""
    imap, steps = driver in IMAP, list[Step]()
    offer = "* CAPABILITY IMAP4rev1 SASL-IR AUTH=PLAIN AUTH=CRAM-MD5 AUTH=SCRAM-SHA-256|%t OK done|"
    for methods in log_ons:
        steps.append(
            (r"\w+ CAPABILITY", offer) if imap else (r"EHLO .*", "250-x|250 AUTH CRAM-MD5 PLAIN SCRAM-SHA-256|")
        )
        command = r"\w+ AUTHENTICATE" if imap else "AUTH"
        steps += [(f"{command} {method} {words}", answer) for method, words, answer in methods]
        if imap and methods[-1][2] == end(driver, True):
            steps.append(AFTER)
    return "* OK ready" if imap else "220 mail", steps


def proving(driver: str, refused: str) -> tuple[tuple[str, str, str], Step]:
    """A SCRAM log-on that gets a challenge, and the refusal of its proof."""
    return ("SCRAM-SHA-256", ".*", plus(driver, "r=noncex,s=c2FsdA==,i=4096")), (r"\S+", refused)


@pytest.mark.parametrize(
    ("driver", "proved"), [*((each, False) for each in WITH_SCRAM), *((each, True) for each in IMAP)]
)
def test_a_server_without_secrets_for_its_strongest_method_gets_the_next(
    driver: str, proved: bool, monkeypatch: Any
) -> None:
    """mailutils 3.21 refuses SCRAM after the proof, without a code; Dovecot before. Then, PLAIN is the first."""
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "nonce")
    scram, proof = ("SCRAM-SHA-256", ".*", end(driver, False)), None
    if proved:
        scram, proof = proving(driver, "%t NO AUTHENTICATE SCRAM-SHA-256 authentication failed|")
    plain = ("PLAIN", PLAIN, end(driver, True))
    greeting, steps = offering(driver, [scram, plain], [plain], [plain])
    if proof:
        steps.insert(2, proof)

    async def session() -> list[str]:
        async with served(greeting, steps) as services:
            for user in (USER, USER, replace(USER, number=2)):
                await log_on_and_off(driver, services, user)
        return choice.used_methods()

    assert asyncio.run(session()) == [f"{'IMAP' if driver in IMAP else 'SMTP'} plain"]


@pytest.mark.parametrize("driver", WITH_SCRAM)
def test_a_password_refused_after_a_proof_is_tried_once(driver: str, monkeypatch: Any) -> None:
    """A server that has refused a proof as Dovecot does has a secret: a further method could lock the account."""
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "nonce")
    scram, proof = proving(driver, end(driver, False))
    greeting, steps = offering(driver, [scram])
    failure = log_on(driver, greeting, [*steps, proof])
    assert isinstance(failure, ServerRefused) and failure.line.startswith("(scram-sha-256)")


@pytest.mark.parametrize("driver", WITH_SCRAM)
def test_a_wrong_password_is_tried_once_more(driver: str) -> None:
    """Before a proof, once for each user, so that no account is locked for it; the error names both methods."""
    scram, plain = (("SCRAM-SHA-256", ".*", end(driver, False)), ("PLAIN", PLAIN, end(driver, False)))
    greeting, steps = offering(driver, [scram, plain], [scram], [scram, plain])

    async def session() -> list[str]:
        lines = []
        async with served(greeting, steps) as services:
            for user in (USER, USER, replace(USER, number=2)):
                with pytest.raises(ServerRefused) as refused:
                    await log_on_and_off(driver, services, user)
                lines.append(refused.value.line.partition(")")[0])
        return lines

    assert asyncio.run(session()) == [f"(scram-sha-256{then}" for then in (", then plain", "", ", then plain")]


@pytest.mark.parametrize("driver", WITH_SCRAM)
@pytest.mark.parametrize("why", ["named", "limit"])
def test_no_other_method_is_tried(driver: str, why: str) -> None:
    """In place of one that the scenario names, and for a limit."""
    limit = "%t NO [LIMIT] later|" if driver in IMAP else "454 4.7.0 later|"
    scram = ("SCRAM-SHA-256", ".*", limit if why == "limit" else end(driver, False))
    methods = ("scram-sha-256", "plain") if why == "named" else ()
    failure = log_on(driver, *offering(driver, [scram]), methods=methods)
    assert isinstance(failure, ServerRefused)


def test_aiosmtplib_tries_a_second_method() -> None:
    """A server offers CRAM-MD5 without secrets: the user logs on by PLAIN, and begins with it next time."""
    offer = (r"EHLO .*", "250-x|250 AUTH CRAM-MD5 PLAIN SCRAM-SHA-256|")
    cram = [("AUTH CRAM-MD5", plus(AIOSMTPLIB, "<1@mail>")), (r"\S+", end(AIOSMTPLIB, False))]
    plain = (f"AUTH PLAIN {PLAIN}", end(AIOSMTPLIB, True))

    async def session() -> list[str]:
        async with served("220 mail", [offer, *cram, plain, offer, plain]) as services:
            for _ in range(2):
                await log_on_and_off(AIOSMTPLIB, services, USER)
        return choice.used_methods()

    assert asyncio.run(session()) == ["SMTP plain"]


def test_aiosmtplib_names_its_methods_to_a_server_without_them() -> None:
    failure = log_on(AIOSMTPLIB, "220 mail", [(r"EHLO .*", "250-x|250 AUTH SCRAM-SHA-256|")])
    assert failure is not None and str(failure) == (
        "no AUTH: expected cram-md5 or plain or login or xoauth2 for aiosmtplib, the server offers SCRAM-SHA-256"
    )


SERVER, OFFER = Endpoint("127.0.0.1", 143), Offer(frozenset({"PLAIN", "SCRAM-SHA-256"}))
OTHER = replace(USER, number=2)


async def methods_once_second_was_accepted() -> list[str | None]:
    """The first method of a user before, and of another one after the second method was accepted."""
    before = choice.chosen(SERVER, USER, OFFER)
    choice.tried_second(SERVER, USER, succeeded=True)
    return [before, choice.chosen(SERVER, OTHER, OFFER)]


def test_learned_methods_are_forgotten_between_runs() -> None:
    """A suite exchanges the server behind a port."""
    for _ in range(2):
        assert asyncio.run(methods_once_second_was_accepted()) == ["scram-sha-256", "plain"]


def test_a_second_method_is_remembered_per_user() -> None:
    """Each user has a second method, also once another was logged on by the first; who used it begins with it."""

    async def session() -> list[str | None]:
        await methods_once_second_was_accepted()
        choice.accepted("IMAP", SERVER, "scram-sha-256")
        firsts = [choice.chosen(SERVER, user, OFFER) for user in (USER, OTHER)]
        return [*firsts, choice.second(SERVER, OTHER, OFFER, "scram-sha-256")]

    assert asyncio.run(session()) == ["plain", "scram-sha-256", "plain"]


@pytest.mark.parametrize("failure", [ServerRefused("535 AUTH", "no"), ServerLost("connection lost"), ServerSilent("")])
def test_a_failed_second_method_is_not_tried_again(failure: TaskFailed) -> None:
    """However it ended: its password may have counted against the account."""
    tried: list[str] = []

    async def perform(exchange: Exchange | None) -> None:
        assert exchange is not None
        tried.append(exchange.mechanism)
        raise failure if exchange.mechanism == "PLAIN" else ServerRefused("535 AUTH", "no")

    async def session() -> None:
        for _ in range(2):
            with pytest.raises(TaskFailed):
                await authenticate.log_on("SMTP", SERVER, USER, OFFER, "", perform)

    asyncio.run(session())
    assert tried == ["SCRAM-SHA-256", "PLAIN", "SCRAM-SHA-256"]


GOOGLE_IMAP = (
    "* CAPABILITY IMAP4rev1 UNSELECT IDLE NAMESPACE QUOTA ID XLIST CHILDREN X-GM-EXT-1 XYZZY SASL-IR AUTH=XOAUTH2"
    " AUTH=PLAIN AUTH=PLAIN-CLIENTTOKEN AUTH=OAUTHBEARER|%t OK Thats all she wrote! v6mb4|"
)
GOOGLE_SMTP = "250-smtp.gmail.com at your service|250-SIZE 35882577|250 AUTH LOGIN PLAIN XOAUTH2 OAUTHBEARER|"
GOOGLE_ERROR = '{"status":"401","schemes":"bearer mac","scope":"https://mail.google.com/"}'
MICROSOFT_IMAP = (
    "* CAPABILITY IMAP4 IMAP4rev1 AUTH=PLAIN AUTH=XOAUTH2 SASL-IR UIDPLUS MOVE ID UNSELECT CHILDREN IDLE NAMESPACE"
    " LITERAL+|%t OK CAPABILITY completed.|"
)
MICROSOFT_SMTP = "250-AM0PR04CA0029.outlook.office365.com Hello|250-SIZE 157286400|250 AUTH LOGIN XOAUTH2|"
MICROSOFT_GREETING = "* OK The Microsoft Exchange IMAP4 service is ready. [UwBOADEAUABSADAAMgBDAEEAMAAwADEANQ==]"


@pytest.fixture
def with_token(tmp_path: Path) -> Account:
    (tmp_path / "token").write_text(TOKEN)
    return replace(USER, login="u@sim.test", password="", token_file=str(tmp_path / "token"))


XOAUTH2 = re.escape(in_base64(f"user=u@sim.test\1auth=Bearer {TOKEN}\1\1"))


@pytest.mark.parametrize("driver", EACH)
def test_googles_dialogue_logs_on(driver: str, with_token: Account) -> None:
    """The token is accepted; a refused one is acknowledged by an empty line, and its status is part of the error."""
    if driver in IMAP:
        greeting, offer, command = (
            "* OK Gimap ready for requests from 127.0.0.1 v6mb4",
            GOOGLE_IMAP,
            r"\w+ AUTHENTICATE",
        )
        done, refused = "* CAPABILITY IMAP4rev1 IDLE|%t OK u@sim.test authenticated (Success)|", "+ "
        no, begin = "%t NO [AUTHENTICATIONFAILED] Invalid credentials (Failure)|", r"\w+ CAPABILITY"
    else:
        greeting, offer, command = "220 smtp.gmail.com ESMTP v6mb4 - gsmtp", GOOGLE_SMTP, "AUTH"
        done, refused, begin = "235 2.7.0 Accepted|", "334 ", "EHLO .*"
        no = "535-5.7.8 Username and Password not accepted.|535 5.7.8 v6mb4 - gsmtp|"
    first = (rf"{command} XOAUTH2 {XOAUTH2}", done)
    after = [AFTER] if driver in IMAP else []
    assert log_on(driver, greeting, [(begin, offer), first, *after], with_token, ("xoauth2",)) is None
    steps = [(begin, offer), (first[0], f"{refused}{in_base64(GOOGLE_ERROR)}|"), ("", no)]
    failure = log_on(driver, greeting, steps, with_token, ("xoauth2",))
    status = "" if driver == AIOSMTPLIB else ": 401"  # which the library keeps to itself
    assert isinstance(failure, ServerRefused) and failure.line.startswith(f"(xoauth2{status}) ")
    assert TOKEN not in str(failure)


@pytest.mark.parametrize("driver", EACH)
def test_microsofts_dialogue_logs_on(driver: str, with_token: Account) -> None:
    """By default, as no other method takes a token; a refusal comes without a reason."""
    if driver in IMAP:
        greeting, offer, command = MICROSOFT_GREETING, MICROSOFT_IMAP, r"\w+ AUTHENTICATE"
        done, no, begin = "%t OK AUTHENTICATE completed.|", "%t NO AUTHENTICATE failed.|", r"\w+ CAPABILITY"
    else:
        greeting, offer, command = "220 AM0PR04CA0029.outlook.office365.com ESMTP", MICROSOFT_SMTP, "AUTH"
        done, no = "235 2.7.0 Authentication successful|", "535 5.7.3 Authentication unsuccessful [AM0PR04CA0029]|"
        begin = "EHLO .*"
    first = rf"{command} XOAUTH2 {XOAUTH2}"
    after = [AFTER] if driver in IMAP else []
    assert log_on(driver, greeting, [(begin, offer), (first, done), *after], with_token) is None
    failure = log_on(driver, greeting, [(begin, offer), (first, no)], with_token)
    assert isinstance(failure, ServerRefused) and failure.line.startswith("(xoauth2) ")
