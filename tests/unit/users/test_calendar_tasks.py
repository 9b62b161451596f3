"""SCHEDULE on a calendar server, in virtual time: the events that users keep, and failures."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from virtual_runs import Lived, live, quiet, scenario_of

from loadsim.dryrun.plan import make_plan, to_json
from loadsim.errors import MailMissing, ServerLost, ServerRefused
from loadsim.model.calendar_event import CalendarEvent, own_event
from loadsim.model.ports import Account, Observer
from loadsim.scenario.scenario import Scenario
from loadsim.users.calendar_tasks import MOST_EVENTS, RULES

Fails = Callable[[str, CalendarEvent | None], BaseException | None]

HOST = {"host": "127.0.0.1", "port": 1}
KEYS: dict[str, Any] = {
    "server": {"imap": HOST, "smtp": HOST, "caldav": HOST},
    "accounts": {"user": "user{index}", "password": "secret"},
}
PROFILE = quiet(schedule={"per_day": 30}, new_mail={"per_day": 2, "recipients": 2})


class Server:
    """A calendar server for all users, in memory. `fails` returns the failure of a call, if it is to fail."""

    def __init__(self, fails: Fails = lambda *_: None, intact: bool = True) -> None:
        self.fails, self.intact = fails, intact
        self.events: dict[int, dict[str, CalendarEvent]] = {}
        self.calls: list[tuple[int, str]] = []
        self.stored: list[CalendarEvent] = []
        self.open = 0

    def of(self, account: Account, observer: Observer) -> "UserOfServer":
        return UserOfServer(self, account.number, observer)


class UserOfServer:
    def __init__(self, server: Server, user: int, observer: Observer) -> None:
        self._server, self._user, self._observer = server, user, observer
        self.events = server.events.setdefault(user, {})

    async def store(self, event: CalendarEvent, changes: bool) -> bool:
        await self._ask("change" if changes else "add", event)
        assert (event.uid in self.events) == changes
        self.events[event.uid] = event
        self._server.stored.append(event)
        return self._server.intact

    async def remove(self, event: CalendarEvent) -> None:
        await self._ask("remove", event)
        assert self.events.pop(event.uid) == event

    async def follow(self) -> None:
        await self._ask("follow", None)

    async def close(self) -> None:
        self._server.open -= 1

    async def _ask(self, name: str, event: CalendarEvent | None) -> None:
        self._server.open += name in ("add", "change")
        self._server.calls.append((self._user, name))
        since = self._observer.now()
        await asyncio.sleep(0.05)
        self._observer.command(f"CALDAV {name}", since, "ok", 1, 1)
        if (failure := self._server.fails(name, event)) is not None:
            raise failure


def scenario(place: Path, users: int = 3, **keys: Any) -> Scenario:
    scenario_of(place, (PROFILE, users), **KEYS)
    group = {"profile": str(place / "profile0.yaml"), "users": users, "protocol": "fake", "calendar": "caldav"}
    return scenario_of(place, **KEYS | {"topology": [group]} | keys)


def run(place: Path, server: Server, **keys: Any) -> Lived:
    lived = live(scenario(place / "scenario", **keys), place, calendar=server.of)
    assert lived.failure is None
    return lived


def kept_by_records(lived: Lived, user: int) -> set[str]:
    kept: set[str] = set()
    for mail in lived.tape.mails:
        if (mail["user"], mail["folder"]) == (user, "Events"):
            {"saved": kept.add, "expunged": kept.discard}[mail["event"]](mail["message"])
    return kept


def test_users_add_and_change_events_and_remove_the_oldest(tmp_path: Path) -> None:
    server = Server()
    lived = run(tmp_path, server)
    assert {*lived.outcomes("SCHEDULE")} == {"ok"}
    for user, events in server.events.items():
        assert len(events) == MOST_EVENTS
        ids = {own[0] for uid in events if (own := own_event(uid, lived.scenario.domain))}
        assert ids == kept_by_records(lived, user)
        calls = [name for number, name in server.calls if number == user]
        assert [name for name in calls if name in ("add", "change")][:4] == ["add", "change", "add", "change"]
        assert calls.count("remove") == calls.count("add") - MOST_EVENTS > 0
    assert server.open == 0
    addresses = {lived.scenario.account(user).address for user in range(1, 4)}
    invited = [event for event in server.stored if event.attendees]
    assert 0 < len(invited) < len(server.stored)
    assert all({*event.attendees} <= addresses - {event.organizer} for event in invited)
    assert {event.rule for event in server.stored} == {*RULES}
    assert lived.mails("altered") == []


def test_the_mailbox_has_no_schedule(tmp_path: Path) -> None:
    lived = run(tmp_path, Server())
    commands = {command for task in lived.tasks("SCHEDULE") for command in task["commands"]}
    assert {name.partition(" ")[0] for name in commands} == {"CALDAV"}


def test_the_plan_has_the_tasks_of_the_run(tmp_path: Path) -> None:
    server = Server()
    lived = run(tmp_path, server)
    plan = to_json(make_plan(lived.scenario))
    assert plan["tasks"]["SCHEDULE"] == len(lived.tasks("SCHEDULE"))
    assert plan["commands"]["CALDAV DELETE"] == [name for _, name in server.calls].count("remove")


def test_an_event_that_the_server_alters_is_recorded(tmp_path: Path) -> None:
    lived = run(tmp_path, Server(intact=False))
    assert {*lived.outcomes("SCHEDULE")} == {"ok"}
    assert len(lived.mails("altered")) == len(lived.tasks("SCHEDULE"))


@pytest.mark.parametrize(
    ("failure", "outcome"), [(ServerRefused("507 PUT"), "refused"), (ServerLost("connection lost"), "lost")]
)
def test_a_failure_leaves_the_mailboxs_session(tmp_path: Path, failure: Exception, outcome: str) -> None:
    server = Server(lambda name, _: failure if name == "add" else None)
    lived = run(tmp_path, server)
    assert {*lived.outcomes("SCHEDULE")} == {outcome}
    assert len(lived.tasks("LOGON")) == 3
    assert {mail["event"] for mail in lived.tape.mails if mail["folder"] == "Events"} == {"unsure"}
    assert [name for _, name in server.calls if name != "add"] == []
    assert server.open == 0


def test_an_event_that_is_gone_is_missing_and_not_changed_again(tmp_path: Path) -> None:
    server = Server(lambda name, _: MailMissing("no event GET") if name == "change" else None)
    lived = run(tmp_path, server)
    assert {*lived.outcomes("SCHEDULE")} == {"ok", "refused"}
    missing = [mail["message"] for mail in lived.mails("missing")]
    assert len(missing) == len({*missing}) == lived.outcomes("SCHEDULE").count("refused")
    assert [name for _, name in server.calls].count("remove") == 0


def test_an_event_that_may_be_gone_is_unsure(tmp_path: Path) -> None:
    server = Server(lambda name, _: ServerLost("connection lost") if name == "remove" else None)
    lived = run(tmp_path, server)
    left, unsure = ([mail["message"] for mail in lived.mails(event)] for event in ("left", "unsure"))
    assert left == unsure != []
    assert len(left) == lived.outcomes("SCHEDULE").count("lost")
