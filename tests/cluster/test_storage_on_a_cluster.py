"""One storage test on several machines: they begin and end together, and what ends one of them ends all."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from cluster_commands import Command, client, controller, running
from small_runs import loadsim

from loadsim.cli import BAD_INPUT, INVALID
from loadsim.storage.places import MARK, ROOT
from loadsim.storage.recording import RECORDING, Recording, read_recording

pytestmark = pytest.mark.slow

NAMES = ("one", "two")
SMALL = ["mailboxes=2", "mailbox_size=1M", "message_size=20K", "cache=1M", "databases=1", "directories=[disk]"]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory on a disk, with one for each client and its own disk: /tmp may be in memory, which is refused."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        for name in NAMES:
            (Path(directory) / name / "disk").mkdir(parents=True)
        yield Path(directory)


@contextmanager
def clients(place: Path) -> Iterator[tuple[str, dict[str, Command]]]:
    with ExitStack() as stack:
        address, _ = stack.enter_context(controller(place))
        yield address, {name: stack.enter_context(client(place / name, address, name)) for name in NAMES}


def words(test: str, address: str, out: Path, *settings: str) -> list[str]:
    set_words = [word for setting in (*SMALL, *settings) for word in ("--set", setting)]
    return [
        "storage",
        test,
        "storage-quickstart",
        *set_words,
        "--cluster",
        address,
        "--clients",
        "2",
        "--out",
        str(out),
    ]


def recordings(out: Path) -> list[Recording]:
    return [read_recording(out / name) for name in NAMES]


def codes(out: Path, name: str) -> set[str]:
    findings: list[dict[str, Any]] = json.loads((out / name / "storage.json").read_text())["verdict"]["findings"]
    return {each["code"] for each in findings}


def test_a_storage_test_runs_on_two_machines(tmp_path: Path) -> None:
    """Each fills, loads and verifies its own store; each loads in the whole window of the other one."""
    out = tmp_path / "out"
    with clients(tmp_path) as (address, _):
        made = loadsim(*words("run", address, out, "duration=2s"), cwd=tmp_path)
        assert made.returncode in (0, 1, 3), made.stderr
        assert sorted(path.name for path in out.glob("*/*")) == sorted(["storage.json", RECORDING] * 2)
        logs = [{part: begun for begun, part in each.log} for each in recordings(out)]
        assert max(log["Measuring"] for log in logs) <= min(log["Verifying checksums"] for log in logs)
        for each in recordings(out):
            assert each.window is not None
            assert len(each.counted) == each.wanted
            assert [one.damaged for one in (*each.checked, *each.proved)] == [0, 0]
        assert all((tmp_path / name / "disk" / ROOT / MARK).is_file() for name in NAMES)

        # A queue makes its tests one after the other; both machines recover what was killed.
        queue = tmp_path / "queue"
        made = loadsim(*words("recover", address, queue, "duration=1s", "threads=[1, 2]"), cwd=tmp_path)
        assert made.returncode == 0, made.stderr
        for number in (1, 2):
            assert [each.scenario.threads for each in recordings(queue / str(number))] == [number] * 2


def test_a_refusal_of_one_machine_starts_no_test(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "two" / "disk" / ROOT).mkdir()
    with clients(tmp_path) as (address, _):
        made = loadsim(*words("run", address, out), cwd=tmp_path)
    assert made.returncode == BAD_INPUT
    assert "client two: directories: " in made.stderr
    assert not out.exists()


def of_test(command: Command) -> psutil.Process:
    (process,) = psutil.Process(command.process.pid).children()
    return process


@pytest.mark.parametrize(
    "loss",
    [
        "test",
        *(
            pytest.param(each, marks=pytest.mark.nightly(part="hosts"))
            for each in ("user", "hung", "agent", "frozen", "database")
        ),
    ],
)
def test_a_test_that_ends_on_one_machine_ends_on_all(loss: str, tmp_path: Path) -> None:
    """An hour of load: a user ends it, or one machine is lost or fails. The other one records that it was stopped."""
    out = tmp_path / "out"
    with clients(tmp_path) as (address, agents):
        with running(tmp_path, *words("run", address, out, "duration=1h"), error=True) as whole:
            for _ in NAMES:
                whole.until("Filling the caches$")
            test = of_test(agents["one"])
            databases = test.children()
            match loss:
                case "user":
                    whole.process.send_signal(signal.SIGINT)
                case "hung":
                    databases[0].suspend()
                    while (
                        whole.process.poll() is None
                    ):  # the first signal ends the other one, the second kills this one
                        whole.process.send_signal(signal.SIGINT)
                        with suppress(subprocess.TimeoutExpired):
                            whole.process.wait(5)
                case "agent":
                    agents["one"].process.kill()
                case "test":
                    test.kill()
                case "frozen":
                    test.suspend()
                case "database":
                    databases[0].kill()
            assert whole.end(signal.SIGCONT) == INVALID
        assert "stopped" in codes(out, "two")
        assert {"user": "stopped", "hung": "stopped", "database": "fault-ended"}.get(loss, "no-end") in codes(
            out, "one"
        )
        if loss == "frozen":
            test.resume()
        psutil.wait_procs([test, *databases], timeout=60)
        assert not any(each.is_running() for each in (test, *databases))
