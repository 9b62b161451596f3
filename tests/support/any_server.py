"""Each mail server that loadsim can start, with a scenario of its accounts, and the commands that tests run there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from imap_script import certificate
from mailservers import short_directory
from other_servers.courier import start_courier
from other_servers.cyrus import start_cyrus
from other_servers.greenmail import start_greenmail
from other_servers.james import start_james
from patience import PATIENT_CRITERIA
from small_runs import loadsim, on, population_of, written
from whole_mailboxes import Mailbox, looking

from loadsim.model.ports import ALL_TASKS, DELETED_ITEMS, SENT_ITEMS, Account, Services
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.servers.dovecot_postfix import check_machine, start_dovecot_postfix
from loadsim.servers.embedded import start_embedded
from loadsim.servers.private import LOOPBACK, free_port
from loadsim.servers.running import RunningServer


class Kind(NamedTuple):
    """A server: the function that starts it, with its options, and where it differs from the others."""

    start: Callable[..., AbstractContextManager[RunningServer]]
    names: Mapping[str, str] = {}
    """Folders of loadsim by the paths that the server has for their use (RFC 6154)."""
    changes: Mapping[str, Any] = {}
    """Changes of the scenario."""
    drivers: tuple[str, ...] = ("imap", "aioimaplib")
    may_fail: frozenset[str] = frozenset()
    """Tasks."""


LOST_BY_JAMES = PATIENT_CRITERIA | {
    "down_share": None,
    "failed_share": {"max": 0.01},
    "logon_failed_share": None,
    "tasks.scored.failed_share": None,
}
"""James loses a session where it writes `* * 3 3 RECENT`: two threads announce mail to a client at once.

Such a session has one failed task, and its user is without it for the rest of a short window.
"""


def start_mdbox(accounts: Sequence[Account], lists: Mapping[str, Sequence[str]], directory: Path) -> RunningServer:
    """Start Dovecot with mailboxes in another format, which its user's own settings choose."""
    settings = directory / "dovecot" / "extra.conf"
    settings.parent.mkdir()
    settings.write_text(check_machine()[0].mailboxes.format("~/mdbox", format="mdbox"))
    return start_dovecot_postfix(accounts, lists, directory)


UNINDEXED = PATIENT_CRITERIA | {"failed_share": {"max": 0.1}}
"""Cyrus finds mail by JMAP once it has indexed it, which takes a moment."""


@contextmanager
def start_https(*about: Any) -> Iterator[RunningServer]:
    """Start Cyrus with JMAP over TLS."""
    with short_directory() as place:
        file, _ = certificate(place, f"IP:{LOOPBACK}")
        with start_cyrus(*about, jmap_port=free_port(), certificate=file) as server:
            yield server


KINDS = {
    "embedded": Kind(start_embedded),
    "dovecot-maildir": Kind(start_dovecot_postfix),
    "dovecot-mdbox": Kind(start_mdbox),
    "cyrus": Kind(start_cyrus),
    "cyrus-jmap": Kind(start_https, changes={"criteria": UNINDEXED}, drivers=("jmap",), may_fail=frozenset({"SEARCH"})),
    "courier": Kind(start_courier),
    "james": Kind(
        start_james,
        {"Sent": SENT_ITEMS, "Trash": DELETED_ITEMS},
        {"criteria": LOST_BY_JAMES},
        may_fail=frozenset(ALL_TASKS),
    ),
    "greenmail": Kind(start_greenmail, {}, {"lists": {"count": 0}}),
}


class Site(NamedTuple):
    kind: Kind
    services: Services
    path: Path
    scenario: Scenario

    @property
    def accounts(self) -> list[Account]:
        return [self.scenario.account(user) for user in range(1, self.scenario.users + 1)]

    def mailboxes(self) -> list[Mailbox]:
        found = []
        for account in self.accounts:
            with looking(self.services, account, self.kind.names) as eye:
                found.append(eye.read())
        return found

    def command(self, *arguments: str | Path) -> str:
        """Run `loadsim` with the scenario; return what it prints. It must succeed."""
        ended = loadsim(arguments[0], self.path, *arguments[1:])
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


def scenario_file(kind: Kind, directory: Path, users: int, day_s: int, changes: Mapping[str, Any]) -> Path:
    """Write the scenario: Heavy users with all habits, as many for each driver, small mailboxes, old internal dates."""
    start = {"inbox": 12, "deleted_items": 2, "folders": 3, "messages_per_folder": 4}
    profile = directory / "small.yaml"
    habits = {"search": {"per_day": 30}, "process_inbox": {"delete_unread": "10%"}}
    profile.write_text(yaml.safe_dump({"from": "loadsim-5.5/heavy", "name": "small", "start_state": start} | habits))
    groups = [{"profile": str(profile), "users": users, "protocol": each} for each in kind.drivers]
    run = {"day_length": f"{day_s}s", "ramp_up": "1s", "warm_up": "2s", "window": f"{day_s - 2}s"}
    changed = {"topology": groups, "run": run, "mailbox": {"age_days": 100}, **kind.changes, **changes}
    return written(directory / "scenario.yaml", **changed)


@contextmanager
def started(name: str, directory: Path, users: int, day_s: int) -> Iterator[Site]:
    kind = KINDS[name]
    scenario = load_scenario(str(scenario_file(kind, directory, users, day_s, {})))
    with short_directory() as place, kind.start(*population_of(scenario), place) as server:
        path = scenario_file(kind, directory, users, day_s, on(server.services))
        yield Site(kind, server.services, path, load_scenario(str(path)))
