"""The directory of a run that root makes for somebody else."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loadsim.campaign.file import own_directory
from loadsim.errors import LogError
from loadsim.runs.directory import hand_over, run_directory
from loadsim.timinglog.merge import find_logs

CALLER = 12345

pytestmark = pytest.mark.system


def owners(path: Path) -> set[int]:
    return {each.lstat().st_uid for each in [path, *path.rglob("*")]}


@pytest.fixture
def under_sudo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUDO_UID", str(CALLER))
    monkeypatch.setenv("SUDO_GID", str(CALLER))
    monkeypatch.chdir(tmp_path)


def run_in(out: Path | None) -> Path:
    """Make a run directory with a log, and with a link to a file of root's."""
    with run_directory(out, "small", datetime(2026, 1, 5, tzinfo=UTC)) as directory:
        (directory / "logs").mkdir()
        (directory / "logs" / "one.tlog").touch()
        (directory / "link").symlink_to("/etc/hostname")
    return directory


@pytest.mark.usefixtures("under_sudo")
def test_the_caller_of_sudo_owns_the_run(tmp_path: Path) -> None:
    """All of it, and `runs` if the run created it: their next run without sudo needs to write there."""
    before = Path("/etc/hostname").stat().st_uid
    directory = run_in(None)
    assert owners(directory) == {0}
    hand_over(directory)
    assert owners(tmp_path / "runs") == {CALLER}
    assert tmp_path.stat().st_uid == 0
    assert Path("/etc/hostname").stat().st_uid == before


@pytest.mark.usefixtures("under_sudo")
def test_a_directory_of_another_user_keeps_its_owner(tmp_path: Path) -> None:
    """Its owner may have put links to files of root's into it."""
    (tmp_path / "given").mkdir()
    os.chown(tmp_path / "given", CALLER + 1, CALLER + 1)
    directory = run_in(tmp_path / "given")
    hand_over(directory)
    assert owners(directory) == {0, CALLER + 1}


@pytest.mark.usefixtures("under_sudo")
def test_a_campaign_resumed_with_sudo_belongs_to_the_caller(tmp_path: Path) -> None:
    """Also the run of the second time, in a directory that is theirs by then."""
    for number in (1, 2):
        with own_directory(tmp_path / "out", "x") as out:
            (out / "campaign.json").unlink(missing_ok=True)
            (out / "campaign.json").touch()
            (out / "runs" / str(number)).mkdir(parents=True)
            (out / "runs" / str(number) / "one.tlog").touch()
        assert owners(out) == {CALLER}


def test_without_sudo_root_owns_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a root without sudo nor a strange value gives it away."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    directory = run_in(tmp_path / "own")
    hand_over(directory)
    monkeypatch.setenv("SUDO_UID", "everybody")
    hand_over(directory)
    assert owners(directory) == {0}


def test_an_unreadable_run_directory_is_named_as_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error gives the reason, instead of missing logs."""
    run_in(tmp_path / "own")
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    os.seteuid(CALLER)
    try:
        with pytest.raises(LogError, match="own: expected a run directory that can be read, found: Permission denied"):
            find_logs(["own"])
    finally:
        os.seteuid(0)
