"""James and GreenMail: what is made for them, and what is rejected before anything starts."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from base64 import urlsafe_b64decode
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from hypothesis import given
from hypothesis import strategies as st
from other_servers import java
from other_servers.greenmail import start_greenmail, user_options
from other_servers.james import start_james
from other_servers.james_config import JamesLayout, write_configuration

from loadsim.errors import ConfigError
from loadsim.model.ports import Account
from loadsim.provisioning.export_james import Call, james_calls, james_script, virtual_hosting

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20)


def account(number: int, login: str = "", password: str = "hush", domain: str = "x.test") -> Account:
    login = login or f"u{number}"
    return Account(number, login, login if "@" in login else f"{login}@{domain}", password)


def test_missing_programs_are_named_with_their_command(tmp_path: Path) -> None:
    """The command works as it is printed: its project file exists, and it fetches into the directory given."""
    place = tmp_path / "with space"
    with pytest.raises(ConfigError, match=r"expected greenmail-standalone 2\.1 in .*, found none: mvn ") as missing:
        start_greenmail([account(1)], {}, tmp_path, programs=place)
    command = shlex.split(str(missing.value).partition("found none: ")[2])
    assert command[0] == "mvn"
    assert command[-1] == f"-Dprograms={place}"
    pom = ElementTree.parse(command[command.index("-f") + 1])
    names = {element.tag.rpartition("}")[2]: element.text for element in pom.iter()}
    assert names["outputDirectory"] == "${programs}/greenmail"


@pytest.mark.parametrize(
    ("server", "artifact", "series"),
    [
        ("james", "james-server-memory-app", "3.8"),
        ("greenmail", "greenmail-standalone", "2.1"),
    ],
)
def test_the_project_files_have_versions_that_are_accepted(
    tmp_path: Path, server: str, artifact: str, series: str
) -> None:
    """A version in the project file that the series does not include would be fetched in vain."""
    dependency = ElementTree.parse(java.POMS / f"{server}.xml").find(".//{*}dependency")
    assert dependency is not None
    assert dependency.findtext("{*}artifactId") == artifact
    version = dependency.findtext("{*}version")
    (tmp_path / server).mkdir()
    (tmp_path / server / f"{artifact}-{version}.jar").touch()
    assert java.find_programs(server, artifact, series, tmp_path).version == version


def test_several_versions_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions on one class path would be a mixture. The environment names the directory."""
    (tmp_path / "james").mkdir()
    for version in ("3.8.1", "3.8.2", "3.9.0"):
        (tmp_path / "james" / f"james-server-memory-app-{version}.jar").touch()
    monkeypatch.setenv(java.PROGRAMS, str(tmp_path))
    with pytest.raises(ConfigError, match=r"found 3\.8\.1 and 3\.8\.2: rm -r .*/james && mvn "):
        start_james([account(1)], {}, tmp_path)


def test_java_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java, the error names the package."""
    (tmp_path / "greenmail").mkdir()
    (tmp_path / "greenmail" / "greenmail-standalone-2.1.8.jar").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"expected the command java.*apt-get install default-jre-headless"):
        start_greenmail([account(1)], {}, tmp_path / "it", programs=tmp_path)


def test_the_heap_grows_with_users_up_to_the_machine() -> None:
    """All mail is in it."""
    assert java.heap_for(1) < java.heap_for(100) <= java.heap_for(10**9) < 1 << 30
    assert java.heap_for(10**8) == java.heap_for(10**9)


def test_greenmail_has_no_lists(tmp_path: Path) -> None:
    """The error says how to go on."""
    with pytest.raises(ConfigError, match=r"expected a scenario with lists: \{count: 0\}, .* found 1 of them"):
        start_greenmail([account(1)], {"all@x.test": ["u1@x.test"]}, tmp_path)


def test_greenmail_users_in_an_argument_file() -> None:
    """Quotes and backslashes are escaped as java(1) has it for argument files."""
    options = user_options([account(1, password='a"\\b'), account(2, password="c@d:e")])
    assert options == '-Dgreenmail.users.login=local_part\n"-Dgreenmail.users=u1:a\\"\\\\b@x.test,u2:c@d:e@x.test"\n'
    assert user_options([account(1, "u1@x.test")]).startswith("-Dgreenmail.users.login=email\n")


@pytest.mark.parametrize(
    "accounts",
    [
        [account(1), account(7, "u7@x.test")],
        [account(7, password="hush,hush")],
        [account(7, password="hüsh")],
        [Account(7, "other", "u7@x.test", "hush")],
    ],
)
def test_greenmail_rejects_accounts_that_it_cannot_express(accounts: list[Account]) -> None:
    """The error names the user, and leaves out the password."""
    with pytest.raises(ConfigError, match="user 7") as rejected:
        user_options(accounts)
    assert "hush" not in str(rejected.value)
    assert "hüsh" not in str(rejected.value)


def test_james_calls_create_domains_users_and_lists() -> None:
    """In this order: users need their domain, members of lists their list's domain."""
    accounts = [account(1), account(2, "ü/?")]
    assert list(james_calls(accounts, {"all@lists.test": ["u1@x.test", "ü/?@x.test"], "none@x.test": []})) == [
        Call("/domains/lists.test", ""),
        Call("/domains/x.test", ""),
        Call("/users/u1?force", '{"password": "hush"}'),
        Call("/users/%C3%BC%2F%3F?force", '{"password": "hush"}'),
        Call("/address/groups/all%40lists.test/u1%40x.test", ""),
        Call("/address/groups/all%40lists.test/%C3%BC%2F%3F%40x.test", ""),
    ]


def test_james_knows_a_mailbox_by_its_login() -> None:
    """If users log on with another address than their own, theirs is an alias."""
    accounts = [Account(1, "one@logins.test", "u1@x.test", "hush"), account(2, "u2@x.test")]
    assert virtual_hosting(accounts)
    assert [call.path for call in james_calls(accounts, {}) if "alias" in call.path] == [
        "/address/aliases/one%40logins.test/sources/u1%40x.test"
    ]


def test_james_needs_a_domain_for_each_login() -> None:
    """Logins with a domain and logins without one do not go together; the error names the user."""
    for others in (account(7), Account(7, "seven", "u7@x.test", "hush")):
        with pytest.raises(ConfigError, match="user 7"):
            virtual_hosting([account(1, "u1@x.test"), others])
    with pytest.raises(ConfigError, match="user 7: expected to log on as u7, for James, found seven"):
        virtual_hosting([account(1), Account(7, "seven", "u7@x.test", "hush")])


@given(passwords=st.lists(PRINTABLE, min_size=1, max_size=3))
def test_curl_reads_back_the_passwords(passwords: list[str]) -> None:
    """Each password is one JSON text in one quoted value of curl's configuration."""
    script = james_script([account(i, password=password) for i, password in enumerate(passwords, start=1)], {})
    values = [line.removeprefix('data = "')[:-1] for line in script.splitlines() if line.startswith("data = ")]
    bodies = [json.loads(re.sub(r"\\(.)", r"\1", value)) for value in values]
    assert bodies == [{"password": password} for password in passwords]


def test_the_script_is_a_shell_script() -> None:
    """The shell takes it, and it asks for curl's configuration once, with one URL for each call."""
    script = james_script([account(1), account(2)], {"all@x.test": ["u1@x.test"]})
    subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=True)
    assert script.count('\npath = "') == script.count("\nnext\n") + 1 == 4
    assert "enableVirtualHosting>false<" in script


@pytest.mark.system
def test_the_token_of_webadmin_is_signed(tmp_path: Path) -> None:
    """The public key that James gets verifies the token (RFC 7515), and the private key is gone."""
    layout = JamesLayout(tmp_path)
    token = write_configuration(layout, "127.0.0.1", (1, 2, 3), "x.test", virtual_hosting=True)
    key = load_pem_public_key((layout.conf / "jwt_publickey").read_bytes())
    assert isinstance(key, RSAPublicKey)
    head, claims, signature = token.split(".")
    key.verify(urlsafe_b64decode(f"{signature}=="), f"{head}.{claims}".encode(), PKCS1v15(), SHA256())
    assert json.loads(urlsafe_b64decode(f"{head}=="))["alg"] == "RS256"
    assert json.loads(urlsafe_b64decode(f"{claims}=="))["admin"] is True
    assert not [file for file in layout.conf.iterdir() if b"PRIVATE" in file.read_bytes()]
    for file in layout.conf.glob("*.xml"):
        ElementTree.parse(file)  # is well-formed
