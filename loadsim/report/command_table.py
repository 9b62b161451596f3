"""The report's section on single protocol commands."""

from __future__ import annotations

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report.document import Block, Column, Table

TIMES = (
    ("p50_ms", "50th"),
    ("p95_ms", "95th"),
    ("p99_ms", "99th"),
    ("max_ms", "Max"),
    ("mean_ms", "Mean"),
    ("stddev_ms", "Std. Dev."),
)
"""The statistics of a command's times, and the titles of their columns."""

ABOUT = (
    "Tasks consist of these commands. Times are in milliseconds, of the commands that succeeded, until the last byte of"
    " the response. IDLE lasts until the server's continuation request; DONE ends it."
)


def command_blocks(run: RecordedRun) -> tuple[Block, ...]:
    """Return the table of commands, named as in a server's log."""
    found = run.figures.commands
    if not found:
        return ("The logs hold no commands.",)
    columns = (
        Column("Command"),
        Column("Hits", 0),
        Column("Per second", 1),
        *(Column(title, 1) for _, title in TIMES),
        Column("Failed", 0),
    )
    length_s = run.window_s[1] - run.window_s[0]
    rows = tuple(
        (one.command, one.hits, one.hits / length_s, *(getattr(one.took, key) for key, _ in TIMES), one.failed)
        for one in found
    )
    return (ABOUT, Table("Commands that began in the window", columns, rows))
