"""The delivery of mail: from acceptance by the server to the recipient's mailbox, per message and recipient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadsim.results.merge import in_window
from loadsim.results.records import EVENT, NEVER, Records
from loadsim.results.score import Times
from loadsim.results.timinglog import WHOLE_RECORDS, TimingLog

_KEY = np.dtype([("run", ">u2"), ("message", "S20"), ("user", ">u4")])
"""The run, too: ids of messages are the same in every run of a scenario."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of the messages that were accepted in a window, counted per recipient.

    Delivered: seen or found by the recipient; `times` are of those that were announced to a waiting session.
    `unwatched` are those of which nobody can tell: their recipient was lost with his engine before he saw them.
    `undelivered_at_end` looks beyond the window: whatever the log knows to be accepted, and in nobody's sight.
    """

    accepted: int
    delivered: int
    times: Times
    undelivered_at_end: int = 0
    unwatched: int = 0

    @property
    def undelivered(self) -> int:
        """Accepted by the server, and not in the sight of a recipient who was there when the run ended."""
        return self.accepted - self.delivered - self.unwatched


def delivery(log: TimingLog, window_s: tuple[float, float]) -> Delivery:
    """Join acceptance with what was seen, on run, message and recipient, over all engines of the log.

    The instant of acceptance places a message in the window. A server may show a message to its recipient before
    its sender has read the acceptance: that is a delivery time of 0.
    """
    accepted = delivered = undelivered_at_end = unwatched = 0
    times_us = []
    for mails in mails_by(log, "user"):
        joined = _join(log, mails, window_s)
        accepted += joined.accepted
        delivered += joined.delivered
        undelivered_at_end += joined.undelivered_at_end
        unwatched += joined.unwatched
        times_us.append(joined.times_us)
    return Delivery(accepted, delivered, Times.of(np.concatenate(times_us)), undelivered_at_end, unwatched)


def mails_by(log: TimingLog, field: str) -> Iterator[Records]:
    """The events of messages in as many parts as memory asks for; those that agree in the field are in one part."""
    parts = math.ceil(log.streams["mails"].count / WHOLE_RECORDS)
    if parts <= 1:
        yield log.mails
        return
    for part in range(parts):
        yield np.concatenate([mails.kept(mails[field] % parts == part).records() for mails in log.pieces("mails")])


@dataclass(frozen=True, slots=True)
class _Joined:
    """What becomes a `Delivery`, of some of the recipients."""

    accepted: int
    delivered: int
    times_us: NDArray[np.int64]
    undelivered_at_end: int
    unwatched: int


def _join(log: TimingLog, mails: Records, window_s: tuple[float, float]) -> _Joined:
    event = mails["event"]
    all_accepted, all_accepted_us = _first(mails[event == EVENT["accepted"]])
    inside = in_window(all_accepted_us, window_s)
    accepted, accepted_us = all_accepted[inside], all_accepted_us[inside]
    seen, seen_us = _first(mails[event == EVENT["seen"]])
    found, _ = _first(mails[event == EVENT["found"]])
    _, of_accepted, of_seen = np.intersect1d(accepted, seen, assume_unique=True, return_indices=True)
    delivered = np.isin(accepted, found, assume_unique=True)
    delivered[of_accepted] = True
    missing = ~np.isin(all_accepted, np.concatenate([seen, found]))
    unwatched = _unwatched(log, all_accepted)
    return _Joined(
        accepted=len(accepted),
        delivered=int(np.count_nonzero(delivered)),
        times_us=np.maximum(seen_us[of_seen] - accepted_us[of_accepted], 0),
        undelivered_at_end=int(np.count_nonzero(missing & ~unwatched)),
        unwatched=int(np.count_nonzero(~delivered & unwatched[inside])),
    )


@dataclass(frozen=True, slots=True)
class Journeys:
    """Messages that were accepted, once per recipient, in no order; instants in microseconds from the common start.

    `arrived_us` is when its recipient first had it in sight, NEVER if he did not; `announced`: his session was told of
    it while it waited, so that the time between the two is a delivery time.
    """

    accepted_us: NDArray[np.int64]
    arrived_us: NDArray[np.int64]
    announced: NDArray[np.bool_]


def journeys(log: TimingLog) -> Iterator[Journeys]:
    """Where each accepted message came to, over all engines of the log; all of some recipients at a time."""
    for mails in mails_by(log, "user"):
        event = mails["event"]
        accepted, accepted_us = _first(mails[event == EVENT["accepted"]])
        arrived_us = np.full(len(accepted), NEVER)
        announced = np.zeros(len(accepted), np.bool_)
        for name in ("found", "seen"):
            keys, at_us = _first(mails[event == EVENT[name]])
            _, of_accepted, of_keys = np.intersect1d(accepted, keys, assume_unique=True, return_indices=True)
            arrived_us[of_accepted] = at_us[of_keys]
            announced[of_accepted] = name == "seen"
        yield Journeys(accepted_us, arrived_us, announced)


def _unwatched(log: TimingLog, keys: NDArray[np.bytes_]) -> NDArray[np.bool_]:
    """Which of these messages went to users whose engine did not live to the end."""
    named = keys.view(_KEY)
    unwatched = np.zeros(len(keys), np.bool_)
    for source in log.sources:
        if not source.ended and source.hand is not None and source.run in log.strings:
            of_source = np.isin(named["user"], list(source.hand))
            unwatched |= of_source & (named["run"] == log.strings.index(source.run))
    return unwatched


def _first(records: Records) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
    """Each message and recipient of a run once, as one sortable key of bytes, with the first instant."""
    keys = np.zeros(len(records), _KEY)
    for name in _KEY.names or ():
        keys[name] = records[name]
    order = np.argsort(records["at_us"], kind="stable")
    unique, first = np.unique(keys.view(f"S{_KEY.itemsize}")[order], return_index=True)
    return unique, records["at_us"][order][first]
