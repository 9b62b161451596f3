"""Accounts and lists as servers' tables: the servers' own tools read back what was meant."""

import csv
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailservers import DOMAIN, StartDovecotPostfix, numbered_accounts

from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.model.ports import Account
from loadsim.provisioning.export import csv_accounts, dovecot_passwords, export
from loadsim.scenario.accounts import read_table
from loadsim.scenario.population import distribution_lists
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.command import run

ACCOUNTS = numbered_accounts(4)
LISTS = {
    f"two@{DOMAIN}": (ACCOUNTS[0].address, ACCOUNTS[1].address),
    f"four@{DOMAIN}": tuple(account.address for account in ACCOUNTS),
    f"empty@{DOMAIN}": (),
}
SCENARIO = """\
server: embedded
accounts: {user: 'u{index}', password: 'pw-{index}'}
topology: [{profile: loadsim-5.5/medium, users: 40}]
"""
PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20)


@settings(deadline=None, max_examples=50)
@given(passwords=st.lists(PRINTABLE, min_size=1, max_size=5))
def test_a_scenario_reads_the_exported_csv(tmp_path_factory: pytest.TempPathFactory, passwords: list[str]) -> None:
    """A scenario reads accounts.csv by `accounts: {csv}`, with any characters in its passwords."""
    accounts = [Account(i, f"u{i}", f"u{i}@{DOMAIN}", password) for i, password in enumerate(passwords, start=1)]
    path = tmp_path_factory.mktemp("csv") / "accounts.csv"
    path.write_text(csv_accounts(accounts), encoding="utf-8", newline="")
    assert list(read_table(path, DOMAIN).rows) == accounts


@pytest.mark.parametrize(
    ("layout", "secret", "public"),
    [
        ("dovecot", "dovecot.passwd", "dovecot.users"),
        ("postfix", None, "virtual_aliases"),
        ("csv", "accounts.csv", "lists.csv"),
        ("aliases", None, "aliases.addresses"),
    ],
)
def test_passwords_are_for_the_owner_only(tmp_path: Path, layout: str, secret: str | None, public: str) -> None:
    """Files with passwords have mode 0600, also where a readable file was before; the others hold no password."""
    out = tmp_path / "new" / "place"
    export(ACCOUNTS, LISTS, layout, out)
    if secret:
        (out / secret).chmod(0o644)
    for path in export(ACCOUNTS, LISTS, layout, out):
        passwords = [account.password for account in ACCOUNTS]
        passwords += [b64encode(password.encode()).decode() for password in passwords]
        holds = any(password in path.read_text() for password in passwords)
        assert holds == (path.name == secret)
        assert path.stat().st_mode & 0o777 == (0o600 if holds else 0o644)
    assert (out / public).exists()


def test_lists_csv_has_a_row_for_each_member(tmp_path: Path) -> None:
    export(ACCOUNTS, LISTS, "csv", tmp_path)
    with (tmp_path / "lists.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["list"], row["member"]) for row in rows] == [
        (address, member) for address, members in LISTS.items() for member in members
    ]


@pytest.mark.parametrize("layout", ["dovecot", "csv"])
def test_passwords_of_others_are_not_exported(tmp_path: Path, layout: str) -> None:
    """A master user's password would open all mailboxes to each user; a token is no password."""
    master = replace(ACCOUNTS[0], authcid="admin", password="mighty")
    with pytest.raises(ConfigError, match=r"expected each user's own password .*, found that of a master user"):
        export([master], {}, layout, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"expected each user's own password .*, found none"):
        export([replace(ACCOUNTS[0], password="")], {}, layout, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert export([master], LISTS, "aliases", tmp_path / "out")


@pytest.mark.parametrize("name", ["#1", "a:b", "a b", "a\xa0b", "a%u", "o'brien", "b!a"])
def test_an_ambiguous_name_in_a_table_is_refused(name: str, tmp_path: Path) -> None:
    """As a comment, or a shorter name. CSV has any."""
    for odd in (replace(ACCOUNTS[0], login=name), replace(ACCOUNTS[0], address=f"{name}@{DOMAIN}")):
        with pytest.raises(ConfigError, match="accounts: expected names for"):
            export([ACCOUNTS[1], odd], {}, "dovecot", tmp_path / "out")
        assert export([odd], {}, "csv", tmp_path / f"csv{len(odd.login)}")
    with pytest.raises(ConfigError, match="accounts: expected names for"):
        export([odd], {}, "postfix", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_export_writes_the_scenarios_population(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`topology export` writes all users of the scenario, overrides included, and says where."""
    path = tmp_path / "forty.yaml"
    path.write_text(SCENARIO)
    arguments = ["topology", "export", str(path), "--format", "csv", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--set", "topology.0.users=35"]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [file.name for file in written] == ["accounts.csv", "lists.csv"]
    rows = read_table(written[0], "loadsim.test").rows
    assert [account.login for account in rows] == [f"u{index}" for index in range(1, 36)]
    lists = distribution_lists(load_scenario(str(path), ["topology.0.users=35"]))
    assert len(written[1].read_text().splitlines()) == 1 + sum(map(len, lists.values()))


def test_a_table_with_other_contents_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be the only copy of passwords. The same contents are written again; nothing is half-done."""
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    out = tmp_path / "out"
    arguments = ["topology", "export", str(path), "--format", "csv", "--out", str(out)]
    assert main(arguments) == main(arguments) == 0
    (out / "lists.csv").unlink()
    (out / "accounts.csv").write_text("mine\n")
    capsys.readouterr()
    assert main(arguments) == 2
    assert capsys.readouterr().err == (
        f"loadsim: {out}/accounts.csv: expected a new file, or one with the same contents, found other contents; choose"
        " another directory (--out), or delete it\n"
    )
    assert [(each.name, each.read_text()) for each in out.iterdir()] == [("accounts.csv", "mine\n")]


def test_a_link_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    (tmp_path / "aliases").symlink_to("none")
    (tmp_path / "aliases.addresses").symlink_to("mine")
    for name in ("aliases", "aliases.addresses"):
        with pytest.raises(ConfigError, match=f"{name}: expected a new file"):
            export(ACCOUNTS, {}, "aliases", tmp_path)
        (tmp_path / name).unlink()


@pytest.mark.system
def test_postmap_reads_the_postfix_tables(tmp_path: Path) -> None:
    """Postfix's own tool finds each mailbox, and each list with its members in order; an empty list is no alias."""
    (tmp_path / "main.cf").write_text("compatibility_level = 3.6\ninet_interfaces = 127.0.0.1\n")
    mailboxes, aliases = export(ACCOUNTS, LISTS, "postfix", tmp_path)
    conf = ("-c", str(tmp_path))
    for table in (mailboxes, aliases):
        run("postmap", (*conf, f"hash:{table}"))
    for account in ACCOUNTS:
        assert run("postmap", (*conf, "-q", account.address, f"hash:{mailboxes}")).strip() == account.login
    for address, members in LISTS.items():
        if members:
            found = run("postmap", (*conf, "-q", address, f"hash:{aliases}"))
            assert [member.strip() for member in found.split(",")] == list(members)
        else:
            with pytest.raises(ConfigError):
                run("postmap", (*conf, "-q", address, f"hash:{aliases}"))


@pytest.mark.system
def test_postalias_reads_the_aliases(tmp_path: Path) -> None:
    """Postfix's tool for files of aliases(5), which sendmail's and Exim's are: every member, also over many lines."""
    (tmp_path / "main.cf").write_text("compatibility_level = 3.6\ninet_interfaces = 127.0.0.1\n")
    lists = LISTS | {f"all@{DOMAIN}": tuple(f"user{number:05d}@{DOMAIN}" for number in range(1, 1001))}
    local, _ = export(ACCOUNTS, lists, "aliases", tmp_path)
    assert max(map(len, local.read_text().splitlines())) < 1000
    run("postalias", ("-c", str(tmp_path), f"hash:{local}"))
    for address, members in lists.items():
        if members:
            name = address.partition("@")[0]
            found = run("postalias", ("-c", str(tmp_path), "-q", name, f"hash:{local}"))
            assert [member.strip() for member in found.split(",")] == list(members)


def test_aliases_of_addresses_have_one_line_each(tmp_path: Path) -> None:
    """OpenSMTPD's table(5): a key, a colon, the value, in one line; an empty list would be an error."""
    _, whole = export(ACCOUNTS, LISTS, "aliases", tmp_path)
    found = dict(line.split(": ") for line in whole.read_text().splitlines())
    assert {address: tuple(value.split(", ")) for address, value in found.items()} == {
        address: members for address, members in LISTS.items() if members
    }


@pytest.mark.system
def test_dovecot_takes_the_exported_passwords(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """Dovecot's own auth test accepts every exported password, also awkward ones, and refuses others."""
    awkward = ["plain", "co:lon", "{SHA}braces", 'quo"te\\', "pässwörd", "hash#tag", "a b", "%u%d", "=", "trailing:"]
    accounts = [Account(i, f"u{i}", f"u{i}@{DOMAIN}", password) for i, password in enumerate(awkward, start=1)]
    server = dovecot_postfix(accounts)
    exported = export(accounts, {}, "dovecot", tmp_path)[0]
    assert (
        (server.layout.dovecot_conf.parent / "passwords").read_text()
        == exported.read_text()
        == dovecot_passwords(accounts)
    )
    for account in accounts:
        assert "auth succeeded" in server.doveadm("auth", "test", account.login, account.password)
        assert server.doveadm("user", "-f", "home", account.login).strip().endswith(f"/{account.login}")
    with pytest.raises(ConfigError):
        server.doveadm("auth", "test", accounts[0].login, accounts[1].password)
