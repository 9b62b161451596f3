"""Reports of drivers of plug-ins: checked before they reach the observer of a user."""

import sys
from pathlib import Path
from typing import Any

import pytest
from example_plugins import package_of
from virtual_runs import NOWHERE

from loadsim.errors import PluginFailed, ServerLost
from loadsim.model.plugin_reports import LONGEST_COMMAND_NAME, MOST_COMMANDS
from loadsim.model.ports import ALL_TASKS, Account, Observer
from loadsim.model.records import OUTCOMES
from loadsim.protocols.lines import NO_LINES
from loadsim.protocols.mail_driver import MailDriver
from loadsim.protocols.registry import open_driver
from loadsim.timinglog.writer import TimingLogWriter

DRIVER = """
from loadsim.model.ports import ALL_TASKS

class Driver:
    name, supported_tasks, takes_programs = "other", ALL_TASKS, True

    def session(self, account, observer):
        return observer

    def outside(self, account, observer):
        return observer

def open_driver(services):
    return Driver()
"""
"""A driver whose session is the observer that it got."""

ACCOUNT = Account(1, "u1", "u1@sim.test", "secret")

NOW = 10**12
WRONG = {
    "past": ("X", -(2 * 10**18), "ok", 1, 1),
    "future": ("X", NOW + 1, "ok", 1, 1),
    "float": ("X", 1e12, "ok", 1, 1),
    "outcome": ("X", NOW, "bogus", 1, 1),
    "sent": ("X", NOW, "ok", -1, 1),
    "received": ("X", NOW, "ok", 1, 0.5),
    "no name": ("", NOW, "ok", 1, 1),
    "long name": ("X" * 49, NOW, "ok", 1, 1),
    "name of two lines": ("X\n", NOW, "ok", 1, 1),
    "number as name": (5, NOW, "ok", 1, 1),
}


class Noted:
    def __init__(self) -> None:
        self.commands: list[tuple[object, ...]] = []
        self.messages: list[int] = []
        self.failures: list[Exception] = []
        self.lines = NO_LINES

    def now(self) -> int:
        return NOW

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: Any) -> None:
        self.commands.append((name, since, outcome, sent_bytes, received_bytes))

    def arrived(self, messages: int, *_: Any) -> None:
        self.messages.append(messages)

    def lost(self, failure: Exception) -> None:
        self.failures.append(failure)


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture(params=["session", "outside"])
def reported(noted: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Observer:
    place = package_of(tmp_path / "package", DRIVER, protocols="other = other:open_driver")
    monkeypatch.delitem(sys.modules, "other", raising=False)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    driver = open_driver("other", NOWHERE)
    assert (driver.name, driver.supported_tasks) == ("other", ALL_TASKS)
    assert getattr(driver, "takes_programs", False)
    assert not hasattr(driver, "anything_else")
    observer: Observer = getattr(driver, request.param)(ACCOUNT, noted)
    return observer


def test_valid_reports_pass(noted: Noted, reported: Observer) -> None:
    lost = ServerLost("gone")
    for outcome in ("ok", "refused", "lost", "timeout"):
        reported.command("X" * LONGEST_COMMAND_NAME, reported.now() - 10**9, outcome, 0, 2**40)
    reported.arrived(3)
    reported.lost(lost)
    name = "X" * LONGEST_COMMAND_NAME
    assert noted.commands == [
        (name, NOW - 10**9, outcome, 0, 2**40) for outcome in ("ok", "refused", "lost", "timeout")
    ]
    assert (noted.messages, noted.failures) == ([3], [lost])


@pytest.mark.parametrize("report", WRONG.values(), ids=list(WRONG))
def test_a_wrong_command_names_the_package(report: Any, noted: Noted, reported: Observer) -> None:
    """It is not recorded, and ends the session by a failure of the generator."""
    reported.command(*report)
    (failure,) = noted.failures
    assert isinstance(failure, PluginFailed)
    assert failure.outcome == "generator"
    assert failure.kind == "error in the plug-in other: wrong report"
    assert failure.line.startswith("command: expected ")
    assert not noted.commands


def test_wrong_announcements_and_failures_are_reported_too(noted: Noted, reported: Observer) -> None:
    """A count of messages is whole, and a failure is an exception."""
    reported.arrived(-1)
    reported.arrived(1.5)  # type: ignore[arg-type]
    reported.lost("gone")  # type: ignore[arg-type]
    assert [failure.line.partition(":")[0] for failure in noted.failures if isinstance(failure, PluginFailed)] == [
        "arrived",
        "arrived",
        "lost",
    ]


def test_further_names_of_commands_are_counted_as_others(noted: Noted, reported: Observer) -> None:
    for number in [*range(MOST_COMMANDS + 50), 0]:
        reported.command(f"X {number}", NOW, "ok", 1, 1)
    names = [str(command[0]) for command in noted.commands]
    assert names[:MOST_COMMANDS] == [f"X {number}" for number in range(MOST_COMMANDS)]
    assert set(names[MOST_COMMANDS:-1]) == {"others"}
    assert names[-1] == "X 0"


def test_loadsims_own_drivers_report_directly() -> None:
    """Their reports are right, and a check of each command would cost time."""
    assert isinstance(open_driver("imap", NOWHERE), MailDriver)


@pytest.mark.parametrize("started_ns", [-2 * 10**18, 2 * 10**18])
def test_a_writer_takes_no_command_that_its_reader_rejects(started_ns: int, tmp_path: Path) -> None:
    """An odd message id is rejected, too: either would make the whole log unreadable."""
    log = TimingLogWriter(tmp_path / "a.tlog", {}, 0)
    with pytest.raises(ValueError, match="expected a command within 35 years"):
        log.command(("X", 1, started_ns, started_ns, OUTCOMES[0], 0, 0))
    for message in ("n 1", "n\x7f", "nä"):
        with pytest.raises(ValueError, match="expected an id of printable ASCII"):
            log.mail(("seen", message, 1, 1, 0, ""))
    log.close()
