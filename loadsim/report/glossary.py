"""The last section of a report: its words."""

from __future__ import annotations

from loadsim.report.document import Column, Section, Table

SCORE_IS = "the weighted average, over the kinds of task, of the time within which 19 of 20 tasks of a kind end"
"""The score on the first screen of a report."""

_WORDS = (
    ("Score", f"{SCORE_IS[:1].upper()}{SCORE_IS[1:]}: the lower, the faster. Compare scores of one plan only."),
    ("Task", "A timed action of a user. Its service time runs from its start to the last answer of the server."),
    (
        "Due time, response time, response score",
        "The plan says when a task is due, however slow the server is. The response time counts from then. It is"
        " infinite (never) for a task that did not succeed. The response score is made of response times.",
    ),
    ("Hit", "A task that succeeded. Only hits have a service time."),
    ("95th percentile", "The time that 95 of 100 hits did not exceed. Percentiles are exact."),
    (
        "Window",
        "The time after the warm-up whose tasks are scored. A task belongs to it by when it was due."
        " LOGON and LOGOFF are of the whole run.",
    ),
    (
        "Load made",
        "The tasks that users began in the window, as a share of those that the plan expects there. Mail that takes"
        " longer than in the plan moves tasks into the window: it may be a few per cent above 100 %.",
    ),
    (
        "Copy",
        "A message for one recipient. Its delivery lasts from its acceptance until the recipient sees it. In"
        " comparisons, less than 100 ms counts as 100 ms.",
    ),
    ("Engine", "A process that makes load. The lag of its event loop would add to the measured times."),
    (
        "95 % interval, 95 % CI",
        "It contains the figure of an endless run, or the ratio of endless series of runs, in 95 of 100 cases. That of"
        " a single run does not cover other runs.",
    ),
    (
        "p",
        "The probability of such a difference between equal servers, corrected for the number of tasks (Holm); those of"
        " scores stand alone.",
    ),
    (
        "Detectable",
        "The ratio that runs which vary like these show with a probability of 80 %. A smaller difference may stay"
        " hidden.",
    ),
    ("Valid, degraded, invalid", "Whether the figures may be believed: yes; with the listed reservations; no."),
)

GLOSSARY = Section("Glossary", (Table("Words of this report", (Column("Word"), Column("Meaning")), _WORDS),))
"""All reports have these words; docs/how-to/read-a-score.md tells more."""
