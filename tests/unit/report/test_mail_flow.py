"""Mail in a report."""

from pathlib import Path

from timing_samples import done, event, skipped, write_sample

from loadsim.analysis.recorded_run import read_run
from loadsim.analysis.series.tasks import bins_of
from loadsim.report.document import Table
from loadsim.report.mail_flow import mail_blocks


def test_the_table_counts_messages_and_copies(tmp_path: Path) -> None:
    """Messages by their due time, copies by their acceptance, in sight at any time, announced or found by polling."""
    write_sample(
        tmp_path / "run" / "a.tlog",
        [done("SEND", 100, 50), done("REPLY", 500, 100), skipped("FORWARD", 900), done("READ", 500, 1)],
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
    run = read_run(str(tmp_path / "run"))
    table, *_ = mail_blocks(run, bins_of(run.log))
    assert isinstance(table, Table)
    assert [number for _, number in table.rows] == [3, 2, 0, 1, 3, 2, 1, 0, 1, 0, 1]
