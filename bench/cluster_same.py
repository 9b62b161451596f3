"""Compares two runs of a scenario user by user, such as one by a cluster and one by one machine.

What users do of themselves is fixed by scenario and seed: which activities, when each is due, to whom new mail goes.
That has to be the same to the microsecond. What follows from mail depends on when the mail arrived, and on what a run
came to before it ended: there, what both runs did has to be the same. A user does the same with a message in every
run; an answer that has the same id goes to the same recipients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadsim.model.message_tag import NEW_MAIL
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import EVENT

OWN = ("SEND", "BROWSE", "SCHEDULE")
"""Tasks that are due by the plan alone."""

DONE_WITH = ("moved", "copied", "deleted")
"""Events of users' actions on messages."""


@dataclass(frozen=True)
class Done:
    """Actions of the users of a run.

    `due`: by user and task, when it was due, in microseconds, as often as that. `new` and `answers`: the recipients of
    each message, as often as the server took it for them, by sender and id. `fates`: by user and message, their acts.
    """

    due: Mapping[tuple[int, str], Counter[int]]
    new: Mapping[tuple[int, str], Counter[int]]
    answers: Mapping[tuple[int, str], Counter[int]]
    fates: Mapping[tuple[int, str], frozenset[str]]
    digests: frozenset[str]
    users: Counter[int]


def done(run: Path) -> Done:
    """By the logs of a run directory."""
    log = read_logs([run])
    due: dict[tuple[int, str], Counter[int]] = {}
    names = log.names(log.tasks, "task")
    for user, name, at_us in zip(log.tasks["user"], names, log.tasks["scheduled_us"], strict=True):
        if name in OWN:
            due.setdefault((int(user), str(name)), Counter())[int(at_us)] += 1
    new: dict[tuple[int, str], Counter[int]] = {}
    answers: dict[tuple[int, str], Counter[int]] = {}
    accepted = log.mails[log.mails["event"] == EVENT["accepted"]]
    for message, user, sender in zip(accepted["message"], accepted["user"], accepted["sender"], strict=True):
        name = message.decode()
        of_kind = new if name.startswith(NEW_MAIL) else answers
        of_kind.setdefault((int(sender), name), Counter())[int(user)] += 1
    digests = frozenset({str(log.header.plan_digest)})
    users = Counter(user for source in log.sources if source.simulates for user in source.assignment or ())
    return Done(due, new, answers, _fates(log), digests, users)


def _fates(log: TimingLog) -> dict[tuple[int, str], frozenset[str]]:
    """Return the events of each message that came to an Inbox, by user and message."""
    found: dict[tuple[int, str], frozenset[str]] = {}
    for event in DONE_WITH:
        those = log.mails[log.mails["event"] == EVENT[event]]
        for message, user in zip(those["message"], those["user"], strict=True):
            key = int(user), message.decode()
            found[key] = found.get(key, frozenset()) | {event}
    return found


def compare(one: Done, other: Done) -> dict[str, Any]:
    """Return how many of each were equal, and the `differences`, which have to be empty."""
    differences: dict[str, list[str]] = {}

    def differ(what: str, keys: Iterable[object]) -> None:
        if told := sorted(map(str, keys)):
            differences[what] = [f"{len(told)}", *told[:5]]

    differ("plan digest", one.digests ^ other.digests)
    differ("users", one.users.keys() ^ other.users.keys())
    differ("users in two engines", [user for each in (one, other) for user, count in each.users.items() if count > 1])
    differ("due times", (key for key in one.due.keys() | other.due.keys() if one.due.get(key) != other.due.get(key)))
    differ("recipients of new mail", _unlike(one.new, other.new, one.new.keys() | other.new.keys()))
    both = one.answers.keys() & other.answers.keys()
    differ("recipients of answers", _unlike(one.answers, other.answers, both))
    fates = one.fates.keys() & other.fates.keys()
    differ("what was done with a message", (key for key in fates if one.fates[key] != other.fates[key]))
    return {
        "users": len(one.users),
        "plan_digest": "".join(sorted(one.digests))[:16],
        "due": sum(sum(counts.values()) for counts in one.due.values()),
        "new_mail": len(one.new),
        "new_mail_recipients": sum(sum(counts.values()) for counts in one.new.values()),
        "answers": {"both": len(both), "one": len(one.answers), "other": len(other.answers)},
        "fates": {"both": len(fates), "one": len(one.fates), "other": len(other.fates)},
        "differences": differences,
    }


def _unlike(
    one: Mapping[tuple[int, str], Counter[int]],
    other: Mapping[tuple[int, str], Counter[int]],
    keys: Iterable[tuple[int, str]],
) -> list[tuple[int, str]]:
    return [key for key in keys if one.get(key) != other.get(key)]
