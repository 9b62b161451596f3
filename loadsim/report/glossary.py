"""The last section of a report: its words, and where to read more."""

from __future__ import annotations

from loadsim.report.document import Block, Column, Section, Table

SCORE_IS = "the weighted average, over the kinds of task, of the time within which 19 of 20 tasks of a kind end"
"""The score on the first screen of a report."""

WORDS = (
    (
        "Task",
        "One timed action of a user, such as READ (open a message) or SEND. Its service time runs from its start to"
        " the last answer of the server.",
    ),
    ("Hit", "A task that succeeded. Only hits have a service time; failed tasks are counted apart."),
    (
        "Percentile",
        "The 95th percentile is the time that 95 of 100 hits did not exceed: one of twenty took longer. The median is"
        " the 50th. They are exact, not estimates from a histogram.",
    ),
    ("Warm-up", "The time before the window: caches fill, and its tasks are not scored."),
    ("Window", "The time whose tasks are scored. A task belongs to it by when it was due."),
)
"""Words of every report, with their meanings."""

WORDS_OF_A_PLAN = (
    (
        "Score",
        "The weighted average of the 95th percentiles of the tasks with a weight: the lower, the faster the server"
        " answered. Compare it with scores of the same plan only.",
    ),
    (
        "Weight",
        "How much a task counts in the score. Unless a scenario says otherwise, READ counts 10 and the others 1.",
    ),
    (
        "Due time, response time",
        "The plan says when each task is due, however slow the server is. The response time counts from then: it"
        " includes the wait for a server that falls behind. Measurements without it look better than what users see"
        " (coordinated omission).",
    ),
    (
        "Late start",
        "A task began after its due time: because the user was still busy, because the session was down, or because"
        " the generator was late. The first two are the server's; the third makes a run invalid if it is large.",
    ),
    (
        "Infinite response time",
        'A task that was due and never succeeded has no end: it counts as infinite, shown as "never". So a server'
        " that fails tasks cannot look faster.",
    ),
    (
        "95 % interval, 95 % CI",
        "In 95 of 100 windows, such an interval contains the figure that an endless run under the same conditions would"
        " have."
        " It does not cover the difference between two runs.",
    ),
    (
        "Compressed day",
        "The tasks of a whole day, in less time. The 8-hour equivalent is the number of users with a day of 8 h whose"
        " tasks would come due at the same rate. Only rates grow; sessions and mailboxes do not: it does not replace a"
        " run with as many users as you expect.",
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
    (
        "Overloaded",
        "A run in which the server did not take the load. It is an answer, and is not repeated.",
    ),
    ("New / Base", "1.200 means that new takes 20 % longer. It is the ratio of unrounded figures."),
    ("p", f"{P_IS[:1].upper()}{P_IS[1:].format(tasks='number of tasks')}."),
    ("Detectable", f"{DETECTABLE_IS[:1].upper()}{DETECTABLE_IS[1:]}"),
)
"""Words of the tables of a suite, and of its comparisons."""

WORDS_OF_MAIL = (
    ("Delivery time", "From the server's acceptance of a message until its recipient sees it."),
    ("Copy", "A message for one recipient: a message to three recipients has three copies."),
)

WORDS_OF_THE_GENERATOR = (
    (
        "Generator, client, engine",
        "The generator makes the load: on each client machine, one engine (a process) for each core that it uses.",
    ),
    (
        "Event loop's lag",
        "How late a timer of the engine fires, tried 100 times a second. A large lag would add to the measured times.",
    ),
    (
        "Valid, degraded, invalid",
        "Whether the figures may be believed: yes; with reservations, which are listed; no. Whether the criteria are"
        " met is a second question.",
    ),
    ("Criterion", "A limit of the scenario for a figure. A run passes if it is not invalid and meets all of them."),
)

MORE = (
    ("docs/how-to/read-a-score.md", "how to read a score, step by step"),
    ("docs/how-to/make-a-report.md", "the sections of this report"),
    ("docs/how-to/compare-runs.md", "how to compare two servers or versions"),
    ("docs/explanation/measurement.md", "what is measured, and from when to when"),
    ("docs/reference/run-directory.md", "every figure of score.json, and when a run is invalid"),
    ("docs/reference/tasks.md", "every task and its commands"),
)
"""Pages of loadsim's documentation on these words."""


def glossary(stress: bool, own: Words = ()) -> Section:
    """Return the words of a report; `own` are those of its tables, which stand first."""
    words = (*own, *WORDS, *(() if stress else WORDS_OF_A_PLAN), *WORDS_OF_MAIL, *WORDS_OF_THE_GENERATOR)
    blocks: tuple[Block, ...] = (
        Table("Words of this report", (Column("Word"), Column("Meaning")), words),
        Table(
            "More, in loadsim's documentation",
            (Column("About"), Column("Page")),
            tuple((what, page) for page, what in MORE),
        ),
    )
    return Section("Glossary", blocks)
