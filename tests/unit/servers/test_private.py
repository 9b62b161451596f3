"""Private mail servers: tables and commands that are made for them, and what is refused before anything starts."""

import re
from pathlib import Path

import pytest
import yaml

from loadsim.cli import BAD_INPUT, main
from loadsim.errors import ConfigError
from loadsim.model.ports import Account
from loadsim.servers.dovecot_postfix import dialect_of
from loadsim.servers.dovecot_postfix_config import DIALECTS, Dialect, Layout, dovecot_conf
from loadsim.servers.private import check_programs


@pytest.mark.parametrize("called", ["a b/loadsim", "elsewhere.py", "absent/loadsim"])
def test_a_user_without_root_gets_the_sudo_command(
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


def test_missing_programs_are_named() -> None:
    """The error names the packages, and the command that installs them."""
    programs = {"present": "/bin/sh", "absent-imapd": "/usr/lib/absent/imapd"}
    with pytest.raises(
        ConfigError, match=r"expected absent-imapd to be installed: apt-get install present absent-imapd"
    ):
        check_programs("absent", programs)


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


@pytest.mark.parametrize("dialect", DIALECTS.values())
def test_limits_have_room_for_sessions_that_are_replaced(dialect: Dialect) -> None:
    conf = dovecot_conf(dialect, Layout(Path("/tmp/x")), "127.0.0.1", 1, 240, "none")
    assert re.findall(r"process_limit = (\d+)", conf).count("580") == 2


@pytest.mark.parametrize(
    ("version", "series", "newer"),
    [("2.3.19.1", (2, 3), False), ("2.4.1-4", (2, 4), False), ("2.4.5", (2, 4), False), ("2.10.0", (2, 4), True)],
)
def test_the_version_decides_how_dovecot_is_configured(version: str, series: tuple[int, int], newer: bool) -> None:
    """A newer release than those that were tried is named."""
    dialect, notes = dialect_of(version)
    assert dialect == DIALECTS[series]
    assert [version in note for note in notes] == [True] * newer


@pytest.mark.parametrize("version", ["2.2.36.4", "1.2.17"])
def test_an_older_dovecot_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=f"expected Dovecot 2.3 or 2.4, or newer, found {version}"):
        dialect_of(version)
