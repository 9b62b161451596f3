"""James and GreenMail: what is made for them, and what is rejected before anything starts."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.errors import ConfigError
from loadsim.model.ports import Account
from loadsim.provisioning.export_james import Call, james_calls, james_script, virtual_hosting

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20)


def account(number: int, login: str = "", password: str = "hush", domain: str = "x.test") -> Account:
    login = login or f"u{number}"
    return Account(number, login, login if "@" in login else f"{login}@{domain}", password)


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
