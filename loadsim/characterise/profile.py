"""Profiles and a scenario from a measured workload. Each key says where it comes from: measured or assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from loadsim.characterise.workload import MeasuredSizes, MeasuredWorkload
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.scenario.mailboxes import LEAST_BYTES, MOST_BYTES
from loadsim.scenario.profile import load_profile

BASE = "loadsim-5.5/medium"
MOST_ANSWERED = 0.75
"""The largest share of sent mail that answers may be: with more, new mail would start too few threads."""

SENT_TO_RECEIVED = 20 / 80
"""Messages sent per message received, if the logs show only one of them: LoadGen's Heavy user (Dell BP1013)."""

PROCESSED_PER_DAY = 144
"""Every ten minutes of a day of 24 h."""


@dataclass(frozen=True, slots=True)
class Habits:
    """The rows of a group's profile: rates per user and day, and the addressing that makes the received mail.

    `answered` is the factor of the base's shares of replies and forwards.
    """

    name: str
    users: int
    sent: float
    received: float
    new: float
    answered: float
    recipients: int
    list_chance: float


def habits_of(workload: MeasuredWorkload) -> list[Habits]:
    """Return the habits of each group.

    Users of loadsim draw recipients from all users alike. So all groups receive the same, and all messages have as many
    recipients as make the received mail of the sent.
    """
    sent, received = both_rates(workload)
    outcomes = load_profile(BASE).after_reading
    share = outcomes.reply + outcomes.reply_all + outcomes.forward
    own = [group.sent.per_day if group.sent else sent for group in workload.groups]
    answered = [min(1.0, MOST_ANSWERED * rate / (received * share)) if received else 0.0 for rate in own]
    new = [rate - factor * received * share for rate, factor in zip(own, answered, strict=True)]
    users = [group.users for group in workload.groups]
    means = _Sent(
        *(
            _mean(rates, users)
            for rates in (
                [one + factor * received * outcomes.forward for one, factor in zip(new, answered, strict=True)],
                [factor * received * outcomes.reply for factor in answered],
                [factor * received * outcomes.reply_all for factor in answered],
            )
        )
    )
    recipients, chance = _addressing(means, received, workload.users)
    names = [f"measured-{number}" for number in range(1, len(own) + 1)] if len(own) > 1 else ["measured"]
    return [
        Habits(name, count, rate, received, one, factor, recipients, chance)
        for name, count, rate, one, factor in zip(names, users, own, new, answered, strict=True)
    ]


class _Sent(NamedTuple):
    """Messages that users send a day, on average over all of them: new mail and forwards, replies, replies to all."""

    addressed: float
    replies: float
    to_all: float


def _mean(rates: Sequence[float], users: Sequence[int]) -> float:
    return sum(rate * count for rate, count in zip(rates, users, strict=True)) / sum(users)


def _addressing(sent: _Sent, received: float, users: int) -> tuple[int, float]:
    """Return the recipients of new mail, and the chance of a list, that make the received mail of the sent.

    A reply to all has the recipients of what it answers, which may be a reply to all: hence the iteration.
    """
    recipients = chosen = of_reply_to_all = 1.0
    for _ in range(100):
        copies = received - sent.replies - sent.to_all * of_reply_to_all
        recipients = max(1.0, copies / sent.addressed) if sent.addressed else 1.0
        chosen = float(floor(recipients))
        made = sent.addressed * recipients + sent.replies + sent.to_all * of_reply_to_all
        if not made:
            break
        addressed, replied, again = (
            part / made for part in (sent.addressed * recipients, sent.replies, sent.to_all * of_reply_to_all)
        )
        # One who was addressed answers the sender and the others; a member of the list, the sender and all.
        of_first = chosen + (recipients - chosen) / recipients
        of_reply_to_all = (addressed * of_first + replied) / (1 - again) if again < 1 else of_first
    members = max(1.0, load_profile(BASE).lists.size.average * (1 - chosen / max(users, 2)))
    return int(chosen), min(1.0, (recipients - chosen) / members)


def both_rates(workload: MeasuredWorkload) -> tuple[float, float]:
    """Return the messages sent and received per user and day, one assumed from the other if it is not in the logs."""
    if workload.sent is None:
        assert workload.received is not None  # the reading rejects logs with neither
        return workload.received.per_day * SENT_TO_RECEIVED, workload.received.per_day
    received = workload.received.per_day if workload.received else workload.sent.per_day / SENT_TO_RECEIVED
    return workload.sent.per_day, received


def profile_text(workload: MeasuredWorkload, habits: Habits) -> str:
    """Return a profile as YAML, valid for `load_profile`."""
    software = workload.mail_software
    sent = f"measured: {software}" if workload.sent else "assumed: no log shows sent mail; a quarter of the received"
    received = (
        f"measured: {software}" if workload.received else "assumed: no log shows received mail; four times the sent"
    )
    outcomes = load_profile(BASE).after_reading
    shares = [
        f"  {name}: {_percent(habits.answered * getattr(outcomes, name))}" for name in ("reply", "reply_all", "forward")
    ]
    lines = [
        f"# Measured in logs of {software}, from {workload.begin} to {workload.end}. Rates per user and day.",
        f"name: {habits.name}",
        _key(f"from: {BASE}", "assumed: all other rows"),
        "",
        _key("day: 24h", "measured: the logs' days, with their hours in run.day_shape"),
        _key("night: 0s", "measured: the day includes it"),
        "",
        "new_mail:",
        _key(f"  per_day: {_number(habits.new)}", f"{sent}; without the answers below"),
        _key(f"  recipients: {habits.recipients}", "measured: what makes the received mail of the sent"),
        _key(f"  list_chance: {_percent(habits.list_chance)}", "measured: the rest of the recipients"),
        "",
        "process_inbox:",
        _key(f"  per_day: {PROCESSED_PER_DAY}", "assumed: every ten minutes"),
        "",
        "after_reading:",
        f"  # assumed: as {BASE}, but at most {MOST_ANSWERED:.0%} of the sent mail answers, which logs do not show",
        *shares,
        "",
        "lists:",
        "  # assumed: all users on lists, so that all receive about the same number",
        "  count: null",
        "  cover: 100%",
        "",
        *_sizes(workload.sizes, software),
        "calculated:",
        _key(f"  sent: {_number(habits.sent)}", sent),
        _key(f"  received: {_number(habits.received)}", received),
    ]
    return "\n".join(lines) + "\n"


def _sizes(sizes: MeasuredSizes | None, software: str) -> Iterator[str]:
    if sizes is None:
        return
    median, mean, most = lognormal(sizes)
    yield "message_sizes:"
    yield _key(f"  median: {median}", f"measured: {software}; of {sizes.messages:,} messages")
    yield _key(f"  mean: {mean}", f"measured: {software}")
    yield _key(f"  max: {most}", f"measured: {software}")
    yield _key("messages: null", "in place of LoadSim's kinds")
    yield ""


def lognormal(sizes: MeasuredSizes) -> tuple[int, int, int]:
    """Return median, mean and maximum in bytes, within the limits of a profile."""
    median = min(max(round(sizes.median_bytes), LEAST_BYTES), MOST_BYTES)
    mean = min(max(round(sizes.mean_bytes), median), 1000 * median)
    return median, mean, min(max(sizes.max_bytes, median), MOST_BYTES)


def scenario_text(workload: MeasuredWorkload, habits: list[Habits], files: list[str]) -> str:
    """Return a scenario of these users on the embedded server, for a plan; the server is to be replaced."""
    groups = [
        f"  - {{profile: {file}, users: {one.users}}}  # measured" for file, one in zip(files, habits, strict=True)
    ]
    shape = [
        f"  day_shape: [{', '.join(map(str, workload.day_shape))}]  # measured: messages by hour of the day"
        if workload.day_shape
        else "  day_shape: flat   # assumed: no complete day in the logs"
    ]
    lines = [
        f"# The users in logs from {workload.begin} to {workload.end}. For your own server, put the sections server,",
        "# allow_hosts, domain and accounts here that loadsim new writes.",
        "name: measured",
        "server: embedded",
        "",
        "topology:",
        *groups,
        "",
        "run:",
        *shape,
    ]
    return "\n".join(lines) + "\n"


def assumptions(workload: MeasuredWorkload, habits: list[Habits]) -> Iterator[Finding]:
    """Yield what the logs do not show, and what the profiles state instead."""
    missing = [
        name for name, known in (("sent mail", workload.sent), ("received mail", workload.received)) if known is None
    ]
    if missing:
        yield finding(Code.RATES_ASSUMED, what=tuple(missing))
    unseen = ["reading", "moving", "deleting", "browsing", "calendars", "answering"]
    unseen += [] if workload.log_ons else ["log-ons", "mail programs"]
    unseen += [] if workload.sizes else ["sizes"]
    yield finding(Code.HABITS_ASSUMED, what=tuple(unseen), profile=BASE)
    if workload.outside_share:
        yield finding(Code.MAIL_FROM_OUTSIDE, outside_share=workload.outside_share)
    if len(habits) > 1:
        yield finding(Code.GROUPS_RECEIVE_ALIKE, groups=len(habits))
    sent, received = both_rates(workload)
    if received < sent:
        yield finding(Code.MORE_SENT_THAN_RECEIVED, sent=sent, received=received)


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _key(key: str, source: str) -> str:
    return f"{key:37} # {source}"
