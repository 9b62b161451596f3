"""The probe `command`: its figures are what a real command prints, and it ends with all that it started."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S
from virtual_runs import NOWHERE

from loadsim.errors import ConfigError
from loadsim.monitor.command_probe import MOST_BYTES, figures_of, open_probe

FINITE = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,39}", fullmatch=True)


def sampled(run: str, **settings: object) -> dict[str, float]:
    return dict(open_probe(NOWHERE, run=run, **settings)())


def python(code: str) -> str:
    """A command that runs this code, which has no apostrophes."""
    assert "'" not in code
    return f"{sys.executable} -Sc '{code}'"


@settings(max_examples=30)
@given(st.dictionaries(NAMES, FINITE, min_size=1, max_size=50))
def test_lines_have_a_name_and_a_number(figures: dict[str, float]) -> None:
    assert figures_of("".join(f"{name} {value!r}\n" for name, value in figures.items()).encode(), "value") == figures


@given(FINITE)
def test_a_single_number_has_the_name_of_the_settings(value: float) -> None:
    assert figures_of(f"\n  {value!r} \r\n".encode(), "queue_length") == {"queue_length": value}


@given(st.binary(max_size=200))
def test_any_output_is_figures_or_one_line(output: bytes) -> None:
    """The line shows at most names of figures."""
    try:
        found = figures_of(output, "value")
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert found
        assert all(abs(value) < float("inf") for value in found.values())


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("", "expected a number, found no output"),
        ("A 5\n", "found another line"),
        ("a_count 5\na_count 5\n", "expected a_count once, found it twice"),
        ("nan\n", "value: expected a finite number, found NaN"),
        ("a_count inf\n", "a_count: expected a finite number, found something else"),
        ("٣\n", "value: expected a finite number"),
        ("secret-1\n", "value: expected a finite number, found something else"),
    ],
)
def test_malformed_output_is_a_failed_sample(output: str, says: str) -> None:
    """A wrong number is worse than none."""
    with pytest.raises(ValueError, match="expected") as failure:
        figures_of(output.encode(), "value")
    assert says in str(failure.value)
    assert "secret" not in str(failure.value)


def test_the_command_is_run_without_a_shell(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Quotation marks group words, and no sign of a shell has a meaning. Standard error is shown nowhere."""
    (tmp_path / "a b; $HOME").write_text("x\n" * 7)
    assert sampled(f"grep -c x '{tmp_path}/a b; $HOME'", name="lines_count") == {"lines_count": 7}
    assert sampled(python("import sys; sys.stderr.write(chr(55)); print(sys.stdin.read() + chr(53))")) == {"value": 5}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ("sh -c 'echo 5; exit 3'", r"failed \(exit status 3\)"),
        ("sh -c 'echo 5; kill -9 $$'", r"failed \(signal 9\)"),
        ("yes", f"expected at most {MOST_BYTES} bytes of output, found more"),
        ("sh -c 'exec >&-; exit 4'", r"failed \(exit status 4\)"),
    ],
)
def test_a_command_that_fails_has_no_figures(run: str, says: str) -> None:
    """Its numbers may be those from before the failure."""
    with pytest.raises(OSError, match=says):
        sampled(run, timeout_s=60)


@pytest.mark.parametrize("rest", ["sleep 1000", "exec >&-; sleep 1000", "exec sleep 1000"])
def test_a_command_that_takes_too_long_ends_with_its_children(rest: str, tmp_path: Path) -> None:
    started, numbers = tmp_path / "started", []
    for limit_s in (0.3, 3, 30, 60):  # a busy machine may not have started them in the first ones
        with pytest.raises(TimeoutError, match=rf"to end within {limit_s:g} s, found it still at work"):
            sampled(f"sh -c 'sleep 1000 & echo $! $$ > {started}; {rest}'", timeout_s=limit_s)
        numbers = started.read_text().split() if started.exists() else []
        if len(numbers) == 2:
            break
    assert len(numbers) == 2
    await_ended(*map(int, numbers))


def test_a_child_that_keeps_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """The figures are there when the command itself has exited; the child ends with it."""
    started = tmp_path / "started"
    began = time.monotonic()
    assert sampled(f"sh -c 'sleep {2 * PATIENCE_S:.0f} & echo $! > {started}; echo 5'", timeout_s=60) == {"value": 5}
    assert time.monotonic() - began < 60  # else TimeoutError
    await_ended(int(started.read_text()))


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Path]:
    """A program that cannot be executed until the test ends, as on a file system that hangs: open(2) waits."""
    program = tmp_path / "blocked"
    shutil.copy("/bin/echo", program)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # tells the holder of a lease to give it back
    with program.open("rb") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield program
    signal.signal(signal.SIGIO, before)


def test_a_command_that_cannot_start_is_limited_too(blocked: Path) -> None:
    """Other commands run meanwhile, and other threads. The kernel takes the lease away after 45 s."""
    failures: list[BaseException] = []

    def sample() -> None:
        try:
            sampled(f"{blocked} 5", timeout_s=60)
        except BaseException as error:  # noqa: BLE001 - of a thread
            failures.append(error)

    with pytest.raises(TimeoutError, match=r"to end within 0\.3 s, found it still at work"):
        sampled(f"{blocked} 5", timeout_s=0.3)
    waiting = threading.Thread(target=sample, daemon=True)
    waiting.start()
    while not any(f"{blocked}".encode() in line for line in command_lines()):
        assert waiting.is_alive()
        os.sched_yield()
    assert sampled("echo 6", timeout_s=30) == {"value": 6}
    assert not failures
    assert waiting.is_alive()


def command_lines() -> Iterator[bytes]:
    for path in Path("/proc/self/task").glob("*/children"):
        for child in path.read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):
                yield Path(f"/proc/{child}/cmdline").read_bytes()


def await_ended(*processes: int) -> None:
    """Wait until these are gone, or wait for a parent that reads their status."""
    until = time.monotonic() + PATIENCE_S
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            while Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z":
                assert time.monotonic() < until
                os.sched_yield()


@pytest.mark.parametrize("last", ["", "bounded_command._lock.acquire()"], ids=["", "while-another-starts"])
def test_the_end_of_the_process_ends_the_command(last: str, tmp_path: Path) -> None:
    """A sample under way in a thread, which nothing waits for; also while the start of another command blocks."""
    started = tmp_path / "started"
    program = f"""
import threading, time
from pathlib import Path
from loadsim.monitor import bounded_command
from loadsim.monitor.bounded_command import output_of
command = ["sh", "-c", "echo $$ > {started}; sleep {2 * PATIENCE_S:.0f}"]
threading.Thread(target=output_of, args=(command, {2 * PATIENCE_S}, 1000), daemon=True).start()
while not (Path("{started}").exists() and Path("{started}").read_text()):
    time.sleep(0.01)
{last}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)
    await_ended(int(started.read_text()))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "run: expected a command such as wc -l /var/log/mail.log, found nothing"),
        ({"run": " "}, "run: expected a command such as wc -l /var/log/mail.log, found an empty text"),
        ({"run": "echo '5"}, "run: expected a command, found quotation marks that are not closed"),
        ({"run": "no-such-command -x"}, "run: expected the command 'no-such-command' to be installed, found none"),
        ({"run": "echo 5", "name": "A"}, "name: expected a-z, 0-9 and _, found 'A'"),
        ({"run": "echo 5", "timeout_s": float("nan")}, "timeout_s: expected a number from 0.1 to 60, found nan"),
        ({"run": "echo 5", "timeout_s": True}, "timeout_s: expected a number from 0.1 to 60, found yes"),
    ],
)
def test_wrong_settings_are_rejected_in_one_line(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        open_probe(NOWHERE, **settings)
    assert str(refusal.value) == says
