"""`calendar: caldav`: what it needs, and that its runs are another load."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from loadsim.errors import ConfigError
from loadsim.protocols.registry import check_drivers
from loadsim.provisioning.sessions import services_of
from loadsim.runs.log_header import run_header
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload

HOST = {"host": "127.0.0.1", "port": 1}
MAIL = {"imap": HOST, "smtp": HOST}
MEDIUM = {"profile": "loadsim-5.5/medium", "users": 2, "calendar": "caldav"}


def scenario(place: Path, *groups: dict[str, Any], **keys: Any) -> Scenario:
    document = {
        "server": MAIL | {"caldav": HOST},
        "accounts": {"user": "user{index}", "password": "secret"},
        "topology": [*groups] or [MEDIUM],
        "run": {"day_length": "1h", "warm_up": "1m", "window": "10m"},
    } | keys
    path = place / "scenario.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_scenario(str(path))


def test_calendars_change_the_digest_and_the_header(tmp_path: Path) -> None:
    """So `compare` never takes runs with them for runs without; where the server is does not matter."""
    one = scenario(tmp_path)
    other = scenario(tmp_path, server=MAIL | {"caldav": HOST | {"port": 2, "auth": "basic"}})
    without = scenario(tmp_path, MEDIUM | {"calendar": "mailbox"})
    assert one.digest() == other.digest() != without.digest()
    headers = [run_header(Workload(each), "run", "server", "plan", None, None) for each in (one, without)]
    assert [header.get("calendars") for header in headers] == ["caldav", None]
    plans = {Workload(each).user_digest(1) for each in (one, without)}
    assert len(plans) == 1, "activities are due at the same times"


def test_a_server_that_no_calendar_uses_changes_nothing(tmp_path: Path) -> None:
    without = MEDIUM | {"calendar": "mailbox"}
    assert scenario(tmp_path, without).digest() == scenario(tmp_path, without, server=MAIL).digest()


def test_a_scenario_is_written_as_it_was_read(tmp_path: Path) -> None:
    own = {"tls": "implicit", "auth": "bearer"}
    one = scenario(
        tmp_path,
        server=MAIL | {"caldav": HOST | own},
        accounts={"user": "user{index}", "token_file": str(tmp_path / "{user}.token"), "password": "secret"},
    )
    (tmp_path / "again.yaml").write_text(one.to_yaml())
    again = load_scenario(str(tmp_path / "again.yaml"))
    assert again.server == one.server
    assert again.topology[0].calendar == "caldav"
    assert "CALDAV bearer" in (again.log_on or "")


@pytest.mark.parametrize(
    ("groups", "keys", "line"),
    [
        ([], {"server": MAIL}, "topology[0].calendar: expected server.caldav, a calendar server, found none"),
        ([], {"server": "embedded"}, "topology[0].calendar: expected server.caldav, a calendar server, found none"),
        ([MEDIUM | {"calendar": "card"}], {}, "topology[0].calendar: expected mailbox or caldav, found 'card'"),
        (
            [MEDIUM, MEDIUM | {"profile": "loadsim-5.5/light", "calendar": "mailbox"}],
            {},
            "topology[1].calendar: expected one calendar for all users of imap: their tasks are figures together,"
            " found mailbox",
        ),
        (
            [MEDIUM, {"profile": "outside/machine", "users": 1, "calendar": "caldav"}],
            {},
            "topology[1].calendar: expected none, found one for senders of profile outside/machine, who have no",
        ),
        (
            [MEDIUM | {"profile": "pop3/delete", "protocol": "pop3", "program": "pop3"}],
            {"server": MAIL | {"pop3": HOST, "caldav": HOST}},
            "topology[0].profile: expected a profile that changes the calendar, for calendar: caldav,"
            " found schedule: {per_day: 0}",
        ),
        ([], {"server": MAIL | {"caldav": {"host": "mail.example.com"}}}, "server.caldav.host: expected a loopback"),
        (
            [],
            {"server": MAIL | {"caldav": HOST | {"auth": "bearer"}}},
            "server.caldav.auth: expected accounts.token_file for bearer, found none",
        ),
        ([], {"server": {"caldav": HOST}}, "server: expected embedded or imap and smtp, mapi, or jmap"),
    ],
)
def test_what_does_not_fit_is_one_line(
    tmp_path: Path, groups: list[dict[str, Any]], keys: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        scenario(tmp_path, *groups, **keys)
    assert line in str(raised.value)


def test_a_driver_without_schedules_has_a_calendar(tmp_path: Path) -> None:
    """POP3 has no folder for a schedule, but its users have calendars on a server."""
    profile = {"name": "popping", "from": "pop3/delete", "schedule": {"per_day": 1}}
    (tmp_path / "popping.yaml").write_text(yaml.safe_dump(profile))
    group = {"profile": str(tmp_path / "popping.yaml"), "users": 2, "protocol": "pop3", "program": "pop3"}
    server = MAIL | {"pop3": HOST, "caldav": HOST}
    with_calendar = scenario(tmp_path, group | {"calendar": "caldav"}, server=server)
    check_drivers(with_calendar, services_of(with_calendar))
    without = scenario(tmp_path, group, server=server)
    with pytest.raises(ConfigError, match="SCHEDULE"):
        check_drivers(without, services_of(without))
