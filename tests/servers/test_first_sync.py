"""FIRST SYNC on real servers: new programs copy what is there, and find what is altered; imaplib counts."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from maildirs import stored
from mailservers import SITES, StartDovecotPostfix, logged_on
from paths import ROOT
from small_runs import loadsim, on, population_of, written

from loadsim.model.ports import Account
from loadsim.model.records import EVENTS
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.servers.dovecot_postfix import DovecotPostfix
from loadsim.servers.running import RunningServer
from loadsim.timinglog.reader import TimingLog, read_log

pytestmark = pytest.mark.slow

START = {"inbox": 9, "deleted_items": 3, "folders": 3, "messages_per_folder": 6}
NEWEST = 4
LISTED_BYTES = 1500
"""More than one message takes in a list, with its flags, and with the bytes of commands for a copy of few messages."""


def new_program(place: Path, bodies: object) -> str:
    """Write Thunderbird with a first sync. Return its path."""
    program = yaml.safe_load((ROOT / "programs" / "thunderbird.yaml").read_text(encoding="utf-8"))
    path = place / f"copies-{bodies}.yaml"
    program |= {"name": path.stem, "first_sync": {"bodies": bodies}}
    path.write_text(yaml.safe_dump(program), encoding="utf-8")
    return str(path)


class Prepared:
    """Three groups of two users whose programs copy all, the newest, or no bodies, and their mailboxes."""

    def __init__(self, place: Path, start: Callable[..., RunningServer]) -> None:
        profile = place / "profile.yaml"
        profile.write_text(yaml.safe_dump({"from": "loadsim-5.5/medium", "name": "few", "start_state": START}))
        groups = [
            {"profile": str(profile), "users": 2, "program": new_program(place, bodies)}
            for bodies in ("all", NEWEST, "none")
        ]
        keys = {"topology": groups, "run": {"day_length": "10s", "ramp_up": "1s", "warm_up": "2s", "window": "8s"}}
        self.path = written(place / "scenario.yaml", **keys)
        self.server: RunningServer = start(*population_of(load_scenario(str(self.path))))
        written(self.path, **keys, **on(self.server.services))
        self.scenario = load_scenario(str(self.path))
        ended = loadsim("init", self.path)
        assert ended.returncode == 0, ended.stderr

    def most(self, user: int, messages: int) -> int:
        """The bodies that the user's program copies of each folder."""
        sync = Workload(self.scenario).population.group(user).program.first_sync
        assert sync is not None
        return messages if sync.bodies is None else sync.bodies

    def sizes(self, user: int) -> Mapping[str, list[int]]:
        """The sizes of the messages of each folder with mail in the start state, as imaplib reads them."""
        account: Account = self.scenario.account(user)
        sizes: dict[str, list[int]] = {}
        with logged_on(self.server, account) as client:
            for folder in Workload(self.scenario).start_state(user):
                client.select(f'"{folder}"', readonly=True)
                _, lines = client.fetch("1:*", "(RFC822.SIZE)")
                sizes[folder] = [int(re.findall(rb"RFC822.SIZE (\d+)", line)[0]) for line in lines]
        return sizes

    def run(self) -> tuple[dict[str, Any], TimingLog]:
        out = self.path.parent / "out"
        ended = loadsim("run", self.path, "--out", out, "--quiet", "--no-report", "--engines", "1")
        assert (out / "score.json").exists(), ended.stderr
        (log,) = map(read_log, (out / "logs").glob("*.1.tlog"))
        return json.loads((out / "score.json").read_text(encoding="utf-8")), log


@pytest.mark.parametrize("site", SITES)
def test_what_is_copied_is_what_imaplib_counts(site: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each user's bytes are those of the messages to copy, and no more than the lists besides; so are the plan's."""
    starts = {"embedded": "embedded_server", "dovecot": "dovecot_postfix"}
    prepared = Prepared(tmp_path, request.getfixturevalue(starts[site]))
    sizes = {user: prepared.sizes(user) for user in range(1, 7)}
    messages = sum(START[key] for key in ("inbox", "deleted_items")) + START["folders"] * START["messages_per_folder"]
    assert [sum(map(len, of.values())) for of in sizes.values()] == [messages] * 6
    bodies = {
        user: [size for folder in of.values() for size in folder[len(folder) - min(len(folder), most) :]]
        for user, of in sizes.items()
        for most in (prepared.most(user, messages),)
    }
    assert {len(each) for each in bodies.values()} == {messages, NEWEST * 4 + START["deleted_items"], 0}

    planned = json.loads(loadsim("plan", prepared.path, "--json").stdout)
    assert planned["tasks"]["FIRST SYNC"] == 6
    assert planned["first_sync"]["headers"] == 6 * messages
    assert planned["first_sync"]["bodies"] == sum(map(len, bodies.values()))
    assert planned["first_sync"]["bytes"] == pytest.approx(sum(map(sum, bodies.values())), rel=0.02)

    score, log = prepared.run()
    assert (score["failed"], score["sessions_lost"]) == (0, 0)
    assert not score["delivery"]["missing"] and not score["delivery"]["altered"]
    tasks = [task for of in score["by_protocol"].values() for task in of["tasks"] if task["task"] == "FIRST SYNC"]
    assert sum(task["hits"] for task in tasks) == 6
    copies = [
        (int(user), int(moved))
        for task, user, moved in zip(log.tasks["task"], log.tasks["user"], log.tasks["bytes"], strict=True)
        if log.strings[task] == "FIRST SYNC"
    ]
    assert sorted(user for user, _ in copies) == sorted(sizes)
    for user, moved in copies:
        assert sum(bodies[user]) < moved < sum(bodies[user]) + LISTED_BYTES * messages


@pytest.mark.system
def test_altered_mail_is_found(tmp_path: Path, dovecot_postfix: StartDovecotPostfix) -> None:
    """A text in a Maildir is changed, in a folder that the user may never browse."""
    servers: list[DovecotPostfix] = []

    def start(*population: Any) -> DovecotPostfix:
        servers.append(dovecot_postfix(*population))
        return servers[0]

    prepared = Prepared(tmp_path, start)
    user = next(user for user in range(1, 7) if prepared.most(user, 100) == 100)
    mail = stored(servers[0].layout.mail)
    own = [each for each in mail if each.user == user and each.folder.startswith("Folder 0")]
    marked = next(each for each in own if each.kind in ("ups1K", "ups2K", "ups4K"))
    raw = marked.path.read_bytes()
    at = len(raw) - 40
    marked.path.unlink()
    marked.path.write_bytes(raw[:at] + (b"x" if raw[at : at + 1] != b"x" else b"y") + raw[at + 1 :])
    shutil.chown(marked.path, "dovecot", "dovecot")

    score, log = prepared.run()
    records = zip(log.mails["event"], log.mails["message"], log.mails["user"], strict=True)
    found = {
        (EVENTS[event], message.decode())
        for event, message, whose in records
        if EVENTS[event] in ("missing", "altered") and whose == user
    }
    assert found == {("altered", marked.id)}
    assert (score["delivery"]["altered"], score["delivery"]["missing"]) == (1, 0)
