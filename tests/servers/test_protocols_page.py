"""docs/reference/protocols.md: the requests of each task are those that arrive at servers."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from address_books import BIND_DN, slapd
from caldav_peer import calendar_peer
from each_task import EachTask
from mailservers import DOMAIN, short_directory
from news_peer import GROUP, NewsPeer
from paths import ROOT
from small_runs import written
from virtual_runs import quiet

from loadsim.model.ports import Account, Endpoint, Services
from loadsim.model.terms import ASSISTANT_TASKS, CALDAV, IN_MAILBOX
from loadsim.scenario.scenario import load_scenario

PAGE = ROOT / "docs" / "reference" / "protocols.md"

USERS = 2
PASSWORD = "secret of all"
FEW = {"inbox": 2, "folders": 1, "messages_per_folder": 2}
RECEIPTS = {"delivery": "100%", "read": "100%", "returned": "100%"}
NEW_PROGRAM = {
    "name": "new",
    "list": "UID FLAGS RFC822.SIZE BODY.PEEK[HEADER.FIELDS (From To Subject Message-ID)]",
    "header_cache": "FLAGS",
    "message": "UID RFC822.SIZE BODY.PEEK[]",
    "prefetch": False,
    "idle": True,
    "first_sync": {"bodies": "all"},
}


@dataclass(frozen=True)
class Driver:
    """A driver with a column on the page, and the server that it uses. By default, the public folder is a newsgroup.

    Requests to each of its `services` are read by `sent_requests.READERS`. With `has_new_partner`, another user does a
    first sync.
    """

    server: str
    services: tuple[str, ...]
    profile: dict[str, Any]
    programs: tuple[str, ...] = ("outlook-like",)
    has_new_partner: bool = False
    with_directory: bool = True
    public: str = GROUP
    calendar: str = IN_MAILBOX


PUBLIC = "Notice Board"
ALL = quiet(start_state=FEW, receipts=RECEIPTS)
ANY = quiet(start_state=FEW)

DRIVERS = {
    "imap": Driver("dovecot", ("imap", "smtp"), ALL, ("outlook-like", "assistant"), True, public=PUBLIC),
    "aioimaplib": Driver("dovecot", ("imap", "smtp"), ALL, public=PUBLIC),
    "mapi": Driver("embedded_mapi_server", ("mapi",), ANY, with_directory=False),
    "jmap": Driver("jmap", ("jmap",), ANY),
    "pop3": Driver(
        "dovecot",
        ("imap", "smtp", "pop3"),
        {"from": "pop3/delete", "start_state": {"inbox": 2}, "receipts": RECEIPTS, "schedule": {"per_day": 1}},
        ("pop3",),
        calendar=CALDAV,
    ),
}


def accounts_of(driver: str) -> list[Account]:
    names = [f"{driver}{number}" for number in range(1, USERS + 1)]
    return [Account(at, name, f"{name}@{DOMAIN}", PASSWORD) for at, name in enumerate(names, 1)]


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Callable[[str], Services]:
    """Returns a driver's server; the drivers that use Dovecot share one."""
    started: dict[str, Services] = {}

    def of(driver: str) -> Services:
        kind = DRIVERS[driver].server
        if kind not in started:
            accounts = [each for name, other in DRIVERS.items() if other.server == kind for each in accounts_of(name)]
            if kind == "dovecot":
                running = request.getfixturevalue("dovecot_postfix")(accounts, public_folder=PUBLIC)
            elif kind == "jmap":
                running = request.getfixturevalue("jmap_peer_server")(accounts, "relative_urls=true")
            else:
                running = request.getfixturevalue(kind)(accounts)
            started[kind] = running.services
        return started[kind]

    return of


@pytest.fixture
def apart(name: str) -> Iterator[dict[str, Any]]:
    """The scenario's address book and news server, if the driver's users have one."""
    driver = DRIVERS[name]
    with ExitStack() as stack:
        keys: dict[str, Any] = {}
        if driver.with_directory:
            book = stack.enter_context(slapd(stack.enter_context(short_directory()), accounts_of(name)))
            keys["ldap"] = {"url": book.url, "bind_dn": BIND_DN}
        if driver.public == GROUP:
            keys["nntp"] = at(stack.enter_context(NewsPeer(password=PASSWORD).running()).endpoint)
        yield keys


def at(endpoint: Endpoint) -> dict[str, Any]:
    return {"host": endpoint.host, "port": endpoint.port}


async def requests_of(name: str, services: Services, apart: dict[str, Any], place: Path) -> dict[str, list[str]]:
    """Have a user of this driver do each task."""
    driver = DRIVERS[name]
    (place / "all.yaml").write_text(json.dumps({"name": "all", **driver.profile}), encoding="utf-8")
    (place / "new.yaml").write_text(json.dumps(NEW_PROGRAM), encoding="utf-8")
    group = {"profile": str(place / "all.yaml"), "users": 1, "protocol": name, "program": list(driver.programs)}
    group["calendar"] = driver.calendar
    partner = group | ({"program": str(place / "new.yaml")} if driver.has_new_partner else {})
    endpoints: dict[str, Any] = dict(apart)
    for service in driver.services:
        served = services.endpoint(service)
        url = {"url": f"http://{served.host}:{served.port}{served.path}"}
        endpoints[service] = url if service == "mapi" else at(served)
    keys = {
        "topology": [group, partner],
        "accounts": {"user": f"{name}{{index}}", "password": PASSWORD},
        "domain": DOMAIN,
        "lists": {"count": 0},
        "server": endpoints,
        "folders": {"public": driver.public},
    }
    async with calendar_peer(accounts_of(name)) as (_, calendars):
        if driver.calendar == CALDAV:
            endpoints[CALDAV] = at(calendars)
        each = EachTask(load_scenario(str(written(place / "scenario.yaml", **keys))))
        await each.run()
    assert each.failed == []
    return each.sent


# --- the page ---------------------------------------------------------------------------------------------------------

OPTIONAL = "if needed"
"""The row of requests that may precede or interrupt each task."""

Cells = dict[str, str]
Request = frozenset[str]
"""The parts of a request: methods, or remote operations."""


def table() -> dict[str, Cells]:
    """The page's table of requests: cells by driver and task."""
    lines = PAGE.read_text(encoding="utf-8").partition("\n## Requests\n")[2].partition("\n## ")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    columns: dict[str, Cells] = {}
    for at, drivers in enumerate(head[1:], 1):
        for driver in re.findall(r"`(.*?)`", drivers):
            columns[driver] = {task: row[at] for row in rows for task in re.findall(r"`(.*?)`", row[0]) or [row[0]]}
    return columns


def documented(cells: Cells, task: str) -> list[Request]:
    """The requests in a cell; "as X" stands for those of another task."""
    requests: list[Request] = []
    for other, request in re.findall(r"\bas ([A-Z ]+[A-Z])\b|(`.*?`(?: \+ `.*?`)*)", cells[task]):
        requests += documented(cells, other) if other else [frozenset(re.findall(r"`(.*?)`", request))]
    return once(requests)


def once(requests: list[Request]) -> list[Request]:
    """Leave out repetitions of what comes right before: of a request, or of several, as for each folder."""
    kept = list(requests)
    for size in range(1, len(kept)):
        at = 0
        while at + 2 * size <= len(kept):
            if kept[at : at + size] == kept[at + size : at + 2 * size]:
                del kept[at : at + size]
            else:
                at += 1
    return kept


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("name", DRIVERS)
def test_each_task_sends_what_the_page_says(
    name: str, server: Callable[[str], Services], apart: dict[str, Any], tmp_path: Path
) -> None:
    """Of MAPI's requests, the page names the main operations; of others, all parts."""
    sent = asyncio.run(requests_of(name, server(name), apart, tmp_path))
    cells = table()[name]
    supported = {task for task, cell in cells.items() if cell != "-"} - {OPTIONAL}
    assert sent.keys() == supported - ({*ASSISTANT_TASKS, "FIRST SYNC"} if name == "aioimaplib" else set())
    optional, different = documented(cells, OPTIONAL), {}
    for task, requests in sent.items():
        expected = documented(cells, task)
        main = frozenset[str]().union(*expected, *optional)
        arrived = [
            frozenset(request.split("+")) & (main if name == "mapi" else {*request.split("+")}) for request in requests
        ]
        if once([each for each in arrived if each in expected or each not in optional]) != expected:
            different[task] = requests
    assert different == {}


def test_each_recorded_server_is_named() -> None:
    """The row of IMAP and SMTP has the servers of docs/servers, and no others."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## Servers tried\n")[2]
    row = next(line for line in text.splitlines() if line.startswith("| IMAP, SMTP |"))
    recorded = {path.stem.rpartition("-")[2] for path in (ROOT / "docs" / "servers").glob("*.json")}
    assert {*re.findall(r"\d+\.\d+\.\d+", row)} == recorded
