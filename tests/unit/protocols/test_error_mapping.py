"""Shortages of this machine (files, ports, memory) are not the server's failures, by each driver and loop."""

import asyncio
import errno
import os
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from imap_script import PATIENCE_S, Ear
from mailservers import numbered_accounts

from loadsim.engine.channel import start_process
from loadsim.errors import (
    SHORTAGES,
    ConfigError,
    GeneratorFailed,
    ServerLost,
    ServerSilent,
    TaskFailed,
    machine_failure,
)
from loadsim.model.ports import Endpoint, Services
from loadsim.processes.event_loop import fastest_loop
from loadsim.protocols import connect
from loadsim.protocols.error_mapping import again, failing_as, own_failure, shortage
from loadsim.protocols.registry import open_driver
from loadsim.scenario.sections import Client

(ACCOUNT,) = numbered_accounts(1)
LOOPS = {"asyncio": None, "fastest": fastest_loop()}


@contextmanager
def no_file_left() -> Iterator[None]:
    """Let this process open no file, while the block lasts."""
    free = os.dup(0)
    os.close(free)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def failures(protocol: str, services: Services) -> list[TaskFailed]:
    """The failures of a log-on and of a submission, and what the observer was told of the commands."""
    ear = Ear()
    session = open_driver(protocol, services).session(ACCOUNT, ear)
    found = []
    async with asyncio.timeout(PATIENCE_S):
        for attempt in (session.mailbox.log_on, session.submission.check):
            with pytest.raises(TaskFailed) as raised, no_file_left():
                await attempt()
            found.append(raised.value)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("tls", ["none", "implicit"])
@pytest.mark.parametrize("sources", [(), ("127.0.0.1",)])
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("protocol", ["imap", "aioimaplib"])
def test_a_missing_file_descriptor_is_a_shortage(
    protocol: str, loop: str, sources: tuple[str, ...], tls: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that we could not even begin, and a host that we could not even look up."""
    monkeypatch.setattr(connect, "_ADDRESSES", {})

    async def live() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            endpoint = Endpoint(host, listening.getsockname()[1], tls)  # type: ignore[arg-type]
            services = Client(source_addresses=sources).using(Services(endpoint, endpoint))  # type: ignore[arg-type]
            found = await failures(protocol, services)
        assert [type(each) for each in found] == [GeneratorFailed, GeneratorFailed]
        assert [each.kind for each in found] == ["no free file descriptor (EMFILE)"] * 2

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(live())


@pytest.mark.parametrize("number", SHORTAGES)
def test_shortages_have_stable_kinds(number: int) -> None:
    """The kind follows from the system's error number, not from its text; `again` keeps the type."""
    error = socket.gaierror(number, "x") if number < 0 else OSError(number, "x")
    with pytest.raises(GeneratorFailed) as raised, failing_as("connect"):
        raise error
    assert (raised.value.outcome, raised.value.kind, raised.value.line) == ("generator", SHORTAGES[number], "")
    assert isinstance(again(raised.value), GeneratorFailed)
    assert shortage(error) is not None


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "x"),
        ConnectionResetError(errno.ECONNRESET, "x"),
        OSError(errno.EHOSTUNREACH, "x"),
        socket.gaierror(socket.EAI_AGAIN, "x"),
        OSError("without a number"),
    ],
)
def test_network_errors_are_no_shortage(error: OSError) -> None:
    with pytest.raises(ServerLost), failing_as("connect"):
        raise error
    assert own_failure(error) is None


def test_a_lack_of_memory_is_a_shortage() -> None:
    """A lack of memory is a shortage as Python and as TLS report it."""
    exhausted = ssl.SSLError(1, "x")
    exhausted.reason = "MALLOC_FAILURE"
    for error in (MemoryError(), exhausted):
        with pytest.raises(GeneratorFailed, match="no memory"), failing_as("connect"):
            raise error


def test_tls_error_numbers_are_no_errno() -> None:
    error = ssl.SSLError(errno.ENOMEM, "x")
    error.reason = "BAD_RECORD_TYPE"
    with pytest.raises(ServerLost, match="TLS handshake"), failing_as("connect"):
        raise error


def test_a_time_out_is_the_servers_failure() -> None:
    with pytest.raises(ServerSilent), failing_as("connect"):
        raise TimeoutError
    assert own_failure(TimeoutError()) is None


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.EAGAIN, "x"), "ulimit -u"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (OSError(errno.EMFILE, "x"), "ulimit -n"),
        (OSError(errno.ENFILE, "x"), "fs.file-max"),
        (MemoryError(), "ulimit -v"),
        (OSError(errno.ENOMEM, "x"), "ulimit -v"),
        (OSError(errno.ENOSPC, "full"), "output not written: full"),
        (FileNotFoundError(errno.ENOENT, "missing", "/proc/stat"), "/proc/stat: expected a file"),
        (ExceptionGroup("", [ExceptionGroup("", [MemoryError()])]), "ulimit -v"),
    ],
)
def test_a_shortage_of_this_machine_names_its_limit(error: Exception, named: str) -> None:
    assert named in str(machine_failure(error))


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), RuntimeError("x"), OSError(errno.EBADF, "x"), ExceptionGroup("", [MemoryError(), KeyError("x")])],
)
def test_a_bug_is_no_shortage(error: Exception) -> None:
    assert machine_failure(error) is None


def test_a_process_that_cannot_start_is_bad_input() -> None:
    """As if the limit of processes were reached: before there is any load."""
    with pytest.raises(ConfigError, match="/nowhere/python: expected a file"):
        asyncio.run(start_process(("/nowhere/python",)))


LIMITED = """
import asyncio, os, resource, sys
from loadsim.engine.channel import start_process
from loadsim.errors import ConfigError

os.setuid(54321)  # a user without processes; root has no limit
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    asyncio.run(start_process((sys.executable, "-c", "")))
except ConfigError as refusal:
    print(refusal)
"""


@pytest.mark.system
def test_the_limit_of_processes_is_bad_input() -> None:
    ended = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    assert "ulimit -u" in ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", [("plan", "quickstart"), ("run", "quickstart", "--out", "{out}", "--no-report")])
def test_a_working_directory_that_was_removed_is_bad_input(command: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    words = [word.format(out=tmp_path / "out") for word in command]
    script = "import os, sys; os.rmdir(os.getcwd()); from loadsim.cli import main; sys.exit(main(sys.argv[1:]))"
    ended = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=tmp_path / "gone", capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (
        2,
        "loadsim: working directory: expected one that exists, found it removed\n",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.system
def test_a_system_without_proc_is_bad_input(tmp_path: Path) -> None:
    run = [sys.executable, "-P", "-m", "loadsim", "run", "quickstart", "--out", str(tmp_path / "out")]
    hide = 'mount --make-private /proc && mount -t tmpfs none /proc && exec "$@"'
    hidden = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", hide, "sh", *run]
    ended = subprocess.run(hidden, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        2,
        "loadsim: /proc/self/statm: expected Linux's /proc, which a run samples, found no such file\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_a_driver_is_an_internal_error() -> None:
    """A transport ends a connection by what its protocol raises."""
    failure = own_failure(KeyError("secret"))
    assert failure is not None
    assert failure.kind == "internal error: KeyError"
    assert own_failure(None) is own_failure(ServerLost("connection lost")) is None


def reached(monkeypatch: pytest.MonkeyPatch, errors: dict[str, OSError], took: set[str]) -> OSError:
    """Return the error of a host with two addresses that fail so, some of which once took a connection."""
    monkeypatch.setattr(connect, "_ADDRESSES", {"x": ["127.0.0.1", "::1"]})
    monkeypatch.setattr(connect, "_REACHED", took)

    async def connect_to(address: str) -> None:
        raise errors[address]

    with pytest.raises(OSError) as raised:
        asyncio.run(connect.first_answering("x", connect_to))
    return raised.value


def test_another_refusing_address_does_not_hide_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would refuse, and the server be blamed."""
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    for number in (errno.EMFILE, errno.ENOMEM):
        errors = {"127.0.0.1": OSError(number, "x"), "::1": refused}
        assert reached(monkeypatch, errors, set()).errno == number
    ports = {"127.0.0.1": OSError(errno.EADDRNOTAVAIL, "x"), "::1": refused}
    assert reached(monkeypatch, ports, {"127.0.0.1"}).errno == errno.EADDRNOTAVAIL


@pytest.mark.slow
def test_an_unavailable_address_family_is_no_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without IPv6, connecting to ::1 fails like a lack of ports; the error of a server that is down comes through."""
    errors = {"127.0.0.1": OSError(errno.EADDRNOTAVAIL, "x"), "::1": ConnectionRefusedError(errno.ECONNREFUSED, "x")}
    assert reached(monkeypatch, errors, set()).errno == errno.ECONNREFUSED
