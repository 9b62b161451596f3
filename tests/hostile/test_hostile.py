"""Each fault through each driver: the run ends, other users notice nothing, and the page has what was recorded."""

import re

import pytest

from loadsim.protocols.imap import connection

from .acts import Fault
from .cases import VICTIMS, play
from .page import TABLES, Table, read

LARGEST_ANSWER_BYTES = 32 << 20
"""A sixth of the limit, which a flood reaches in a sixth of the time; `make hostile` has the limit itself."""

NIGHTLY = pytest.mark.nightly(part="drivers")


def _runs() -> list[object]:
    """Return the runs of each fault; `make test` has that through the first driver which the fault concerns."""
    runs = []
    for table in TABLES:
        seen: set[str] = set()
        for fault, driver in table.runs():
            name = f"{table.title}-{fault.name}-{driver}".replace(" ", "_")
            runs.append(pytest.param(table, fault, driver, id=name, marks=[NIGHTLY] if fault.name in seen else []))
            seen.add(fault.name)
    return runs


@pytest.mark.parametrize(
    ("driver", "submission"),
    [("imap", "sequential"), ("aioimaplib", "aiosmtplib"), pytest.param("imap", "pipelining", marks=NIGHTLY)],
)
def test_without_a_fault_all_tasks_are_ok(driver: str, submission: str) -> None:
    """The man in the middle alone changes nothing, and mail arrives."""
    outcome = play(None, driver, submission)
    assert outcome.problems(None) == []
    assert outcome.recorded() == {}
    assert outcome.accepted and outcome.accepted == outcome.took == outcome.seen
    trace = [event["line"].partition(" ")[2] for event in outcome.told("line")]
    assert {event["user"] for event in outcome.told("line")} == {min(VICTIMS)}
    assert [line for line in trace if line.startswith("S: * OK") or "LOGOUT" in line]
    assert all(any(word in line for line in trace) for word in ("AUTH", " UID STORE ", "C: RCPT TO:<", "S: * 1 EXISTS"))


def test_a_failure_has_the_lines_before_it() -> None:
    fault = next(each for each in TABLES[0].faults if each.name == "APPEND literal refused")
    (failure,) = play(fault, "imap").told("failure")
    sent, answer = failure["lines"][-2:]
    assert re.fullmatch(r'\d\d:\d\d:\d\d\.\d{3} C: t\d+ APPEND "Sent Items" \(\\Seen\) \{\d+ bytes\}', sent)
    assert re.fullmatch(r"S: t\d+ NO \[TOOBIG\] no", answer)


@pytest.mark.parametrize(("table", "fault", "driver"), _runs())
def test_a_fault_stays_with_its_victims(
    table: Table, fault: Fault, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends, bystanders' tasks are ok, all mail is accounted for, and the page has what was recorded."""
    monkeypatch.setattr(connection, "LARGEST_ANSWER_BYTES", LARGEST_ANSWER_BYTES)
    outcome = table.play(fault, driver)
    problems = outcome.problems(fault)
    assert problems == [], f"{table.title}, {fault.name}, {driver}: {problems}"
    cells = read(table.title)[fault.name]
    assert cells[1 + table.drivers.index(driver)] == outcome.cell(), "make hostile"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_the_page_lists_all_faults(table: Table) -> None:
    """The page has each fault in order, with its sentence; other users noticed nothing, and each run completed."""
    found = read(table.title)
    assert [(name, cells[0]) for name, cells in found.items()] == [(each.name, each.about) for each in table.faults]
    assert {(cells[-3], cells[-1]) for cells in found.values()} == {("nothing", "completed")}
