"""The typed messages of the control protocol, and the small values that an engine keeps between them."""

from __future__ import annotations

from typing import Any

import pytest

from loadsim.engine import control
from loadsim.engine.clock import LoopClock, run_virtual
from loadsim.engine.control import FROM_A_MEMBER, TO_A_MEMBER, decode_from_member, decode_to_member, encode
from loadsim.engine.mail_in_transit import MailInTransit
from loadsim.users.alarm import Alarm

SNAPSHOT: dict[str, Any] = {
    "phase": "work",
    "at_s": 1.5,
    "users": 2,
    "users_on": 1,
    "tasks": {"READ": {"ok": 3}},
    "accepted_undelivered": 1,
    "sessions_lost": 0,
    "generator_late_most_s": 0.25,
    "heard": 7,
}

TO_MEMBER: dict[str, tuple[Any, control.ToMember]] = {
    "log on": (True, control.LogOn()),
    "start": (12_345, control.Start(12_345)),
    "accepted": ([["n1.0", 2]], control.Accepted([["n1.0", 2]])),  # type: ignore[list-item]
    "drain": (True, control.Drain()),
    "drained": (True, control.Drained()),
    "stop": ("a client was lost", control.Stop("a client was lost")),
    "given up": ("it was silent", control.GivenUp("it was silent")),
}

FROM_MEMBER: dict[str, tuple[Any, control.FromMember]] = {
    "ready": (99, control.Ready(99)),
    "refused": ("no room", control.Refused("no room")),
    "on": (True, control.On()),
    "accepted": ([["n1.0", 2]], control.Accepted([["n1.0", 2]])),  # type: ignore[list-item]
    "finished": (True, control.Finished()),
    "event": ({"event": "start"}, control.Event({"event": "start"})),
    "over": (True, control.Over()),
}


@pytest.mark.parametrize("kind", TO_A_MEMBER)
def test_each_message_to_a_member_has_its_type(kind: str) -> None:
    """A line becomes the value of its kind."""
    value, message = TO_MEMBER[kind]
    assert decode_to_member(encode(**{kind: value})) == message


@pytest.mark.parametrize("kind", sorted(FROM_A_MEMBER.keys() - {"snapshot"}))
def test_each_message_from_a_member_has_its_type(kind: str) -> None:
    """A line becomes the value of its kind."""
    value, message = FROM_MEMBER[kind]
    assert decode_from_member(encode(**{kind: value})) == message


def test_a_stop_without_a_reason_has_none() -> None:
    """True means that no reason was given."""
    assert decode_to_member(encode(stop=True)) == control.Stop(None)


def test_a_snapshot_is_read_with_its_count() -> None:
    """The count of received messages travels with the snapshot's own keys."""
    message = decode_from_member(encode(snapshot=SNAPSHOT))
    assert isinstance(message, control.Snapshot)
    assert (message.received, message.snapshot.at_s, message.snapshot.done) == (7, 1.5, 3)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"start", "expected JSON"),
        (encode(begin={}), "expected one of log on"),
        (encode(start="soon"), "start: expected"),
        (encode(accepted=[["n1.0", 0]]), "accepted"),
    ],
)
def test_other_lines_to_a_member_are_rejected(line: bytes, problem: str) -> None:
    """One line says what was expected."""
    with pytest.raises(ValueError, match=problem):
        decode_to_member(line)


def test_a_snapshot_with_a_wrong_value_is_rejected() -> None:
    """The check of a snapshot's values is part of decoding."""
    with pytest.raises(ValueError, match="snapshot: expected phase"):
        decode_from_member(encode(snapshot=SNAPSHOT | {"phase": "lunch"}))


def test_mail_in_transit_pairs_acceptance_and_sight() -> None:
    """In either order, once each; a message that was never accepted compensates for no other."""
    mail = MailInTransit()
    mail.accepted("a", 1)
    mail.accepted("a", 2)
    mail.seen("b", 2)
    assert (len(mail), mail.recipients) == (2, {1, 2})
    mail.seen("a", 1)
    mail.accepted("b", 2)
    assert (len(mail), mail.recipients) == (1, {2})


def test_an_alarm_rings_at_its_instant_or_when_woken() -> None:
    """Woken early, it still keeps the timer for the same instant; a new instant replaces it."""

    async def main(clock: LoopClock) -> list[int]:
        alarm = Alarm(clock.now_ns)
        found = []
        for at_ns, wakes_ns in ((10, None), (30, 20), (30, None), (None, 50), (60, None)):
            future = alarm.until(at_ns)
            if wakes_ns is not None:
                future.get_loop().call_later((wakes_ns - clock.now_ns()) * 1e-9, alarm.wake)
            await future
            found.append(clock.now_ns())
        return found

    assert run_virtual(main) == [10, 20, 30, 50, 60]
