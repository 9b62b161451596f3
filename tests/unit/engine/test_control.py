"""The typed messages of the control protocol, and the small values that an engine keeps between them."""

from typing import Any

import pytest
from control_lines import line_of

from loadsim.engine import control
from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.engine.control import FROM_A_MEMBER, TO_A_MEMBER, Message, decode, encode
from loadsim.engine.counters import MailInTransit
from loadsim.timinglog.facts import EarlyEnd
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

TO_MEMBER: dict[str, tuple[Any, Message]] = {
    "log on": (True, control.LogOn()),
    "start": (12_345, control.Start(12_345)),
    "accepted": ([["n1.0", 2]], control.Accepted([["n1.0", 2]])),  # type: ignore[list-item]
    "drain": (True, control.Drain()),
    "drained": (True, control.Drained()),
    "stop": (["users lost", "c1 was lost"], control.Stop(EarlyEnd("users lost", "c1 was lost"))),
    "given up": ("it was silent", control.GivenUp("it was silent")),
}

FROM_MEMBER: dict[str, tuple[Any, Message]] = {
    "ready": (99, control.Ready(99)),
    "refused": ("no room", control.Refused("no room")),
    "on": (True, control.On()),
    "accepted": ([["n1.0", 2]], control.Accepted([["n1.0", 2]])),  # type: ignore[list-item]
    "finished": (True, control.Finished()),
    "event": ({"event": "start"}, control.Event({"event": "start"})),
    "over": (True, control.Over()),
}


@pytest.mark.parametrize(("table", "known"), [(TO_MEMBER, TO_A_MEMBER), (FROM_MEMBER, FROM_A_MEMBER)])
def test_messages_are_encoded_and_decoded(
    table: dict[str, tuple[Any, Message]], known: tuple[type[Message], ...]
) -> None:
    assert {each.kind for each in known} - {"snapshot"} == table.keys()
    for kind, (value, message) in table.items():
        assert decode(line_of(**{kind: value}), known) == message
        assert encode(message) == line_of(**{kind: value})


def test_a_stop_by_a_user_has_no_reason() -> None:
    """True means that a user ended the run."""
    assert decode(line_of(stop=True), TO_A_MEMBER) == control.Stop()
    assert encode(control.Stop()) == line_of(stop=True)


def test_a_snapshot_is_read_with_its_count() -> None:
    message = decode(line_of(snapshot=SNAPSHOT), FROM_A_MEMBER)
    assert isinstance(message, control.Snapshot)
    assert (message.received, message.snapshot.at_s, message.snapshot.done) == (7, 1.5, 3)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"start", "expected JSON"),
        (line_of(begin={}), "expected one of log on"),
        (line_of(drain=True, drained=True), "expected a JSON object with one key"),
    ],
)
def test_malformed_lines_are_rejected(line: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode(line, TO_A_MEMBER)


def test_mail_in_transit_matches_acceptance_and_sight() -> None:
    """In either order, once each; a message that was never accepted compensates for no other."""
    mail = MailInTransit()
    mail.accepted("a", 1)
    mail.accepted("a", 2)
    mail.seen("b", 2)
    assert (len(mail), mail.recipients) == (2, {1, 2})
    mail.seen("a", 1)
    mail.accepted("b", 2)
    assert (len(mail), mail.recipients) == (1, {2})


def test_senders_copies_count_after_the_first_is_seen() -> None:
    """Before that, it is not known if the server makes them; their senders still look for them."""
    mail = MailInTransit()
    mail.accepted("a", 1, sender=1)
    mail.accepted("b", 2, sender=2)
    assert (len(mail), mail.recipients) == (0, {1, 2})
    mail.seen("b", 2, sender=2)
    mail.accepted("c", 2, sender=2)
    assert (len(mail), mail.recipients) == (2, {1, 2})


def test_an_alarm_fires_at_its_instant_or_when_woken() -> None:
    """Woken early, it still keeps the timer for the same instant; a new instant replaces it."""

    async def main(clock: VirtualLoop) -> list[int]:
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
