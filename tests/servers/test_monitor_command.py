"""`loadsim monitor` as a process: how it ends, and what it leaves."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from loadsim.timinglog.reader import read_log

pytestmark = pytest.mark.nightly(part="runs")

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start monitors, which end with the test, as do the commands of their probes."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: object, **streams: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "loadsim", "monitor", *map(str, words)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **streams)  # type: ignore[call-overload]
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    if (tmp_path / "taken").exists():  # a killed monitor leaves a command that waits for its reader
        os.close(os.open(tmp_path / "taken", os.O_RDONLY | os.O_NONBLOCK))


def until_sampled(place: Path) -> list[str]:
    """Return options of a probe each of whose samples waits for a reader of the pipe `taken`."""
    os.mkfifo(place / "taken")
    script = place / "probe.sh"
    script.write_text(f"#!/bin/sh\necho 1\necho x > {place / 'taken'}\n")
    script.chmod(0o755)
    return ["--probe", "command", "--set", f"probes.command.run={script}", "--name", "mx1"]


def wait_for_samples(place: Path, number: int) -> None:
    for _ in range(number):
        (place / "taken").read_text()


def streaming(start: Start, place: Path, *more: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """Start a monitor that writes to the file `stream`, and wait until it samples."""
    with (place / "stream").open("wb") as out:
        process = start(*until_sampled(place), *more, stdin=stdin, stdout=out.fileno())
    wait_for_samples(place, 3)
    return process


@pytest.mark.parametrize(
    ("number", "status", "ended"), [(signal.SIGINT, 0, True), (signal.SIGTERM, 0, True), (signal.SIGKILL, -9, False)]
)
def test_a_signalled_monitor_leaves_a_readable_file(
    number: signal.Signals, status: int, ended: bool, start: Start, tmp_path: Path
) -> None:
    """With all samples but the last second's; only after a kill it has no end."""
    process = streaming(start, tmp_path)
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == status
    found = read_log(tmp_path / "stream")
    assert (found.sources[0].ended, found.damages) == (ended, ())
    assert found.monitor == "mx1"
    values = [sample["figures"]["value"] for sample in found.health if "probe" in sample]
    assert values
    assert set(values) == {1.0}


def test_a_server_that_does_not_listen_may_be_elsewhere(start: Start, tmp_path: Path) -> None:
    """Nothing listens at a port of one of the services: so it is not known if this is the server's machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ports = ("--imap-port", str(listener.getsockname()[1]), "--smtp-port", "1")
        process = streaming(start, tmp_path, *ports)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert read_log(tmp_path / "stream").sources[0].facts.server_here is None


@pytest.mark.parametrize("how", ["input", "SIGTERM", "SIGHUP"])
def test_a_monitors_stream_is_a_complete_log(how: str, start: Start, tmp_path: Path) -> None:
    """It ends with its standard input, as when a connection of ssh is closed; nothing else is in it."""
    process = streaming(start, tmp_path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    if how == "input":
        process.stdin.write("what is typed there does not matter\n")
        process.stdin.close()
        process.stdin = None  # else, `communicate` would flush it
    else:
        process.send_signal(signal.Signals[how])
    assert process.wait(PATIENCE_S) == 0
    found = read_log(tmp_path / "stream")
    assert (found.sources[0].ended, found.damages, found.monitor) == (True, (), "mx1")
    assert {sample["figures"]["value"] for sample in found.health if "probe" in sample} == {1.0}


def test_a_monitor_ends_when_nothing_reads_its_stream(start: Start, tmp_path: Path) -> None:
    process = start(*until_sampled(tmp_path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    wait_for_samples(tmp_path, 3)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.wait(PATIENCE_S) == 2
    assert process.stderr is not None
    assert "monitor: expected to write all samples, found: " in process.stderr.read()


def test_a_standard_input_without_a_pipe_does_not_end_the_monitor(start: Start, tmp_path: Path) -> None:
    """As under systemd: it samples on until a signal."""
    process = streaming(start, tmp_path)
    wait_for_samples(tmp_path, 2)
    assert process.poll() is None
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
