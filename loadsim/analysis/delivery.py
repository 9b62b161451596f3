"""Mail delivery: from acceptance by the server to the recipient's mailbox, per message and recipient.

Both kinds of loss end here. Mail that never arrives is `undelivered`: `accepted` without `seen` or `found`. Stored mail
that vanishes is `missing`: `users.stored_mail` recorded it. An audit checks both again, and calls both lost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.clocks.correction import ControllerClock, controller_clock
from loadsim.analysis.score import times
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.severity import Severity
from loadsim.model.figures import Delivery
from loadsim.model.partition import CIRCLE, Assignment
from loadsim.model.records import BY_LIST, EVENTS
from loadsim.model.terms import Window
from loadsim.timinglog.audited import MOST_UNKNOWN_SHARE
from loadsim.timinglog.columns import Columns, concatenate
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import WHOLE_RECORDS, TimingLog
from loadsim.timinglog.records import EVENT, KINDS, NEVER, Records

_KEY = np.dtype([("message", "S20"), ("user", ">u4")])
"""A message and its recipient."""

FAULTS = ("doubled", "unlisted", "missing", "altered")
"""The events that report a fault in a stored message."""


def delivery(log: TimingLog, window_s: Window, *readers: Callable[[Journeys], None]) -> Delivery:
    """Join acceptances and arrivals by message and recipient, over all engines of the log; `readers` also get them.

    A message belongs to the window if it was accepted in it. A server may show a message to its recipient before the
    sender has read the acceptance: the delivery time is then 0.
    """
    clock, clock_error_us = controller_clock(log), 0
    counts, took_us = Counter[str](), [np.zeros(0, np.int64)]
    for mails in mails_by_sender(log):
        # 1. Messages that arrived, and those that did not.
        mail = _journeys(log, clock, mails)
        for read in readers:
            read(mail)
        inside, arrived = in_window(mail.accepted_us, window_s), mail.arrived_us != NEVER
        delivered, not_arrived = inside & arrived, ~arrived & ~mail.unwatched
        took_us.append((mail.arrived_us - mail.accepted_us)[delivered])
        clock_error_us = max(clock_error_us, int(mail.clock_error_us[delivered].max(initial=0)))
        # 2. The counts.
        for name, which in {
            "accepted": inside,
            "delivered": delivered,
            "found": delivered & ~mail.announced,
            "unwatched": inside & mail.unwatched,
            "undelivered_at_end": not_arrived,
        }.items():
            counts[name] += int(np.count_nonzero(which))
        counts["unlooked"] += int(np.count_nonzero(mail.unwatched & np.isin(mail.recipient, _unlooked(log))))
        counts["duplicates"] += int(np.maximum(mail.copies - 1, 0).sum()) + mail.strayed
    all_us = np.concatenate(took_us)
    early_us = -all_us[all_us < 0]
    undelivered = counts["accepted"] - counts["delivered"] - counts["unwatched"]
    stored, faults = _faults(log)
    counts["duplicates"] += faults["doubled"]
    unlisted = faults["unlisted"] + counts.pop("unlooked")
    known = faults["missing"] or log.audit is not None or unlisted <= MOST_UNKNOWN_SHARE * stored
    return Delivery(
        **counts,
        undelivered=undelivered,
        early=len(early_us),
        earliest_ms=float(early_us.max()) / 1000 if len(early_us) else None,
        clock_error_ms=clock_error_us / 1000 if clock.compared else None,
        missing=faults["missing"] if known else None,
        unlisted=unlisted,
        altered=faults["altered"],
        left_out=left_out(log),
        took=times(np.sort(np.maximum(all_us, 0)), infinite=undelivered),
    )


def _faults(log: TimingLog) -> tuple[int, Counter[str]]:
    """Return the number of stored messages, and of those with each fault, counted once per user and folder."""
    put, bad = np.isin(EVENTS, ("moved", "copied", "deleted", "saved")), np.isin(EVENTS, FAULTS)
    stored, faulty = 0, set[tuple[Any, ...]]()
    for mails in log.pieces("mails"):
        stored += int(np.count_nonzero(put[mails["event"]]))
        faulty.update(mails.kept(bad[mails["event"]]).records()[["event", "message", "user", "folder"]].tolist())
    return stored, Counter(EVENTS[event] for event, *_ in faulty)


def altered_mail(log: TimingLog, altered: float) -> list[Finding]:
    """Return a finding if users saw mail that differs from what was sent; a warning if the scenario allows it.

    The finding names the first message in the first log.
    """
    for mails in log.pieces("mails") if altered else ():
        for mail in mails.kept(mails["event"] == EVENT["altered"]).records()[:1]:
            folder, message_id = log.strings[mail["folder"]], mail["message"].decode()
            first = {"message_id": message_id, "folder": folder, "user": int(mail["user"])}
            severity = Severity.WARNING if Code.MAIL_ALTERED.id in log.header.audit_allow else None
            return [finding(Code.MAIL_SHOWN_ALTERED, "", severity, messages=altered, **first)]
    return []


def mails_by_sender(log: TimingLog) -> Iterator[Records]:
    """Yield acceptances and arrivals in parts that fit into memory; each sender is in one part.

    Acceptances of copies that are `left_out` are not included.
    """
    joined_events = np.isin(EVENTS, ("accepted", "seen", "found"))
    leaves_out = left_out(log) > 0
    many = sum(int(np.count_nonzero(joined_events[mails["event"]])) for mails in log.pieces("mails"))
    parts = max(1, math.ceil(many / WHOLE_RECORDS))
    for part in range(parts):
        some = (
            mails.kept(
                joined_events[mails["event"]]
                & (mails["sender"] % parts == part)
                & ~(leaves_out & of_sender(log, mails))
            )
            for mails in log.pieces("mails")
        )
        yield concatenate(some, KINDS["mails"], many)


def left_out(log: TimingLog) -> int:
    """Return the number of copies accepted for senders who are on their own lists; 0 if any such copy arrived."""
    arrived, copies = np.isin(EVENTS, ("seen", "found")), 0
    for mails in log.pieces("mails"):
        if np.any(arrived[mails["event"]] & (mails["user"] == mails["sender"])):
            return 0
        copies += int(np.count_nonzero(of_sender(log, mails)))
    return copies


def of_sender(log: TimingLog, mails: Columns) -> NDArray[np.bool_]:
    """Return a mask of the copies accepted for a message's own sender, who is on the list."""
    own = (mails["event"] == EVENT["accepted"]) & (mails["user"] == mails["sender"])
    by_list: NDArray[np.bool_] = own & (mails["folder"] == _number(log, BY_LIST))
    return by_list


@dataclass(frozen=True, slots=True)
class Journeys:
    """Accepted messages, one unordered row per recipient; instants are microseconds from the common start.

    `arrived_us` is when the recipient first saw the message, or NEVER. `announced`: the server notified the waiting
    session. `copies` is how often the recipient saw it. `unwatched`: it is unknown if it arrived. `strayed` counts
    copies seen by users for whom it was not accepted. `recipient` is the user's number.

    Both instants are on the controller's clock if the machines compared theirs with it. `clock_error_us` is the error
    of the time between the two; 0 on one machine.
    """

    accepted_us: NDArray[np.int64]
    arrived_us: NDArray[np.int64]
    announced: NDArray[np.bool_]
    copies: NDArray[np.int64]
    unwatched: NDArray[np.bool_]
    clock_error_us: NDArray[np.int64]
    strayed: int
    recipient: NDArray[np.int64]


def journeys(log: TimingLog) -> Iterator[Journeys]:
    """Yield the journeys of all accepted messages, a few senders at a time."""
    clock = controller_clock(log)
    for mails in mails_by_sender(log):
        yield _journeys(log, clock, mails)


def _journeys(log: TimingLog, clock: ControllerClock, mails: Records) -> Journeys:
    event = mails["event"]
    accepted = _First(log, clock, mails[event == EVENT["accepted"]])
    arrived_us = np.full(len(accepted.keys), np.iinfo(np.int64).max)
    announced = np.zeros(len(accepted.keys), np.bool_)
    copies = np.zeros(len(accepted.keys), np.int64)
    clock_error_us = np.zeros(len(accepted.keys), np.int64)
    strayed = 0
    for name in ("seen", "found"):
        arrivals = _First(log, clock, mails[event == EVENT[name]])
        strayed += _strayed(accepted, arrivals)
        _, of_accepted, of_came = np.intersect1d(accepted.keys, arrivals.keys, assume_unique=True, return_indices=True)
        copies[of_accepted] += arrivals.times[of_came]
        first = arrivals.at_us[of_came] < arrived_us[of_accepted]
        of_accepted, of_came = of_accepted[first], of_came[first]
        arrived_us[of_accepted] = arrivals.at_us[of_came]
        announced[of_accepted] = name == "seen"
        error_us = accepted.error_us[of_accepted] + arrivals.error_us[of_came]
        here = accepted.client[of_accepted] == arrivals.client[of_came]
        clock_error_us[of_accepted] = np.where(here, 0, error_us)
    arrived_us[copies == 0] = NEVER
    unwatched = _unwatched(log, accepted) & (copies == 0)
    return Journeys(accepted.at_us, arrived_us, announced, copies, unwatched, clock_error_us, strayed, accepted.users)


def _number(log: TimingLog, name: str) -> int:
    """Return the number of a name in the log's string table, or -1."""
    return log.strings.index(name) if name in log.strings else -1


def _strayed(accepted: _First, arrivals: _First) -> int:
    """Return the number of copies seen by users for whom the message was not accepted.

    Messages without a known acceptance do not count: they were rejected, or their senders were lost.
    """
    stray = np.isin(arrivals.keys, accepted.keys, assume_unique=True, invert=True)
    if not stray.any():
        return 0
    known = np.isin(_without_user(arrivals.keys[stray]), _without_user(accepted.keys))
    return int(arrivals.times[stray][known].sum())


def _without_user(keys: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
    size = _KEY.itemsize - _KEY["user"].itemsize
    both = np.ascontiguousarray(keys.view(np.uint8).reshape(len(keys), _KEY.itemsize)[:, :size])
    return both.view(f"S{size}").reshape(len(keys))


def _unwatched(log: TimingLog, accepted: _First) -> NDArray[np.bool_]:
    """Return a mask of messages to users of engines that died, never started, or are not in the log.

    Users of engines that are not in the log are known only if all other logs state their assignment. The mask includes
    messages accepted too late for the recipient's engine to wait the whole drain time (`Source.watched_long_us`): a
    client that has lost its controller still sends.
    """
    engines = [source for source in log.sources if source.simulates]
    survived = [source.assignment for source in engines if source.started and source.ended]
    others = [source.assignment for source in engines if not (source.started and source.ended)]
    if None not in survived and None not in others:
        unwatched = ~in_any(accepted.users, survived)
    else:
        unwatched = in_any(accepted.users, others)
    unwatched |= np.isin(accepted.users, _unlooked(log))
    for source in engines:
        if source.assignment is not None and source.watched_long_us is not None:
            unwatched |= in_any(accepted.users, [source.assignment]) & (accepted.at_us > source.watched_long_us)
    return unwatched


def _unlooked(log: TimingLog) -> list[int]:
    """Return the users whose last look at the Inbox the server refused or did not answer in time."""
    return [user for source in log.sources for user in source.facts.unlooked or ()]


def in_any(users: NDArray[Any], assignments: Iterable[Assignment | None]) -> NDArray[np.bool_]:
    """Return a mask of the users in these assignments; None stands for an assignment without users."""
    numbers = users.astype(np.uint64)
    inside = np.zeros(len(users), np.bool_)
    for assignment in assignments:
        if assignment is not None:
            places = numbers * np.uint64(assignment.step) % np.uint64(CIRCLE)
            inside |= (assignment.begin <= places) & (places < assignment.end) & (numbers <= assignment.users)
    return inside & (numbers >= 1)


class _First:
    """The first event of each message and recipient, by a sortable key, and the number of events (`times`)."""

    def __init__(self, log: TimingLog, clock: ControllerClock, records: Records) -> None:
        keys = np.zeros(len(records), _KEY)
        for name in _KEY.names or ():
            keys[name] = records[name]
        at_us, error_us = clock.corrected_us(log, records)
        order = np.argsort(at_us, kind="stable")
        self.keys: NDArray[np.bytes_]
        self.keys, first, self.times = np.unique(
            keys.view(f"S{_KEY.itemsize}")[order], return_index=True, return_counts=True
        )
        which = order[first]
        self.at_us, self.error_us = at_us[which], error_us[which]
        self.client: NDArray[np.uint16] = records["client"][which]

    @property
    def users(self) -> NDArray[np.int64]:
        return self.keys.view(_KEY)["user"].astype(np.int64)
