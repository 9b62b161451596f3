"""The start state as Maildir trees: files, names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.model.ports import Account
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.workload import Workload
from loadsim.provisioning import manifest
from loadsim.provisioning.export_maildir import Target, export_maildir
from loadsim.provisioning.initialise import StoredState

SCENARIO = """\
server: {imap: {host: 127.0.0.1}, smtp: {host: 127.0.0.1}}
accounts: {user: 'u{index}', password: 'pw-{index}'}
topology: [{profile: loadsim-5.0/light, users: 5}]
mailbox: {inbox: 3, folders: 3, fan_out: 1, messages_per_folder: 12, age_days: 30}
"""


def quiet(phase: str, done: int, total: int) -> None:
    """Progress for nobody."""


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    (tmp_path / "five.yaml").write_text(SCENARIO)
    return load_scenario(str(tmp_path / "five.yaml"))


def test_a_tree_has_every_folder_and_message(tmp_path: Path, scenario: Scenario) -> None:
    """Maildir++; flags and sizes in the names of files, in order; dates as times of change; for the owner only."""
    done = export_maildir(scenario, Target(tmp_path / "out"), quiet, 1)
    start = StoredState(Workload(scenario))
    root = tmp_path / "out" / "u3" / "Maildir"
    expected = {
        "": "INBOX",
        ".Sent Items": "Sent Items",
        ".Deleted Items": "Deleted Items",
        ".Calendar": "Calendar",
        ".Folder 01": "Folder 01",
        ".Folder 01.Folder 01": "Folder 01/Folder 01",
        ".Folder 01.Folder 01.Folder 01": "Folder 01/Folder 01/Folder 01",
    }
    assert {path.name for path in root.iterdir()} == {*expected, ".LoadSim", "cur", "new", "tmp"} - {""}
    for directory, folder in expected.items():
        files = sorted((root / directory / "cur").iterdir())
        wanted = list(start.messages(3, folder))
        assert [file.read_bytes() for file in files] == [each.message.replace(b"\r\n", b"\n") for each in wanted]
        for file, each in zip(files, wanted, strict=True):
            base, _, flags = file.name.partition(":2,")
            sizes = dict(part.split("=") for part in base.split(",")[1:])
            assert sizes == {"S": str(file.stat().st_size), "W": str(len(each.message))}
            assert flags == ("S" if each.flags else "")
            assert file.stat().st_mtime_ns == (each.received_us or 0) * 1000
            assert file.stat().st_mode & 0o777 == 0o600
        assert (root / directory).stat().st_mode & 0o777 == 0o700
        assert (root / directory / "maildirfolder").exists() == bool(directory)
    assert (done.accounts, done.messages) == (5, 5 * sum(start.folders(1).values()))


def test_what_is_in_the_way_is_refused_before_anything_is_written(tmp_path: Path, scenario: Scenario) -> None:
    foreign = tmp_path / "out" / "u4" / "Maildir"
    foreign.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"u4/Maildir: expected nothing there, found a mailbox"):
        export_maildir(scenario, Target(tmp_path / "out"), quiet, 1)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["u4"]


@pytest.mark.parametrize(
    "pattern", ["", "Maildir", "/{login}", "../{login}", "{login}/../x", "{password}", "{login!r:>{}}", "{domain}/x"]
)
def test_a_pattern_must_give_each_account_a_place_of_its_own(pattern: str) -> None:
    with pytest.raises(ConfigError, match="--mailbox-path: expected a relative path with"):
        Target(Path("x"), pattern)


@pytest.mark.parametrize("login", ["../up", "a/b", "..", "a\0b"])
def test_names_do_not_lead_out_of_the_directory(login: str) -> None:
    with pytest.raises(ConfigError, match="expected a name that a directory can have"):
        Target(Path("x")).maildir(Account(1, login, "u1@loadsim.test", "secret"))


def test_other_places(tmp_path: Path, scenario: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["topology", "export", str(tmp_path / "five.yaml"), "--out", str(tmp_path / "out")]
    assert main([*arguments, "--format", "maildir", "--mailbox-path", "{domain}/{user}"]) == 0
    assert (tmp_path / "out" / "loadsim.test" / "u5" / "cur").is_dir()
    assert "of 5 accounts in" in capsys.readouterr().out
    for refused, expected in (
        (["--format", "csv", "--owner", "root"], "--owner: expected with --format maildir only"),
        (["--format", "maildir", "--owner", "no-such-user"], "--owner: expected a user, or user:group"),
    ):
        assert main([*arguments, *refused]) == 2
        assert expected in capsys.readouterr().err


def test_the_names_of_the_scenario_s_folders(tmp_path: Path, scenario: Scenario) -> None:
    """The section `folders` names them, in the trees and in the manifest."""
    settings = ["folders={sent: Mail/Sent}"]
    arguments = ["topology", "export", str(tmp_path / "five.yaml"), "--set", *settings, "--out", str(tmp_path)]
    assert main([*arguments, "--format", "maildir"]) == 0
    maildir = tmp_path / "u2" / "Maildir"
    assert (maildir / ".Mail.Sent" / "cur").is_dir()
    assert not (maildir / ".Sent Items").exists()
    (written,) = (maildir / ".LoadSim" / "cur").iterdir()
    body = written.read_bytes().partition(b"\n\n")[2].replace(b"\n", b"\r\n")
    paths = {"Mail/Sent": "Sent Items"}
    found = manifest.parse(body, scenario.account(2), lambda path: paths.get(path, path))
    assert found.first_account == scenario.account(1).address
    assert found.names == StoredState(Workload(scenario)).folders(2).keys() - {"INBOX"}


def test_a_full_or_closed_disk_is_one_line(tmp_path: Path, scenario: Scenario) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="expected to write a mailbox there, found: "):
        export_maildir(scenario, Target(tmp_path / "file"), quiet, 1)


def test_progress_and_names_of_servers(tmp_path: Path, scenario: Scenario) -> None:
    seen: list[tuple[int, int]] = []
    target = Target(tmp_path / "out", paths={"Sent Items": "Mail/Sent"})
    export_maildir(scenario, target, lambda _, done, total: seen.append((done, total)), 1)
    assert seen[0] == (0, 5)
    assert seen[-1] == (5, 5)
    assert not list((tmp_path / "out" / "u1" / "Maildir" / ".Mail.Sent" / "cur").iterdir())
    with pytest.raises(ConfigError, match="expected names of folders in ASCII, without dots"):
        target = Target(tmp_path / "new", paths={"Sent Items": "Gesendete.Objekte"})
        export_maildir(scenario, target, quiet, 1)
