"""Mail that was removed shortly before a run, and where it makes a server slower.

Without a journal, ext4 needs processor time for minutes after many removals: of equal runs, the first one is then the
fastest.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from compared_runs import HEADER, write_run
from timing_samples import ENDED, START_NS, write_sample

from loadsim.analysis.summary import Summary, summarise
from loadsim.findings.catalogue import Code
from loadsim.findings.formats import Value
from loadsim.provisioning.initialise import Initialised

MANY = 1000


def stored_on(*journals: bool | None) -> list[dict[str, Any]]:
    system = {"source": "/dev/vda", "type": "ext4", "mounted_at": "/", "options": "rw", "model": None}
    return [{**system, "journal": journal, "open_by": ["imap"]} for journal in journals]


def write_machine(
    run: Path, removed: int, before_start_s: float, client: str = "c1", journal: bool | None = False, **more: Any
) -> None:
    """The log of a machine on which the preparation ended so long before the start; the window begins at the start."""
    facts = Initialised(2, put=7, removed=removed).facts(START_NS - round(before_start_s * 1e9))
    facts["server_file_systems"] = stored_on(True, journal)
    header = HEADER | {"run": run.name, "client": client, "engine": "machine", "engine_users": 0} | more
    write_sample(run / "logs" / f"{client}.machine.tlog", header=header, facts=ENDED | facts)


def prepared_run(place: Path, name: str, removed: int, before_start_s: float, **others: Any) -> Path:
    """A run on one machine, whose server is on ext4 without a journal."""
    run = write_run(place, name, **others)
    write_machine(run, removed, before_start_s, **({"embedded": True} if "embedded" in others else {}))
    return run


def warns_of(found: Summary) -> list[Mapping[str, Value]]:
    return [one.values for one in found.verdict.warnings if one.code is Code.REMOVALS_SLOW_SERVER]


@pytest.mark.parametrize(
    ("removed", "before_start_s", "warns"),
    [(MANY, 40, True), (MANY, 359, True), (MANY, 360, False), (MANY - 1, 40, False), (0, 40, False)],
)
def test_a_run_after_many_removals_says_so(tmp_path: Path, removed: int, before_start_s: float, warns: bool) -> None:
    found = summarise([prepared_run(tmp_path, "a", removed, before_start_s)])
    assert found.figures.window_s.begin_s == 0
    assert found.score["preparation"] == {
        "put": 7,
        "removed": removed,
        "ended_before_window_s": pytest.approx(before_start_s),
        "without_journal": True,
    }
    assert warns_of(found) == [{"removed": removed, "before_s": pytest.approx(before_start_s)}] * warns


@pytest.mark.parametrize("journal", [True, None])
def test_other_file_systems_do_not_suffer(tmp_path: Path, journal: bool | None) -> None:
    """An ext4 with a journal, and what is not known to be one without."""
    run = write_run(tmp_path, "a")
    write_machine(run, MANY, 40, journal=journal)
    found = summarise([run])
    assert (found.score["preparation"]["removed"], found.score["preparation"]["without_journal"]) == (MANY, False)
    assert not warns_of(found)


def test_old_logs_and_the_embedded_server_warn_of_nothing(tmp_path: Path) -> None:
    """The embedded server keeps its mail in memory."""
    assert "preparation" not in summarise([write_run(tmp_path, "old")]).score
    assert not warns_of(summarise([prepared_run(tmp_path, "a", MANY, 1, embedded=True)]))


def test_a_preparation_that_ends_after_the_start_is_none(tmp_path: Path) -> None:
    """Only a damaged log has one."""
    assert "preparation" not in summarise([prepared_run(tmp_path, "a", MANY, -1)]).score


def test_machines_count_together(tmp_path: Path) -> None:
    """Each prepared a part of the mailboxes; of those that removed mail, the one that ended last counts."""
    run = prepared_run(tmp_path, "a", 700, 900)
    write_machine(run, 0, 10, "c2", journal=None)
    expected = {"put": 14, "removed": 700, "ended_before_window_s": pytest.approx(900), "without_journal": True}
    assert summarise([run]).score["preparation"] == expected
    write_machine(run, 300, 50, "c3", journal=None)
    found = summarise([run])
    expected = {"put": 21, "removed": 1000, "ended_before_window_s": pytest.approx(50), "without_journal": True}
    assert found.score["preparation"] == expected
    assert len(warns_of(found)) == 1
