"""Mail in a report: new mail apart from what followed from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from timing_samples import done, event, skipped, write_sample
from virtual_runs import Lived, live, quiet, scenario_of

from loadsim.analysis.recorded_run import RecordedRun, read_run
from loadsim.analysis.series.mail import Copies, mail_series
from loadsim.analysis.series.tasks import bins_of
from loadsim.analysis.summary import summarise
from loadsim.model.terms import Window
from loadsim.report.document import Table
from loadsim.report.mail_flow import mail_blocks


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """A day of twelve users who write to each other and to a list, and answer."""
    profile = quiet(
        new_mail={"per_day": 15, "recipients": 3, "list_chance": "50%"},
        process_inbox={"per_day": 20},
        after_reading={"reply": "10%", "reply_all": "2%", "forward": "5%"},
    )
    place = tmp_path_factory.mktemp("mail")
    lists = {"count": 2, "size": {"min": 4, "average": 5, "max": 6}}
    return live(scenario_of(place / "run", (profile, 12), day="300s", lists=lists), place)


def recorded(lived: Lived) -> RecordedRun:
    """The run with the whole day as its window."""
    log = replace(lived.log, header=lived.log.header._replace(window_s=Window(0.0, 300.0), duration_s=300.0))
    return RecordedRun("run", log, summarise([log], commands=True))


def new_mail(lived: Lived) -> list[dict[str, Any]]:
    """Every copy of a new message that the mail system took, as the engine was told."""
    sent = {(task["user"], task["ended_ns"]) for task in lived.tasks("SEND")}
    return [mail for mail in lived.mails("accepted") if (mail["sender"], mail["at_ns"]) in sent]


def test_the_table_of_a_whole_run(lived: Lived) -> None:
    """New mail; replies and forwards beside it; together what the answer says of delivery."""
    run = recorded(lived)
    table, *_ = mail_blocks(run, bins_of(run.log))
    assert isinstance(table, Table)
    rows = {row[0]: row[1:] for row in table.rows}
    sent, copies = len(lived.tasks("SEND")), len(new_mail(lived))
    answers = sum(len(lived.tasks(name)) for name in ("REPLY", "REPLY ALL", "FORWARD"))
    end_ns = lived.tape.told["start_ns"] + 300 * 10**9
    accepted = sum(mail["at_ns"] < end_ns for mail in lived.mails("accepted"))
    assert answers > 50
    assert rows["Messages due"] == (sent, answers, sent + answers)
    assert rows["Copies accepted, one for each recipient"] == (copies, accepted - copies, accepted)
    assert rows["Copies delivered"][2] == run.figures.delivery.delivered


def test_copies_are_parted_by_what_they_are_of(tmp_path: Path) -> None:
    """By the message's id; those accepted in the window, in sight at any time, announced or found by polling."""
    write_sample(
        tmp_path / "run" / "a.tlog",
        [done("SEND", 100, 50), done("REPLY", 500, 100), skipped("FORWARD", 900)],
        [
            event("accepted", "n1.0", 2, 150),
            event("accepted", "n1.0", 256, 150),
            event("seen", "n1.0", 2, 200),
            event("found", "n1.0", 256, 1500),
            event("accepted", "rnnnn", 3, 600),
            event("accepted", "n1.1", 2, 1001),  # after the window
            event("seen", "n1.1", 2, 1002),
        ],
        header={"window_s": [0.0, 1.0], "duration_s": 2.0},
    )
    log = read_run(str(tmp_path / "run")).log
    found = mail_series(log, bins_of(log), Window(0.0, 1.0))
    assert (found.new, found.answers) == (Copies(2, 2, 1), Copies(1, 0, 0))
