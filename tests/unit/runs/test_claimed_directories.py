"""Output directories and files: each has one process, and no process removes what it did not make."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loadsim.campaign.file import own_directory
from loadsim.cli.server import server_directory
from loadsim.errors import ConfigError
from loadsim.runs.directory import make_directories, recorded_events, run_directory
from loadsim.runs.watcher import Watcher
from loadsim.scenario.scenario import load_scenario

pytestmark = pytest.mark.usefixtures("place")

BEGAN = datetime(2026, 1, 5, tzinfo=UTC)
OUT = Path("out")


@pytest.mark.parametrize("exists", [False, True])
def test_a_second_run_leaves_the_directory_of_the_first_alone(exists: bool) -> None:
    """It is refused while the first has no file yet, and its end removes nothing."""
    if exists:
        OUT.mkdir()
    with run_directory(OUT, "small", BEGAN):
        for _ in range(2):
            with (
                pytest.raises(ConfigError, match="--out out: expected a new or empty directory"),
                run_directory(OUT, "small", BEGAN),
            ):
                pass
        with pytest.raises(ConfigError, match="expected a new or empty"), own_directory(OUT, "x"):
            pass
        (OUT / "logs").mkdir()
        (OUT / "logs" / "one.tlog").touch()
    assert (OUT / "logs" / "one.tlog").exists()


def test_runs_of_one_second_have_directories_of_their_own() -> None:
    """Without `--out`. One without a log removes its own directory only."""
    with run_directory(None, "small", BEGAN) as first:
        with run_directory(None, "small", BEGAN) as second, run_directory(None, "small", BEGAN) as third:
            assert [each.name for each in (first, second, third)] == [
                *("20260105T000000-small", "20260105T000000-small-2", "20260105T000000-small-3")
            ]
            (third / "one.tlog").touch()
        assert sorted(Path("runs").iterdir()) == [first, third]
    assert list(Path("runs").iterdir()) == [third]


def test_a_run_leaves_the_directory_of_a_suite_alone() -> None:
    """Before the suite has written its state, too. One that ends without it leaves nothing."""
    with own_directory(None, "20260105T000000-suite-a") as out:
        with pytest.raises(ConfigError, match="expected a new or empty"), run_directory(out, "small", BEGAN):
            pass
        assert out.is_dir()
    assert not Path("runs").exists()


def test_files_with_content_stay_in_an_abandoned_directory() -> None:
    """As the log of a server that did not start."""
    with own_directory(OUT, "x"):
        (OUT / "server.log").write_text("why")
        (OUT / "hooks").mkdir()
        (OUT / "empty").touch()
    assert sorted(each.name for each in OUT.iterdir()) == ["hooks", "server.log"]


@pytest.mark.parametrize("full", [False, True])
def test_events_begin_with_the_warnings_and_those_not_written_are_counted(full: bool) -> None:
    """A full disk costs the events, not the run. A monitor that criteria need is named before it."""
    told: list[str] = []

    class Told(Watcher):
        def message(self, line: str) -> None:
            told.append(line)

        warning = message

    criteria = "criteria={probes.host@mx1.cpu_busy_share.mean: {max: 1}}"
    scenario = load_scenario("quickstart", ["lists.count=0", criteria])
    OUT.mkdir()
    if full:
        (OUT / "events.jsonl").symlink_to("/dev/full")
    with recorded_events(OUT, scenario, Told()):
        pass
    if full:
        assert len(told) == 2  # the monitor and the events
    else:
        (line,) = (OUT / "events.jsonl").read_text().splitlines()
        assert (len(told), json.loads(line)["event"]) == (1, "warning")


def test_foreign_directories_are_kept() -> None:
    Path("a").mkdir()
    assert make_directories(Path("a/b/c")) == [Path("a/b/c"), Path("a/b")]
    assert make_directories(Path("a/b/c")) == []
    Path("file").touch()
    with pytest.raises(NotADirectoryError):
        make_directories(Path("file/x/y"))


def test_two_servers_do_not_share_a_directory() -> None:
    """The second would remove the logs of the first."""
    with (
        server_directory(OUT),
        pytest.raises(ConfigError, match="--dir out: expected a directory of its own, found another server at work"),
        server_directory(OUT),
    ):
        pass
    assert list(OUT.iterdir()) == []
