"""Mail in a report: what the plan has of it against what came of it, new mail apart from what followed from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from timing_samples import done, event, skipped, write_sample
from virtual_runs import Lived, live, quiet, scenario_of

from loadsim.analysis.mail_series import Copies, mail_series
from loadsim.analysis.planned_mail import planned_mail
from loadsim.analysis.recorded_run import RecordedRun, read_run
from loadsim.analysis.summary import summarise
from loadsim.analysis.time_series import bins_of
from loadsim.model.partition import divide
from loadsim.model.terms import Window
from loadsim.model.workload import Workload, plan_digest
from loadsim.report.document import Table
from loadsim.report.mail_flow import mail_blocks
from loadsim.timinglog.reader import Source


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


def recorded(lived: Lived, header: Mapping[str, Any] | None = None, sources: tuple[Source, ...] = ()) -> RecordedRun:
    """The run as it is read from its directory, with a header of its own scenario and plan."""
    scenario = lived.scenario
    digests = {"scenario_digest": scenario.digest(), "plan_digest": plan_digest(Workload(scenario))}
    own = {**lived.log.header, **digests, "window_s": [0.0, 300.0], "duration_s": 300.0, **(header or {})}
    log = replace(lived.log, header=own, sources=sources or lived.log.sources)
    place = next(Path(group.reference or "").parent for group in scenario.topology)
    return RecordedRun(str(place), log, summarise([log], commands=True))


def new_mail(lived: Lived) -> list[dict[str, Any]]:
    """Every copy of a new message that the mail system took, as the engine was told."""
    sent = {(task["user"], task["ended_ns"]) for task in lived.tasks("SEND")}
    return [mail for mail in lived.mails("accepted") if (mail["sender"], mail["at_ns"]) in sent]


@pytest.mark.slow
def test_the_plan_has_what_a_whole_run_sends(lived: Lived) -> None:
    """All messages were sent and nobody was late at the end: as many messages and copies as the mail system took."""
    found = planned_mail(recorded(lived))
    assert found is not None
    accepted = new_mail(lived)
    assert len(accepted) > 500
    assert lived.outcomes("SEND").count("ok") == len(lived.tasks("SEND"))
    assert found.within(Window(0.0, 300.0)) == (len(lived.tasks("SEND")), len(accepted))
    half = [task for task in lived.tasks("SEND") if task["scheduled_ns"] - lived.tape.told["start_ns"] < 150e9]
    assert found.within(Window(0.0, 150.0))[0] == len(half)


def test_only_the_users_whose_logs_there_are_count(lived: Lived) -> None:
    """Of one engine of two, what its users were to send."""
    hand = divide(12, 2)[1]
    run = recorded(lived, sources=(replace(lived.log.sources[0], assignment=hand),))
    found = planned_mail(run)
    assert found is not None
    assert found.within(Window(0.0, 300.0))[1] == sum(mail["sender"] in hand for mail in new_mail(lived))


@pytest.mark.parametrize("header", [{"scenario_digest": "s1"}, {"plan_digest": "p1"}, {"mode": "stress"}])
def test_another_plan_is_not_taken_for_this_ones(lived: Lived, header: dict[str, Any]) -> None:
    """Where the scenario is not that of the log, or its plan another one, or nothing was planned: nothing is said."""
    assert planned_mail(recorded(lived, header)) is None


def test_the_table_of_a_whole_run(lived: Lived) -> None:
    """New mail against the plan; replies and forwards beside it; together what the answer says of delivery."""
    run = recorded(lived)
    table, *_ = mail_blocks(run, bins_of(run.log))
    assert isinstance(table, Table)
    rows = {row[0]: row[1:] for row in table.rows}
    sent, copies = len(lived.tasks("SEND")), len(new_mail(lived))
    answers = sum(len(lived.tasks(name)) for name in ("REPLY", "REPLY ALL", "FORWARD"))
    end_ns = lived.tape.told["start_ns"] + 300 * 10**9
    accepted = sum(mail["at_ns"] < end_ns for mail in lived.mails("accepted"))
    assert answers > 50
    assert rows["Messages in the plan"] == (sent, None, None)
    assert rows["Messages due"] == (sent, answers, sent + answers)
    assert rows["Copies in the plan, one for each recipient"] == (copies, None, None)
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


def test_planned_copies_are_drawn(lived: Lived) -> None:
    """By the second in which their message was due: over the run, as many as the plan has."""
    run = recorded(lived)
    charts = [block for block in mail_blocks(run, bins_of(run.log)) if not isinstance(block, str | Table)]
    (panels,) = (chart.panels for chart in charts)  # type: ignore[union-attr]
    (line,) = (line for panel in panels for line in panel.lines if line.name == "planned, new mail")
    bins = bins_of(run.log)
    per_s = np.array(line.values, float)
    assert (per_s * bins.lengths_s).sum() == pytest.approx(len(new_mail(lived)))
