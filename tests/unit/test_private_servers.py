"""Private mail servers: tables and commands that are made for them, and what is refused before anything starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from other_servers import courier, cyrus
from other_servers.exim import lsearch

from loadsim.cli import BAD_INPUT, main
from loadsim.errors import ConfigError
from loadsim.model.ports import Account
from loadsim.servers.dovecot_postfix_config import Layout, dovecot_conf
from loadsim.servers.mounts import View, unpacked
from loadsim.servers.private import check_programs


@pytest.mark.parametrize("called", ["a b/loadsim", "elsewhere.py", "absent/loadsim"])
def test_who_is_not_root_reads_which_command_root_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    """sudo searches its own directories: the command has the path of this program, if it was called by one."""
    program = tmp_path / "a b" / "loadsim"
    program.parent.mkdir()
    program.touch()
    (tmp_path / "elsewhere.py").touch()
    monkeypatch.setattr("sys.argv", [str(tmp_path / called)])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ConfigError) as refused:
        check_programs("kind", {"package": "/bin/sh"})
    shown = f"'{program}'" if called == "a b/loadsim" else "loadsim"
    assert str(refused.value) == f"server: kind: expected to be root; run it as: sudo {shown} server kind ..."


def account(login: str) -> Account:
    return Account(7, login, "seven@example.test", "hush")


@pytest.mark.parametrize("login", ["a/b", "a@b@c", "A", "ä", "a*", "a%", "a^b", ".a", "-a", "@b"])
def test_cyrus_refuses_logins_that_it_would_change(login: str) -> None:
    """The error names the user and the login, and leaves out the password."""
    with pytest.raises(ConfigError, match="user 7") as refused:
        cyrus.check_logins([account("fine"), account("a.b@c.test"), account(login)])
    assert repr(login) in str(refused.value)
    assert "hush" not in str(refused.value)


def test_cyrus_refuses_logins_that_are_addresses_of_others() -> None:
    """Cyrus knows a mailbox by its login: mail for the owner of the address would go to another user."""
    owner = Account(1, "one@example.test", "one@example.test", "p")
    with pytest.raises(ConfigError, match=r"user 2: .*not another user's address"):
        cyrus.check_logins(
            [
                owner,
                Account(2, "three@example.test", "two@example.test", "p"),
                Account(3, "four@example.test", "three@example.test", "p"),
            ]
        )
    cyrus.check_logins([owner])


@pytest.mark.parametrize("login", ["../a", "a/b", ".a", "a|b", "a\tb", "ä"])
def test_courier_refuses_logins_that_are_no_directories(login: str) -> None:
    """A login is a directory, and a key of Courier's table."""
    with pytest.raises(ConfigError, match="user 7") as refused:
        courier.check_logins([account("a.b@c"), account(login)])
    assert repr(login) in str(refused.value)


def test_cyrus_knows_a_mailbox_by_its_login() -> None:
    """An address whose local part is another than the login gets one that Cyrus can map."""
    assert cyrus.mailbox_of(account("seven"), virtual=False) == account("seven")
    assert cyrus.mailbox_of(account("u7"), virtual=False).address.partition("@")[0] == "u7"


def test_cyrus_knows_a_mailbox_with_a_domain_by_its_login() -> None:
    """With virtual domains, the login is the address; one without a domain gets the default domain."""
    assert cyrus.mailbox_of(account("seven@example.test"), virtual=True) == account("seven@example.test")
    assert cyrus.mailbox_of(account("a@b.test"), virtual=True).address == "a@b.test"
    assert cyrus.mailbox_of(account("seven"), virtual=True).address == f"seven@{cyrus.DELIVERY_DOMAIN}"


def test_exim_keys_are_quoted() -> None:
    """A key may hold quotation marks and backslashes (Exim specification, 9.3: "lsearch")."""
    assert lsearch([('a"b\\c@x', "d")]) == '"a\\"b\\\\c@x": d\n'


def test_a_view_without_mounts_is_the_command_itself() -> None:
    """Installed programs need no namespace, and so no permission to mount."""
    assert View().command(("a", "b c")) == ["a", "b c"]


def test_a_view_mounts_before_it_becomes_the_command() -> None:
    """The mounts are in a namespace of the command; its arguments stay as they are."""
    command = View(Path("/p"), None, ((Path("/d/run"), "/run"),)).command(("a", "b c", "$d"))
    assert command[:3] == ["unshare", "--mount", "--propagation"]
    assert command[-3:] == ["a", "b c", "$d"]
    script = command[-5]
    assert script.index("lowerdir=/p/usr:/usr /usr") < script.index("--bind /d/run /run") < script.index('exec "$@"')


@pytest.mark.parametrize(("name", "complaint"), [("with,comma", "letters, digits"), ("empty", "no directory usr")])
def test_programs_that_cannot_be_mounted_are_refused(tmp_path: Path, name: str, complaint: str) -> None:
    """The directory of unpacked packages is checked before a mount fails."""
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=complaint) as refused:
        unpacked(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_missing_programs_are_named(tmp_path: Path) -> None:
    """The error names the packages, and the command that installs them."""
    programs = {"present": "/bin/sh", "absent-imapd": "/usr/lib/absent/imapd"}
    with pytest.raises(
        ConfigError, match=r"expected absent-imapd to be installed: apt-get install present absent-imapd"
    ):
        check_programs("absent", programs)
    with pytest.raises(ConfigError, match=r"--programs .*: expected absent-imapd to be unpacked"):
        check_programs("absent", programs, unpacked=tmp_path)


def test_limits_count_all_connections_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 users with eight connections each would meet a limit for two each in the middle of a run."""
    given: list[int] = []

    def start(accounts: list[Account], *_: object, further: int, **__: object) -> None:
        given.append(len(accounts) + further)
        raise ConfigError("not started")

    monkeypatch.setattr("loadsim.cli.server.start_dovecot_postfix", start)
    programs = ["thunderbird", "outlook-like", "apple-mail", "phone"]
    group = {"profile": "loadsim-5.5/medium", "users": 30, "program": programs}
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump({"server": "embedded", "topology": [group]}))
    assert main(["server", "dovecot-postfix", str(tmp_path / "scenario.yaml")]) == BAD_INPUT
    assert given == [30 * 8]


def test_limits_have_room_for_sessions_that_are_replaced() -> None:
    """A lost session and the one that replaces it overlap."""
    place = Path("/tmp/x")
    limits = [
        *re.findall(r"process_limit = (\d+)", dovecot_conf(Layout(place), "127.0.0.1", 1, 240, "none")),
        *re.findall(r"maxchild=(\d+)", cyrus.cyrus_conf(cyrus.Layout(place), "127.0.0.1", 1, 240)),
        *re.findall(r"MAX(?:DAEMONS|PERIP)=(\d+)", courier.imapd("127.0.0.1", 1, 240)),
    ]
    assert limits.count("580") == 2 + 1 + 2
