"""Plug-in of pytest: starts mail servers, refuses a run without them, fails tests that leave connections open."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import inspect
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import keeper
import pytest
from calendar_servers import calendar_server
from example_plugins import example_package
from hypothesis import HealthCheck, settings
from mailservers import dovecot_postfix, embedded_mapi_server, embedded_server, jmap_peer_server, server_directory
from provisioning import lab, make_lab
from skipping import run_watched

from bench.nullserver import compiler
from loadsim.errors import ConfigError
from loadsim.servers.dovecot_postfix import check_machine

__all__ = [
    "calendar_server",
    "dovecot_postfix",
    "embedded_mapi_server",
    "embedded_server",
    "example_package",
    "jmap_peer_server",
    "lab",
    "make_lab",
    "server_directory",
]

# Each run has the same examples; the fuzzer looks for others. None is wrong because the machine was busy for a moment.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

# A shell's background job ignores Ctrl-C, and one under nohup the hang-up: so would every process that a test starts.
SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
for number in SIGNALS:
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

# What is shown does not depend on the terminal of who tests: a dumb one has no live lines.
os.environ.pop("TERM", None)

# Without bytecode, every process that a test starts would compile all of loadsim.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

LONG_FIRST = ("tests/cluster", "bench/tests", "tests/servers", "tests/hostile", "tests/fuzz")
"""Directories whose files take minutes, in the order in which they are begun."""

_left_open: list[str] = []
"""The connections on which an event loop of this test was closed."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the test, which is its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_configure(config: pytest.Config) -> None:
    """Start the keeper of this run, and let runs plan into a cache of these tests; see `_watch_loops`."""
    if not hasattr(config, "workerinput"):  # else pytest-xdist's first process has done so
        if "MAKELEVEL" in os.environ:
            _end_with_parent()
        config.add_cleanup(keeper.start())
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="cache", dir=os.environ[keeper.PLACE])
    _watch_loops()


def _end_with_parent() -> None:
    """Ask the kernel to end this process with make, which may be killed alone (PR_SET_PDEATHSIG of prctl(2))."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)


def _watch_loops() -> None:
    """Have each event loop of asyncio's own tell what it leaves open; the collector would, but in any later test."""
    close: Callable[[Any], None] = asyncio.SelectorEventLoop.close

    def telling(loop: Any) -> None:
        if not loop.is_closed():
            _left_open.extend(repr(each) for each in loop._transports.values() if each._sock is not None)
        close(loop)

    asyncio.SelectorEventLoop.close = telling  # type: ignore[method-assign]


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own, whose clock can be put forward."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_watched(lambda: pyfuncitem.obj(**arguments))
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first: at the end, one process would run the last of them while the others have nothing to do."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}

    def rank(item: pytest.Item) -> tuple[int, bool]:
        path = item.path.as_posix()
        at = [number for number, directory in enumerate(LONG_FIRST) if f"/{directory}/" in path]
        return (at[0] if at else len(LONG_FIRST)), item.path not in slow

    items.sort(key=rank)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Check the machine if a selected test needs it; a worker of pytest-xdist has the first process do so."""
    if any(item.get_closest_marker("system") is not None for item in session.items):
        if hasattr(session.config, "workerinput"):
            _system_tests_selected().touch()
        else:
            _check_machine()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished() -> None:
    """Check the machine before pytest-xdist's first process assigns a test, which waits for all collections."""
    if _system_tests_selected().exists():
        _check_machine()


def _system_tests_selected() -> Path:
    """Return the file of this run that exists if a worker has selected a test marked `system`."""
    return Path(os.environ[keeper.PLACE]) / "system"


@cache
def _check_machine() -> None:
    """Stop before the first test if the machine lacks what tests marked `system` need: none is skipped."""
    try:
        user, cores = os.geteuid(), len(os.sched_getaffinity(0))
        if user != 0 or cores < 2:
            raise ConfigError(f"expected root and two cores, found user {user} and {cores}")
        check_machine()
        compiler()
    except ConfigError as lacking:
        told = "as root on Debian, make test installs what is missing; make test-fast needs none of it"
        raise pytest.UsageError(f"tests marked system: {lacking} ({told})") from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Fail a test that leaves something behind, of which it is a matter of luck whether it is missed.

    These are connections that an event loop did not outlive, and ignored signals: the processes of later tests would
    ignore them, too.
    """
    _left_open.clear()
    yield
    gc.unfreeze()  # `loadsim plan` leaves all objects to the end of its process
    ignored = [number.name for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
    for name in ignored:
        signal.signal(signal.Signals[name], signal.SIG_DFL)
    if ignored:
        pytest.fail(f"left ignored: {', '.join(ignored)}", pytrace=False)
    if _left_open:
        pytest.fail(f"left open when the event loop was closed: {', '.join(_left_open)}", pytrace=False)
