"""Scenarios for drivers that need MAPI over HTTP, and the services that any driver needs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from example_plugins import package_of

from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.ports import Endpoint, Services
from loadsim.protocols.registry import check_drivers, check_protocols, needed_services, open_driver
from loadsim.provisioning.sessions import preparing_driver, services_of
from loadsim.runs.server import server_under_test
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.server import Server, server_document

HTTP = {"url": "http://127.0.0.1:8080/mapi/emsmdb"}
IMAP, SMTP = {"host": "127.0.0.1"}, {"host": "127.0.0.1", "port": 25}

PACKAGE = """
class Other:
    needs = ("mapi",)
    def __init__(self, services):
        pass

class Wrong(Other):
    needs = "mapi"

def silent(services):
    pass
"""
"""A third-party package: a driver for MAPI, one with wrong needs, and one that states none."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    entries = "other = other:Other\nwrong = other:Wrong\nsilent = other:silent"
    package = package_of(tmp_path / "package", PACKAGE, protocols=entries)
    monkeypatch.delitem(sys.modules, "other", raising=False)
    monkeypatch.setattr(sys, "path", [str(package), *sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scenario(server: Any, *protocols: str, **keys: Any) -> Scenario:
    """Two users of each of these drivers."""
    document = {
        "server": server,
        "topology": [{"profile": "loadsim-5.5/light", "users": 2, "protocol": each} for each in protocols],
        "accounts": {"user": "user{index}", "password": "hunter2"},
    }
    Path("own.yaml").write_text(yaml.safe_dump(document | keys), encoding="utf-8")
    return load_scenario("own.yaml")


def mapi_of(found: Scenario) -> Endpoint:
    assert isinstance(found.server, Server) and found.server.mapi is not None
    return found.server.mapi


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "base"),
    [
        ("ldap://localhost/dc=sim,dc=test", "localhost", 389, "none", "dc=sim,dc=test"),
        ("ldaps://[::1]:1636/ou=our%20people,dc=test", "::1", 1636, "implicit", "ou=our people,dc=test"),
    ],
)
def test_an_ldap_url_states_host_port_base_and_tls(url: str, host: str, port: int, tls: str, base: str) -> None:
    found = scenario({"imap": IMAP, "smtp": SMTP, "ldap": {"url": url, "bind_dn": "cn={user}"}}, "imap").server
    assert isinstance(found, Server)
    assert found.ldap == Endpoint(host, port, tls, path=base, bind_dn="cn={user}")
    again = scenario(server_document(found), "imap").server
    assert again == found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"url": "ldap://localhost"}, "server.ldap.url: expected scheme, host, port and base"),
        ({"url": "ldap://user:hunter2@localhost/dc=x"}, "server.ldap.url: expected scheme, host, port and base"),
        ({"url": "ldap://192.0.2.1/dc=x"}, "server.ldap.url: expected a loopback address, or a host in allow_hosts"),
        ({"ca_file": "own.yaml"}, "server.ldap.url: expected ldaps with ca_file"),
        ({"bind_dn": "cn={name}"}, "server.ldap.bind_dn: expected no fields but"),
    ],
)
def test_an_ldap_section_that_cannot_be_meant_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        scenario({"imap": IMAP, "smtp": SMTP, "ldap": {"url": "ldap://localhost/dc=x"} | changes}, "imap")
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_an_address_book_needs_users_without_mapi_and_their_passwords() -> None:
    ldap = {"url": "ldap://localhost/dc=x", "bind_dn": "cn={user}"}
    with pytest.raises(ConfigError, match="imap and smtp with ldap"):
        scenario({"mapi": HTTP, "ldap": ldap}, "other")
    with pytest.raises(ConfigError, match="each user's password, for ldap"):
        master = {"user": "user{index}", "master": "root", "password": "x", "master_separator": "*"}
        scenario({"imap": IMAP, "smtp": SMTP, "ldap": ldap}, "imap", accounts=master)


POSTING = "name: posting\nfrom: loadsim-5.5/light\npost: {per_day: 2}\n"
NNTP = {"imap": IMAP, "smtp": SMTP, "nntp": {"host": "127.0.0.1"}}


def test_an_nntp_section_survives_its_file() -> None:
    stated = {"host": "::1", "tls": "implicit", "auth": False, "tls_verify": "insecure-none"}
    found = scenario(NNTP | {"nntp": stated}, "imap", folders={"public": "example.board"}).server
    assert isinstance(found, Server) and found.nntp is not None
    assert (found.nntp.host, found.nntp.port, found.nntp.auth) == ("::1", 563, False)
    again = scenario(server_document(found), "imap", folders={"public": "example.board"}).server
    assert again == found


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "folders.public: expected a newsgroup of server.nntp, such as example.board, found none"),
        ({"folders": {"public": "Notice Board"}}, "such as example.board, found Notice Board"),
        ({"folders": {"public": "a..b"}}, "such as example.board, found a..b"),
        (
            {
                "folders": {"public": "a.b"},
                "accounts": {"user": "u{index}", "master": "root", "password": "x", "master_separator": "*"},
            },
            "accounts: expected each user's password, for nntp, found a master's",
        ),
    ],
)
def test_a_news_server_needs_a_newsgroup_and_passwords(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        scenario(NNTP, "imap", **keys)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("protocol", "server", "program"),
    [
        ("mapi", {"mapi": HTTP}, "outlook-like"),
        ("jmap", {"jmap": IMAP}, "outlook-like"),
        ("pop3", {"imap": IMAP, "smtp": SMTP, "pop3": IMAP}, "pop3"),
    ],
)
def test_a_newsgroup_gives_each_driver_a_public_folder(protocol: str, server: dict[str, Any], program: str) -> None:
    """Without it, the tasks there are refused before a run."""
    Path("posting.yaml").write_text(POSTING, encoding="utf-8")
    group = {"profile": "posting.yaml", "users": 2, "protocol": protocol, "program": program}
    if protocol == "pop3":
        Path("posting.yaml").write_text(POSTING.replace("loadsim-5.5/light", "pop3/keep"), encoding="utf-8")
    keys = {"topology": [group], "folders": {"public": "example.board"}, "lists": {"count": 0}}
    with pytest.raises(ConfigError, match=r"with public folders, such as imap|that supports POST"):
        found = scenario(server, **keys)
        check_drivers(found, services_of(found))
    found = scenario(server | {"nntp": {"host": "127.0.0.1"}}, **keys)
    check_drivers(found, services_of(found))
    assert services_of(found).nntp == Endpoint("127.0.0.1", 119)


def test_a_pop3_section_survives_its_file() -> None:
    stated = {"host": "localhost", "tls": "implicit", "auth": ["login-command", "plain"], "tls_verify": "insecure-none"}
    found = scenario({"imap": IMAP, "smtp": SMTP, "pop3": stated}, "imap").server
    assert isinstance(found, Server) and found.pop3 is not None
    endpoint = found.pop3
    assert (endpoint.host, endpoint.port, endpoint.tls) == ("localhost", 995, "implicit")
    assert (endpoint.methods, endpoint.tls_verify) == (("login-command", "plain"), False)
    assert scenario(server_document(found), "imap").server == found
    usual = scenario({"imap": IMAP, "smtp": SMTP, "pop3": {"host": "::1"}}, "imap").server
    assert isinstance(usual, Server) and usual.endpoints["pop3"].port == 110


@pytest.mark.parametrize(
    ("server", "keys", "said"),
    [
        ({"imap": IMAP, "smtp": SMTP}, {}, "server: expected pop3, which topology[0].protocol pop3 needs"),
        ({"pop3": IMAP, "smtp": SMTP}, {}, "server: expected imap, which topology[0].protocol pop3 needs"),
        ("embedded", {}, "server: expected pop3, which topology[0].protocol pop3 needs"),
        (
            {"imap": IMAP, "smtp": SMTP, "pop3": IMAP},
            {"program": "thunderbird"},
            "topology[0].program: expected one program with a session per view, such as pop3, for the driver pop3,"
            " found thunderbird",
        ),
        ({"imap": IMAP, "smtp": SMTP, "pop3": IMAP}, {"program": ["pop3", "phone"]}, "found pop3+phone"),
    ],
)
def test_pop3_needs_imap_and_a_program_with_short_sessions(server: Any, keys: dict[str, Any], said: str) -> None:
    group = {"profile": "pop3/keep", "users": 2, "protocol": "pop3", "program": "pop3"} | keys
    with pytest.raises(ConfigError) as refused:
        check_protocols(scenario(server, topology=[group]))
    assert said in str(refused.value)


def test_one_run_may_have_users_by_imap_and_by_pop3() -> None:
    group = {"profile": "pop3/keep", "users": 2, "protocol": "pop3", "program": "pop3"}
    both = [group, {"profile": "loadsim-5.5/light", "users": 2}]
    found = scenario({"imap": IMAP, "smtp": SMTP, "pop3": IMAP}, topology=both, lists={"count": 0})
    check_protocols(found)
    assert needed_services(found) == {"imap", "smtp", "pop3"}


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "path"),
    [
        ("https://localhost", "localhost", 443, "implicit", "/mapi/emsmdb"),
        ("https://localhost/mapi/emsmdb/?Mailbox=a@b", "localhost", 443, "implicit", "/mapi/emsmdb/?Mailbox=a@b"),
        ("http://[::1]:8080/own/boxes", "::1", 8080, "none", "/own/boxes"),
        ("HTTP://LOCALHOST:80/", "localhost", 80, "none", "/mapi/emsmdb"),
    ],
)
def test_a_mapi_url_states_host_port_path_and_tls(url: str, host: str, port: int, tls: str, path: str) -> None:
    """The scheme says if TLS is used; the address survives the file of the run directory."""
    found = scenario({"mapi": {"url": url}}, "other")
    endpoint = mapi_of(found)
    assert endpoint == Endpoint(host, port, tls, path=path)
    Path("again.yaml").write_text(found.to_yaml(), encoding="utf-8")
    assert mapi_of(load_scenario("again.yaml")) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "localhost",
        "ftp://localhost/mapi",
        "https://",
        "https://localhost:0/",
        "https://localhost:65536/",
        "https://user:hunter2@localhost/",
        "https://user:hunter2@localhost",
        "https://user:hunter2@localhost?a=b",
        "https://localhost/#a",
        "https://localhost/a b",
        "https://localhost/\u00e9",
        "https://[::1/",
        5,
    ],
)
def test_a_malformed_mapi_url_is_rejected(url: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"own.yaml: server.mapi.url: expected scheme, host, port, path and query"
    ) as failed:
        scenario({"mapi": {"url": url}}, "other")
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize(
    ("server", "keys", "says"),
    [
        ({}, {}, "server: expected embedded or imap and smtp, mapi, or jmap"),
        (
            {"mapi": {"url": "https://192.0.2.1"}},
            {},
            "server.mapi.url: expected a loopback address, or a host in allow",
        ),
        ({"mapi": HTTP | {"ca_file": "own.yaml"}}, {}, "server.mapi.url: expected https with ca_file"),
        (
            {"mapi": HTTP},
            {"accounts": {"user": "u{index}", "token_file": "{user}", "manifest_key": "k"}},
            "for mapi, found none",
        ),
        ({"mapi": HTTP}, {"accounts": {"user": "u{index}", "password": "a", "master": "m"}}, "found a master's"),
    ],
)
def test_inconsistent_mapi_settings_are_rejected(server: Any, keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as failed:
        scenario(server, "other", **keys)
    assert says in str(failed.value)


JMAP = {"host": "127.0.0.1", "port": 8080}
TOKENS = {"accounts": {"user": "u{index}", "token_file": "{user}", "manifest_key": "k"}}


@pytest.mark.parametrize(
    ("server", "keys", "says"),
    [
        ({"host": "192.0.2.1"}, {}, "server.jmap.host: expected a loopback address, or a host in allow_hosts"),
        (JMAP | {"tls": "starttls"}, {}, "server.jmap.tls: expected"),
        (JMAP | {"ca_file": "own.yaml"}, {}, "server.jmap.tls: expected implicit with ca_file, found none"),
        (JMAP | {"auth": "ntlm"}, {}, "server.jmap.auth: expected"),
        (JMAP | {"auth": "bearer"}, {}, "server.jmap.auth: expected accounts.token_file for bearer, found none"),
        (JMAP, TOKENS, "accounts: expected each user's password, for jmap, found none"),
        (JMAP | {"url": "http://127.0.0.1"}, {}, "server.jmap.url: expected one of the keys host, port, tls"),
    ],
)
def test_inconsistent_jmap_settings_are_rejected(server: Any, keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as failed:
        scenario({"jmap": server}, "jmap", **keys)
    assert says in str(failed.value)


@pytest.mark.parametrize(
    ("server", "port", "keys", "log_on"),
    [
        ({"host": "127.0.0.1"}, 80, {}, None),
        ({"host": "127.0.0.1", "tls": "implicit"}, 443, {}, None),
        (JMAP | {"auth": "bearer"}, 8080, TOKENS, "JMAP bearer"),
    ],
)
def test_a_jmap_service_has_the_ports_of_http(server: Any, port: int, keys: dict[str, Any], log_on: str | None) -> None:
    """The scenario that a run keeps is the same again."""
    found = scenario({"jmap": server}, "jmap", **keys)
    check_protocols(found)
    assert isinstance(found.server, Server) and found.server.jmap is not None
    assert (found.server.jmap.port, found.server.log_on) == (port, log_on)
    assert preparing_driver(services_of(found)) == "jmap"
    Path("again.yaml").write_text(found.to_yaml(), encoding="utf-8")
    assert load_scenario("again.yaml").server == found.server


@pytest.mark.parametrize("method", ["ntlm", "negotiate"])
def test_a_log_on_of_a_connection_needs_its_package(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded, sends no password, and needs a package."""
    found = scenario({"mapi": {"url": "http://192.0.2.1", "auth": method}}, "mapi", allow_hosts=["192.0.2.1"])
    assert mapi_of(found).methods == (method,)
    assert isinstance(found.server, Server) and found.server.log_on == f"MAPI {method}"
    assert Code.PASSWORD_IN_CLEAR not in [one.code for one in found.findings]
    Path("again.yaml").write_text(found.to_yaml(), encoding="utf-8")
    assert mapi_of(load_scenario("again.yaml")) == mapi_of(found)
    open_driver("mapi", Services(mapi=mapi_of(found)))
    monkeypatch.setitem(sys.modules, "spnego", None)
    with pytest.raises(ConfigError, match=r"server\.mapi\.auth: expected the package pyspnego"):
        open_driver("mapi", Services(mapi=mapi_of(found)))


def test_a_remote_password_without_tls_is_reported() -> None:
    """A host is allowed by name; a password without TLS is reported."""
    found = scenario({"mapi": {"url": "http://192.0.2.1"}}, "other", allow_hosts=["192.0.2.1"])
    assert finding(Code.PASSWORD_IN_CLEAR, "MAPI at 192.0.2.1:80") in found.findings


@pytest.mark.parametrize(
    ("server", "protocols", "needed"),
    [
        ({"mapi": HTTP}, ["other"], ["mapi"]),
        ({"imap": IMAP, "smtp": SMTP, "mapi": HTTP}, ["other"], ["mapi"]),
        ({"imap": IMAP, "smtp": SMTP, "mapi": HTTP}, ["silent"], ["imap", "smtp"]),
    ],
)
def test_users_get_the_services_that_their_drivers_need(server: Any, protocols: list[str], needed: list[str]) -> None:
    """No other service is contacted, and mailboxes are prepared by IMAP where users have it."""
    found = scenario(server, *protocols, allow_hosts=[])
    check_protocols(found)
    services = services_of(found)
    assert [*services.endpoints] == needed and needed_services(found) == set(needed)
    assert preparing_driver(services) == needed[0]


@pytest.mark.parametrize(
    ("server", "protocols", "says"),
    [
        (
            {"imap": IMAP, "smtp": SMTP},
            ["imap", "other"],
            "expected mapi, which topology[1].protocol other needs, found imap and smtp",
        ),
        ({"mapi": HTTP}, ["imap"], "expected imap, which topology[0].protocol imap needs, found mapi"),
        ({"imap": IMAP}, ["silent"], "expected smtp, which topology[0].protocol silent needs, found imap"),
        (
            "embedded",
            ["imap", "other"],
            "topology: expected groups by IMAP and SMTP, by MAPI, or by JMAP, found imap, other",
        ),
        (
            {"imap": IMAP, "smtp": SMTP, "mapi": HTTP},
            ["other", "imap"],
            "topology: expected groups by IMAP and SMTP, by MAPI, or by JMAP, found imap, other",
        ),
        (
            "embedded",
            ["jmap"],
            "server: expected jmap, which topology[0].protocol jmap needs, found imap and smtp and mapi",
        ),
        ({"imap": IMAP, "smtp": SMTP, "jmap": IMAP}, ["imap", "jmap"], "by MAPI, or by JMAP, found imap, jmap"),
        ({"mapi": HTTP}, ["wrong"], "protocol wrong: expected needs that are a tuple of imap, smtp, mapi"),
    ],
)
def test_a_scenario_without_a_needed_service_is_rejected(server: Any, protocols: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as failed:
        check_protocols(scenario(server, *protocols))
    assert says in str(failed.value)


def test_a_driver_without_its_service_is_not_opened() -> None:
    with pytest.raises(ConfigError, match="server: expected imap, found mapi"):
        open_driver("imap", Services(mapi=Endpoint("127.0.0.1", 80)))


def test_unused_services_do_not_change_the_load() -> None:
    """Neither the address of a service nor one that no user needs changes the load."""
    alone, beside = {"mapi": HTTP}, {"imap": IMAP, "smtp": SMTP, "mapi": {"url": "https://localhost"}}
    assert scenario(alone, "other").digest() == scenario(beside, "other").digest()
    assert scenario(beside, "other").digest() != scenario(beside, "imap").digest()


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "services"), [("other", ["mapi"]), ("silent", ["imap", "smtp"])])
def test_the_embedded_server_has_the_services_of_all_drivers(
    protocol: str, services: list[str], tmp_path: Path
) -> None:
    found = scenario("embedded", protocol)
    check_protocols(found)
    with server_under_test(found, tmp_path) as (given, name):
        assert [*given.endpoints] == services
        assert given.command_limit_s == found.limits.command_s and "embedded" in name
