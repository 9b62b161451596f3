"""The last section of a report: its words, and where to read more."""

from __future__ import annotations

from loadsim.report.document import Column, Section, Table

SCORE_IS = "the weighted average, over the kinds of task, of the time within which 19 of 20 tasks of a kind end"
"""The score on the first screen of a report."""

WORDS = (
    ("Task", "A timed action of a user. Its service time runs from its start to the last answer of the server."),
    ("Hit", "A task that succeeded. Only hits have a service time."),
    ("95th percentile", "The time that 95 of 100 hits did not exceed. Percentiles are exact."),
    ("Window", "The time after the warm-up whose tasks are scored. A task belongs to it by when it was due."),
    ("Copy", "A message for one recipient. Its delivery lasts from its acceptance until the recipient sees it."),
    ("Engine", "A process that makes load. The lag of its event loop would add to the measured times."),
    (
        "Valid, degraded, invalid",
        "Whether the figures may be believed: yes; with the listed reservations; no.",
    ),
)
"""Words of every report, with their meanings."""

WORDS_OF_A_PLAN = (
    ("Score", "The weighted average of the 95th percentiles: the lower, the faster. Compare scores of one plan only."),
    (
        "Due time, response time",
        "The plan says when a task is due, however slow the server is. The response time counts from then. It is"
        " infinite (never) for a task that did not succeed.",
    ),
    (
        "95 % interval, 95 % CI",
        "It contains the figure of an endless run for 95 of 100 windows. It does not cover other runs.",
    ),
)
"""Words of runs with due times, which a closed loop lacks."""

P_IS = "the probability of such a difference between equal servers, corrected for the {tasks} (Holm)"

DETECTABLE_IS = (
    "the ratio that runs which vary like these show with a probability of 80 %. A smaller difference may stay hidden."
)

LOAD_MADE_IS = (
    "The tasks that users began in the window, as a share of those that the plan expects there. It may be a few per"
    " cent above 100 %: mail that takes longer than in the plan moves tasks from the warm-up into the window, and users"
    " repeat READs that failed."
)

Words = tuple[tuple[str, str], ...]
"""Words with their meanings."""

WORDS_OF_RUNS: Words = (
    (
        "Came due, achieved",
        "Tasks per second in the window: those that came due, and those of them that succeeded. If the server is slow,"
        " fewer come due than planned.",
    ),
    ("Load made", LOAD_MADE_IS),
    ("READ, 95th", "The 95th percentile of READ alone: how long it takes to open a message."),
    ("Undelivered", "Messages that the server accepted and no recipient saw by the end."),
    ("Engine CPU", "The processor time of the busiest engine; at 100 % of a core, it can make no more load."),
)
"""Words of the tables of several runs."""

WORDS_OF_CELLS: Words = (
    ("Cell", "A server, a profile, a number of users and settings; its runs are repeats of one another."),
    ("New / Base", "1.200 means that new takes 20 % longer. It is the ratio of unrounded figures."),
    ("p", f"{P_IS[:1].upper()}{P_IS[1:].format(tasks='number of tasks')}."),
    ("Detectable", f"{DETECTABLE_IS[:1].upper()}{DETECTABLE_IS[1:]}"),
)
"""Words of the tables of a suite, and of its comparisons."""


def glossary(stress: bool, own: Words = ()) -> Section:
    """Return the words of a report; `own` are those of its tables, which stand first."""
    words = (*own, *WORDS, *(() if stress else WORDS_OF_A_PLAN))
    table = Table("Words of this report", (Column("Word"), Column("Meaning")), words)
    return Section("Glossary", (table, "docs/how-to/read-a-score.md explains each figure, step by step."))
