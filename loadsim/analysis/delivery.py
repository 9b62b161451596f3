"""The delivery of mail: from acceptance by the server to the recipient's mailbox, per message and recipient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.clock_correction import StationClock, station_clock
from loadsim.analysis.json_values import INLINE
from loadsim.analysis.score import Times
from loadsim.model.partition import CIRCLE, Assignment
from loadsim.model.records import EVENTS
from loadsim.timinglog.columns import concatenate
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import WHOLE_RECORDS, TimingLog
from loadsim.timinglog.records import EVENT, KINDS, NEVER, Records

_KEY = np.dtype([("run", ">u2"), ("message", "S20"), ("user", ">u4")])
"""The run, too: ids of messages are the same in every run of a scenario."""

_MESSAGE_AT = _KEY["run"].itemsize
"""Where the id of the message begins in a key."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delivery of the messages accepted in a window, counted per recipient.

    Delivered: seen or found by the recipient. `took` is from acceptance to the first sight of all messages but the
    unwatched ones; a message that never arrived took infinitely long, the others are `timed`. `found` of the delivered
    ones were not announced to a waiting session: the recipient saw them by listing the Inbox, after a log-on or at the
    end of the drain. `undelivered` were never in the sight of a recipient who was there when the run ended.
    `unwatched` are messages whose arrival was not observed: their recipients were lost with their engine before they
    saw them, or had stopped waiting for mail, or the log has nothing of the machine that simulated them.
    `early` were seen before they were accepted, the earliest by `earliest_ms`; `took` has them as 0. On one machine
    that is the server's doing, of several the difference between their clocks, too.
    `clock_error_ms` is how far any of the times may be wrong because two machines have two clocks: 0 on one machine,
    None where the clocks were not compared. See `clock_correction`.
    `undelivered_at_end` counts all accepted messages of the log, also outside the window, that no recipient saw.
    `duplicates` are copies that came into a recipient's sight beyond the first, or into that of somebody else, of all
    messages of the run.
    `under_way` is the server's queue as it is seen from outside: how many watched messages were accepted and not in
    sight yet, whenever that was, at each whole second of the window and at its end.
    """

    accepted: float
    delivered: float
    timed: float
    found: float
    undelivered: float
    unwatched: float
    early: float
    earliest_ms: float | None
    clock_error_ms: float | None
    undelivered_at_end: float
    duplicates: float
    under_way_max: float
    under_way_at_end: float
    took: Times = field(metadata=INLINE)


def delivery(log: TimingLog, window_s: tuple[float, float]) -> Delivery:
    """Join acceptance with what was seen, on run, message and recipient, over all engines of the log.

    The instant of acceptance places a message in the window. A server may show a message to its recipient before
    its sender has read the acceptance: that is a delivery time of 0.
    """
    instants_us = _whole_seconds_us(window_s)
    clock = station_clock(log)
    joined = [_join(log, clock, mails, window_s, instants_us) for mails in mails_by(log, "sender")]
    accepted, delivered, unwatched, found, undelivered_at_end, duplicates = (
        sum(getattr(some, name) for some in joined)
        for name in ("accepted", "delivered", "unwatched", "found", "undelivered_at_end", "duplicates")
    )
    under_way = sum((some.under_way for some in joined), np.zeros(len(instants_us), np.int64))
    all_us = np.concatenate([some.took_us for some in joined])
    early_us = -all_us[all_us < 0]
    undelivered = accepted - delivered - unwatched
    return Delivery(
        accepted=accepted,
        delivered=delivered,
        timed=delivered,
        found=found,
        undelivered=undelivered,
        unwatched=unwatched,
        early=len(early_us),
        earliest_ms=float(early_us.max()) / 1000 if len(early_us) else None,
        clock_error_ms=max(some.clock_error_us for some in joined) / 1000 if clock.compared else None,
        undelivered_at_end=undelivered_at_end,
        duplicates=duplicates,
        under_way_max=int(under_way.max()),
        under_way_at_end=int(under_way[-1]),
        took=Times.of_sorted(np.sort(np.maximum(all_us, 0)), infinite=undelivered),
    )


def _whole_seconds_us(window_s: tuple[float, float]) -> NDArray[np.int64]:
    """Return the window's begin, each second after it, and its end; in a long window, about a million instants."""
    begin_us, end_us = (round(at_s * 1_000_000) for at_s in window_s)
    step_us = 1_000_000 * max(1, (end_us - begin_us) // _MOST_SECONDS_US)
    return np.append(np.arange(begin_us, end_us, step_us), end_us)


def mails_by(log: TimingLog, field: str) -> Iterator[Records]:
    """The acceptances and arrivals of messages, in as many parts as memory asks for: each has all that agree in the
    field.
    """
    telling = np.isin(EVENTS, ("accepted", "seen", "found"))
    many = sum(int(np.count_nonzero(telling[mails["event"]])) for mails in log.pieces("mails"))
    parts = max(1, math.ceil(many / WHOLE_RECORDS))
    for part in range(parts):
        some = (mails.kept(telling[mails["event"]] & (mails[field] % parts == part)) for mails in log.pieces("mails"))
        yield concatenate(some, KINDS["mails"], many)


_MOST_SECONDS_US = (1 << 20) * 1_000_000


@dataclass(frozen=True, slots=True)
class _Joined:
    """The `Delivery` of some of the recipients. `took_us` is negative for messages seen before their acceptance."""

    accepted: int
    delivered: int
    took_us: NDArray[np.int64]
    undelivered_at_end: int
    unwatched: int
    found: int
    duplicates: int
    under_way: NDArray[np.int64]
    clock_error_us: int


def _join(
    log: TimingLog,
    clock: StationClock,
    mails: Records,
    window_s: tuple[float, float],
    instants_us: NDArray[np.int64],
) -> _Joined:
    mail = _journeys(log, clock, mails)
    inside, arrived = in_window(mail.accepted_us, window_s), mail.arrived_us != NEVER
    delivered = inside & arrived
    came_us = np.maximum(mail.arrived_us, mail.accepted_us)
    sent_us, seen_us = np.sort(mail.accepted_us[~mail.unwatched]), np.sort(came_us[arrived])
    return _Joined(
        accepted=int(np.count_nonzero(inside)),
        delivered=int(np.count_nonzero(delivered)),
        took_us=(mail.arrived_us - mail.accepted_us)[delivered],
        undelivered_at_end=int(np.count_nonzero(~arrived & ~mail.unwatched)),
        unwatched=int(np.count_nonzero(inside & mail.unwatched)),
        found=int(np.count_nonzero(delivered & ~mail.announced)),
        duplicates=int(np.maximum(mail.copies - 1, 0).sum()) + mail.strayed,
        under_way=np.searchsorted(sent_us, instants_us) - np.searchsorted(seen_us, instants_us),
        clock_error_us=int(mail.clock_error_us[delivered].max(initial=0)),
    )


@dataclass(frozen=True, slots=True)
class Journeys:
    """Messages that were accepted, once per recipient, in no order; instants in microseconds from the common start.

    `arrived_us` is when its recipient first had it in sight, NEVER if it never came: the time between the two is the
    delivery time. `announced`: the server told the waiting session of it. `copies`: how often it came into sight.
    `letter` is the first of the message's id, in ASCII. `unwatched`: it is unknown whether it arrived. `strayed`: how
    many copies came into the sight of somebody for whom the message was not accepted.

    Both instants are by the station's clock, where machines have compared theirs with it; the time between the two may
    be wrong by `clock_error_us`, 0 on one machine.
    """

    accepted_us: NDArray[np.int64]
    arrived_us: NDArray[np.int64]
    announced: NDArray[np.bool_]
    copies: NDArray[np.int64]
    letter: NDArray[np.uint8]
    unwatched: NDArray[np.bool_]
    clock_error_us: NDArray[np.int64]
    strayed: int


def journeys(log: TimingLog) -> Iterator[Journeys]:
    """Where each accepted message came to, over all engines of the log; all of some senders at a time."""
    clock = station_clock(log)
    for mails in mails_by(log, "sender"):
        yield _journeys(log, clock, mails)


def _journeys(log: TimingLog, clock: StationClock, mails: Records) -> Journeys:
    """Where each message came to, of these senders."""
    event = mails["event"]
    accepted = _First(log, clock, mails[event == EVENT["accepted"]])
    arrived_us = np.full(len(accepted.keys), np.iinfo(np.int64).max)
    announced = np.zeros(len(accepted.keys), np.bool_)
    copies = np.zeros(len(accepted.keys), np.int64)
    clock_error_us = np.zeros(len(accepted.keys), np.int64)
    strayed = 0
    for name in ("seen", "found"):
        came = _First(log, clock, mails[event == EVENT[name]])
        strayed += _strayed(accepted, came)
        _, of_accepted, of_came = np.intersect1d(accepted.keys, came.keys, assume_unique=True, return_indices=True)
        copies[of_accepted] += came.times[of_came]
        first = came.at_us[of_came] < arrived_us[of_accepted]
        of_accepted, of_came = of_accepted[first], of_came[first]
        arrived_us[of_accepted] = came.at_us[of_came]
        announced[of_accepted] = name == "seen"
        error_us = accepted.error_us[of_accepted] + came.error_us[of_came]
        here = accepted.client[of_accepted] == came.client[of_came]
        clock_error_us[of_accepted] = np.where(here, 0, error_us)
    arrived_us[copies == 0] = NEVER
    letter = accepted.keys.view(np.uint8).reshape(len(accepted.keys), _KEY.itemsize)[:, _MESSAGE_AT]
    unwatched = _unwatched(log, accepted) & (copies == 0)
    return Journeys(
        accepted.at_us,
        arrived_us,
        announced,
        copies,
        letter,
        unwatched,
        clock_error_us,
        strayed,
    )


def _strayed(accepted: _First, came: _First) -> int:
    """Return how many copies of messages came to somebody else than those whom they were accepted for.

    A message of which no acceptance is known does not count: its sender was told that it was refused, or was lost.
    """
    stray = np.isin(came.keys, accepted.keys, assume_unique=True, invert=True)
    known = np.isin(_without_user(came.keys[stray]), _without_user(accepted.keys))
    return int(came.times[stray][known].sum())


def _without_user(keys: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
    """The run and the message of each key."""
    size = _KEY.itemsize - _KEY["user"].itemsize
    both = np.ascontiguousarray(keys.view(np.uint8).reshape(len(keys), _KEY.itemsize)[:, :size])
    return both.view(f"S{size}").reshape(len(keys))


def _unwatched(log: TimingLog, accepted: _First) -> NDArray[np.bool_]:
    """Which of these messages went to users whose engine did not live to the end, never started, or is not in the log.

    Of engines that are not in the log something is known only where all others say who their users are. Nor was there
    anybody for messages of a machine that had lost its station, and sent them when the others had ceased to wait for
    mail: in step with each other, none waits less than the scenario's drain for what was sent to it and is not there.
    """
    named = accepted.keys.view(_KEY)
    unwatched = np.zeros(len(named), np.bool_)
    for run in {source.run for source in log.sources if source.simulates} & {*log.strings}:
        of_this = [source for source in log.sources if source.simulates and source.run == run]
        hands = [(source.assignment, source.started and source.ended) for source in of_this]
        if all(hand is not None for hand, _ in hands):
            of_run = ~_in_any(named["user"], [hand for hand, there in hands if hand is not None and there])
        else:
            of_run = _in_any(named["user"], [hand for hand, there in hands if hand is not None and not there])
        for source in of_this:
            if source.assignment is not None and source.watched_long_us is not None:
                of_run |= _in_any(named["user"], [source.assignment]) & (accepted.at_us > source.watched_long_us)
        unwatched |= of_run & (named["run"] == log.strings.index(run))
    return unwatched


def _in_any(users: NDArray[Any], hands: Sequence[Assignment]) -> NDArray[np.bool_]:
    """Which of these users are in one of the hands."""
    numbers = users.astype(np.uint64)
    found = np.zeros(len(users), np.bool_)
    for hand in hands:
        places = numbers * np.uint64(hand.step) % np.uint64(CIRCLE)
        found |= (hand.begin <= places) & (places < hand.end) & (numbers >= 1) & (numbers <= hand.users)
    return found


class _First:
    """Each message and recipient of a run once, as one sortable key of bytes: at which instant first, on which machine,
    how far that instant may be wrong, and how often it happened."""

    def __init__(self, log: TimingLog, clock: StationClock, records: Records) -> None:
        keys = np.zeros(len(records), _KEY)
        for name in _KEY.names or ():
            keys[name] = records[name]
        at_us, error_us = clock.told(log, records)
        order = np.argsort(at_us, kind="stable")
        self.keys: NDArray[np.bytes_]
        self.keys, first, self.times = np.unique(
            keys.view(f"S{_KEY.itemsize}")[order], return_index=True, return_counts=True
        )
        which = order[first]
        self.at_us, self.error_us = at_us[which], error_us[which]
        self.client: NDArray[np.uint16] = records["client"][which]
