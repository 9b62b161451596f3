"""Each log-on method on Dovecot, and on Postfix with Dovecot's SASL, through all drivers; wrong secrets included."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from log_on_server import MASTER, MASTER_PASSWORD, SEPARATOR, LogOnServer, log_on_server

from loadsim.errors import ServerRefused, TaskFailed
from loadsim.model.mail_program import AIOSMTPLIB, SUBMISSIONS
from loadsim.model.ports import INBOX, Account, Services
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.sessions import NullObserver

pytestmark = pytest.mark.nightly(part="drivers")

BY_PASSWORD = ("plain", "login", "cram-md5", "scram-sha-1", "scram-sha-256")
DRIVERS = ("imap", "aioimaplib")
EACH = (*DRIVERS, *SUBMISSIONS)
HAS_ALL = tuple(driver for driver in EACH if driver != AIOSMTPLIB)


@pytest.fixture(scope="module")
def server() -> Iterator[LogOnServer]:
    with log_on_server() as running:
        yield running


class Commands(NullObserver):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: Any) -> None:
        self.seen.append(f"{name} {outcome}")


async def log_on_to(driver: str, services: Services, account: Account) -> list[str]:
    """Log on to the mailbox, or with a submission driver for submission, and log off; the commands."""
    observer = Commands()
    if driver in SUBMISSIONS:
        session = open_driver("imap", replace(services, submission=driver)).session(account, observer)
        try:
            await session.submission.check()
        finally:
            await session.submission.close()
        return observer.seen
    mailbox = open_driver(driver, services).session(account, observer).mailbox
    try:
        await mailbox.log_on()
        await mailbox.open(INBOX)
        await mailbox.log_off()
    finally:
        mailbox.abandon()
    return observer.seen


def log_on(driver: str, services: Services, account: Account) -> list[str]:
    return asyncio.run(log_on_to(driver, services, account))


def by(services: Services, *methods: str, **changes: str | None) -> Services:
    """Return the services with these log-on methods and TLS settings."""
    imap, smtp = (
        replace(endpoint, methods=methods, **changes)  # type: ignore[arg-type]
        for endpoint in (services.imap, services.smtp)
    )
    return replace(services, imap=imap, smtp=smtp)


def refusals(driver: str, several: Sequence[Services], account: Account) -> list[TaskFailed]:
    """The failures of log-ons, all at once: Dovecot takes half a second for each."""

    async def failures() -> list[object]:
        log_ons = (log_on_to(driver, services, account) for services in several)
        return list(await asyncio.gather(*log_ons, return_exceptions=True))

    found = asyncio.run(failures())
    assert all(isinstance(each, TaskFailed) for each in found), found
    return [each for each in found if isinstance(each, TaskFailed)]


def refusal(driver: str, services: Services, account: Account) -> TaskFailed:
    (failure,) = refusals(driver, [services], account)
    return failure


@pytest.mark.parametrize("driver", EACH)
def test_each_password_method_accepts_the_right_password_only(server: LogOnServer, driver: str) -> None:
    """The right one is let in by each method over STARTTLS, the wrong one is refused with one line."""
    account, submits = server.accounts[0], driver in SUBMISSIONS
    methods = BY_PASSWORD if submits else (*BY_PASSWORD, "login-command")
    if driver == AIOSMTPLIB:
        methods = BY_PASSWORD[:3]
    several = [by(server.services, method) for method in methods]
    commands = ["SMTP AUTH" if submits else "IMAP AUTHENTICATE"] * len(BY_PASSWORD) + ["IMAP LOGIN"]
    for services, command in zip(several, commands, strict=False):
        assert f"{command} ok" in log_on(driver, services, account)
    for failure, command in zip(
        refusals(driver, several, replace(account, password="wrong-secret")), commands, strict=False
    ):
        assert isinstance(failure, ServerRefused)
        assert failure.kind == ("535 AUTH" if submits else f"NO [AUTHENTICATIONFAILED] {command[5:]}")
        assert "wrong-secret" not in str(failure)


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_strongest_method_is_the_default(server: LogOnServer, driver: str) -> None:
    """SCRAM, in two steps, before PLAIN in one, which is not tried: Dovecot has compared the proof."""
    assert "IMAP AUTHENTICATE ok" in log_on(driver, server.services, server.accounts[0])
    failure = refusal(driver, server.services, replace(server.accounts[0], password="wrong"))
    assert failure.line.startswith("(scram-sha-256) NO [AUTHENTICATIONFAILED]")


@pytest.mark.parametrize("driver", EACH)
def test_a_method_that_is_not_offered_is_named(server: LogOnServer, driver: str) -> None:
    failure = refusal(driver, by(server.services, "scram-sha-512"), server.accounts[0])
    assert isinstance(failure, ServerRefused)
    assert failure.kind == ("no AUTH" if driver in SUBMISSIONS else "no AUTHENTICATE")
    assert failure.line.startswith("expected scram-sha-512, the server offers CRAM-MD5, ")


@pytest.mark.parametrize("driver", HAS_ALL)
def test_a_master_user_logs_on_for_users(server: LogOnServer, driver: str) -> None:
    """By an identity of its own, and by Dovecot's user*master."""
    user = server.accounts[1]
    several = [by(server.services, method) for method in ("plain", "scram-sha-256")]
    for account in (
        replace(user, password=MASTER_PASSWORD, authcid=MASTER, authzid=user.login),
        replace(user, password=MASTER_PASSWORD, authcid=f"{user.login}{SEPARATOR}{MASTER}"),
    ):
        for services in several:
            log_on(driver, services, account)
        for failure in refusals(driver, several, replace(account, password="wrong-secret")):
            # Dovecot answers a master user's wrong password by SCRAM with AUTHORIZATIONFAILED.
            assert failure.kind in (
                "535 AUTH",
                "NO [AUTHENTICATIONFAILED] AUTHENTICATE",
                "NO [AUTHORIZATIONFAILED] AUTHENTICATE",
            )


@pytest.mark.parametrize(
    ("driver", "method"), [*((each, "xoauth2") for each in EACH), *((each, "oauthbearer") for each in HAS_ALL)]
)
def test_a_token_is_read_from_a_file(server: LogOnServer, tmp_path: Path, driver: str, method: str) -> None:
    """A new token takes effect; one that the service does not know is refused, and not shown."""
    file = tmp_path / "token"
    account = replace(server.accounts[2], password="", token_file=str(file))
    services = by(server.services, method)
    token = f"first-{driver}-{method}"
    server.tokens.users[token] = account.login
    file.write_text(token + "\n")
    log_on(driver, services, account)
    file.write_text(f"unknown-{token}")
    failure = refusal(driver, services, account)
    assert failure.kind == ("535 AUTH" if driver in SUBMISSIONS else "NO [AUTHENTICATIONFAILED] AUTHENTICATE")
    assert failure.line.startswith(f"({method}{'' if driver == AIOSMTPLIB else ': '}") and "first" not in str(failure)
    file.write_text(token)
    log_on(driver, services, account)


@pytest.mark.parametrize("driver", HAS_ALL)
def test_a_long_token_logs_on(server: LogOnServer, tmp_path: Path, driver: str) -> None:
    """Microsoft's have two kilobytes and more: Postfix cuts such a line of AUTH, but takes the token behind it."""
    token = f"long-{driver}-{'x' * 4000}"
    server.tokens.users[token] = server.accounts[0].login
    (tmp_path / "token").write_text(token)
    account = replace(server.accounts[0], password="", token_file=str(tmp_path / "token"))
    log_on(driver, server.services, account)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_client_certificate_logs_on(server: LogOnServer, tmp_path: Path, driver: str) -> None:
    """EXTERNAL: each user by a certificate of their own, and refused without one."""
    for account in server.accounts[:2]:
        server.client_certificate(tmp_path, account.login)
    files = {"client_certificate": f"{tmp_path}/{{user}}.pem", "client_key": f"{tmp_path}/{{user}}.key"}
    services = by(server.services, "external", **files)
    for account in server.accounts[:2]:
        assert "IMAP AUTHENTICATE ok" in log_on(driver, services, replace(account, password=""))
    failure = refusal(driver, by(server.services, "external"), replace(server.accounts[0], password=""))
    assert failure.kind.endswith("AUTHENTICATE")


@pytest.mark.parametrize("driver", EACH)
def test_the_stated_server_name_is_verified(server: LogOnServer, driver: str) -> None:
    """The name that is stated is verified, in place of the host's."""
    named = by(server.services, "plain", tls_server_name="localhost")
    log_on(driver, named, server.accounts[0])
    failure = refusal(driver, by(server.services, "plain", tls_server_name="mail.example"), server.accounts[0])
    assert str(failure).startswith("TLS certificate: Hostname mismatch")


@pytest.mark.parametrize("driver", EACH)
def test_an_unverified_certificate_is_refused_unless_allowed(server: LogOnServer, driver: str) -> None:
    """An unknown authority is refused, unless verification is off."""
    unknown = by(server.services, "plain", ca_file=None)
    assert refusal(driver, unknown, server.accounts[0]).kind == "TLS certificate"
    imap, smtp = (replace(endpoint, tls_verify=False) for endpoint in (unknown.imap, unknown.smtp))
    services = replace(unknown, imap=imap, smtp=smtp)
    log_on(driver, services, server.accounts[0])


def test_both_imap_drivers_choose_the_same_method(server: LogOnServer) -> None:
    """Both IMAP drivers choose alike: the server's work per log-on is that of the method, not of the driver."""
    found: list[Sequence[str]] = []
    for driver in DRIVERS:
        commands = log_on(driver, by(server.services, "scram-sha-1"), server.accounts[0])
        found.append([each for each in commands if "AUTHENTICATE" in each or "LOGIN" in each])
    assert found[0] == found[1] == ["IMAP AUTHENTICATE ok"]
