"""The keys of a scenario about log-on and TLS: what they mean, what is rejected, and what they change in a result."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from timing_samples import LOGGED_ON, write_sample

from loadsim.errors import ConfigError, LogError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.ports import Endpoint
from loadsim.protocols.tls import TlsContexts, tls_context
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.server import Server
from loadsim.timinglog.merge import read_logs

pytestmark = pytest.mark.usefixtures("place")

Capture = pytest.CaptureFixture[str]


def scenario(imap: Any = None, smtp: Any = None, accounts: Any = None, **keys: Any) -> Scenario:
    document = {
        "server": {"imap": {"host": "127.0.0.1", **(imap or {})}, "smtp": {"host": "127.0.0.1", **(smtp or {})}},
        "accounts": accounts or {"user": "user{index}", "password": "hunter2"},
        "topology": [{"profile": "loadsim-5.5/light", "users": 2}],
    }
    Path("own.yaml").write_text(yaml.safe_dump(document | keys), encoding="utf-8")
    return load_scenario("own.yaml")


def endpoints(found: Scenario) -> tuple[Endpoint, Endpoint]:
    assert isinstance(found.server, Server)
    return found.server.imap, found.server.smtp


@pytest.mark.parametrize(
    ("auth", "methods"), [("auto", ()), ("plain", ("plain",)), (["scram-sha-256", "plain"], ("scram-sha-256", "plain"))]
)
def test_methods_are_read_and_written(auth: Any, methods: tuple[str, ...]) -> None:
    """One, or several in order of preference; they survive the file of the run directory."""
    found = scenario({"auth": auth}, {"auth": auth})
    assert [endpoint.methods for endpoint in endpoints(found)] == [methods] * 2
    Path("again.yaml").write_text(found.to_yaml())
    assert endpoints(load_scenario("again.yaml")) == endpoints(found)


TOKEN_ACCOUNTS = {"user": "u{index}", "token_file": "tokens/{user}", "manifest_key": "x"}
TLS = {"tls": "implicit"}
OWN = {"user": "u{index}", "password": "hunter2"}
MINTED = {"user": "u{index}", "manifest_key": "x"}


@pytest.mark.parametrize(
    ("imap", "accounts", "says"),
    [
        ({"auth": "ntlm"}, OWN, "server.imap.auth: expected auto, one of external, oauthbearer"),
        ({"auth": ["plain", "ntlm"]}, OWN, "server.imap.auth[1]: expected auto, one of"),
        ({"auth": []}, OWN, "found an empty list"),
        ({"auth": ["plain", "plain"]}, OWN, "found a repeated one"),
        ({"auth": "xoauth2"}, OWN, "expected accounts.token_file for xoauth2, found none"),
        ({"auth": "plain"}, TOKEN_ACCOUNTS, "server.imap.auth: expected passwords in accounts for plain"),
        ({"auth": "external"}, OWN, "expected server.imap.client_certificate for external"),
        ({"auth": "login"}, {**OWN, "master": "admin"}, "server.imap.auth: expected a method with an authorisation"),
        ({**TLS, "tls_verify": False}, OWN, "server.imap.tls_verify: expected yes, or insecure-none"),
        ({**TLS, "client_key": "x"}, OWN, "server.imap.client_certificate: expected a client_certificate"),
        ({**TLS, "client_certificate": "{name}.pem"}, OWN, "expected no fields but {index} and {user}"),
        ({**TLS, "tls_verify": "insecure-none", "ca_file": "x"}, OWN, "tls_verify: expected either ca_file or"),
        ({}, {"user": "u{index}", "token_file": "x"}, "expected a user, and a manifest_key"),
        ({}, {**MINTED, "token_file": "none"}, "accounts.token_file: expected a file"),
        ({}, MINTED, "accounts: expected a password, a token or a client_certif"),
        ({}, {**OWN, "master_separator": "*"}, "accounts: expected master with the master_separator, found no master"),
    ],
)
def test_inconsistent_log_on_settings_are_rejected(imap: Any, accounts: Any, says: str) -> None:
    """One line with the key, before any load; no secret in it."""
    with pytest.raises(ConfigError) as failed:
        scenario(imap, {}, accounts)
    assert says in str(failed.value) and "hunter2" not in str(failed.value)


MASTER = {**OWN, "master": "admin"}


@pytest.mark.parametrize(
    ("smtp", "accounts", "says"),
    [
        ({"auth": "scram-sha-256"}, OWN, "server.smtp.auth: expected methods of cram-md5, plain, login, xoauth2"),
        ({"auth": ["plain", "external"], **TLS, "client_certificate": "{index}.pem"}, OWN, "found external"),
        ({}, MASTER, "accounts.master: expected a master_separator"),
    ],
)
def test_log_ons_that_aiosmtplib_lacks_are_rejected(smtp: Any, accounts: Any, says: str) -> None:
    """They are accepted if another client submits, or if submission needs no log-on."""
    by_library = [{"profile": "loadsim-5.5/light", "users": 2, "protocol": "aioimaplib"}]
    with pytest.raises(ConfigError) as failed:
        scenario({}, smtp, accounts, topology=by_library)
    assert says in str(failed.value) and "or another client.submission than aiosmtplib" in str(failed.value)
    with pytest.raises(ConfigError, match="than aiosmtplib"):
        scenario({}, smtp, accounts, client={"submission": "aiosmtplib"})
    scenario({}, smtp, accounts, topology=by_library, client={"submission": "sequential"})
    scenario({}, smtp, accounts)
    scenario({}, {**smtp, "auth": False}, accounts, topology=by_library)


@pytest.mark.parametrize("service", ["imap", "smtp"])
def test_settings_of_tls_need_tls(service: str) -> None:
    """Each service by itself: otherwise its passwords and mail would be sent in clear text."""
    with pytest.raises(ConfigError) as failed:
        scenario(**{service: {"tls_server_name": "x"}})
    assert str(failed.value).startswith(f"own.yaml: server.{service}.tls: expected starttls or implicit")


def test_the_embedded_server_needs_passwords() -> None:
    with pytest.raises(ConfigError, match="accounts: expected passwords, which the embedded server needs, found none"):
        scenario(accounts=TOKEN_ACCOUNTS, server="embedded")


def test_a_master_user_acts_for_each_user() -> None:
    """By an identity to act as, or in the log-on name; addresses and mailboxes stay those of the users."""
    accounts = {"user": "user{index}", "password": "hunter2", "master": "admin"}
    account = scenario(accounts=accounts).account(2)
    assert (account.login, account.name, account.authzid) == ("user2", "admin", "user2")
    account = scenario(accounts={**accounts, "master_separator": "*"}).account(2)
    assert (account.login, account.name, account.authzid) == ("user2", "user2*admin", None)


def test_each_user_may_have_a_token_file() -> None:
    found = scenario(accounts={**TOKEN_ACCOUNTS, "token_file": "tokens/{user}-{index:03d}"})
    assert found.account(2).token_file == str(Path("tokens/u2-002").absolute())
    assert found.account(2).password == ""
    Path("users.csv").write_text("user,password\na,b\nc,d\n")
    table = scenario(accounts={"csv": "users.csv", "token_file": "tokens/{user}"})
    assert table.account(2).token_file == str(Path("tokens/c").absolute())


def test_accounts_are_pickled_with_their_log_on() -> None:
    """Engines and client machines get what the log-on needs."""
    found = scenario({"auth": "xoauth2"}, accounts={**TOKEN_ACCOUNTS, "master": "m", "master_separator": "*"})
    again = pickle.loads(pickle.dumps(found))
    assert again.account(1) == found.account(1) and again.server == found.server
    assert (again.account(1).name, again.account(1).token_file) == ("u1*m", str(Path("tokens/u1").absolute()))


def test_a_token_file_readable_by_others_is_a_warning() -> None:
    """loadsim warns of it, as of a file with a password."""
    Path("token").write_text("x")
    accounts = {"user": "u{index}", "manifest_key": "x", "token_file": "token"}
    for mode, warnings in ((0o644, 1), (0o600, 0)):
        Path("token").chmod(mode)
        assert len(scenario(accounts=accounts).exposed) == warnings


def test_an_unverified_certificate_is_a_warning() -> None:
    """As passwords in the clear are: also on loopback, since the word is never needed without a reason."""
    found = scenario({**TLS, "tls_verify": "insecure-none"})
    assert found.findings == (finding(Code.NOT_VERIFIED, "IMAP at 127.0.0.1:993"),)


def test_methods_that_send_no_password_have_no_warning() -> None:
    """SCRAM and CRAM-MD5 do not send the password, and so nothing is warned of."""
    imap, smtp = ({"host": "mail.example", "auth": ["scram-sha-256", method]} for method in ("cram-md5", "plain"))
    (warning,) = scenario(imap, smtp, allow_hosts=["mail.example"]).findings
    assert (warning.code, warning.where[:4]) == (Code.PASSWORD_IN_CLEAR, "SMTP")


def test_other_methods_change_the_digest() -> None:
    """The digest of a scenario changes, but not by stating the default; logs with different methods are not merged."""
    default, stated = scenario(), scenario({"auth": "auto"}, {"auth": True})
    other = scenario({"auth": "scram-sha-256"})
    assert default.digest() == stated.digest() != other.digest()
    assert (default.log_on, other.log_on) == (None, "IMAP scram-sha-256, SMTP auto")
    assert scenario(smtp={"auth": False}).log_on == "IMAP auto, SMTP none"
    for name, header in (("a", {}), ("b", {"log_on": other.log_on})):
        write_sample(Path(name) / f"{name}.tlog", tasks=[LOGGED_ON], mails=[], header={"engine": name, **header})
    with pytest.raises(LogError, match=r"merge: log_on: expected the same in .* found 'nothing' in .* and 'IMAP scram"):
        read_logs([Path("a"), Path("b")])


def test_unusable_certificates_are_rejected(place: Path) -> None:
    (place / "empty.pem").write_text("")
    endpoint = Endpoint("127.0.0.1", 1, "implicit", client_certificate="none.pem")
    with pytest.raises(ConfigError, match=r"client_certificate: .*found none.pem: No such file"):
        tls_context(endpoint)
    with pytest.raises(ConfigError, match=r"found empty.pem: no such certificate or key in it"):
        tls_context(Endpoint("127.0.0.1", 1, "implicit", client_certificate="empty.pem"))


def test_users_share_a_tls_context() -> None:
    """It is slow to make, and holds each user's own session."""
    account = scenario().account(1)
    contexts = TlsContexts(Endpoint("127.0.0.1", 1, "implicit"))
    assert contexts.of(account) is contexts.of(account) is not None
    assert TlsContexts(Endpoint("127.0.0.1", 1)).of(account) is None
