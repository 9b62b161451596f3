"""The public folder on Dovecot: posts and start state by doveadm and imaplib, rights, and changes by others."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml
from mailservers import StartDovecotPostfix, logged_on, short_directory
from other_servers.cyrus import start_cyrus
from public_folders import FOLDER, USERS, given, posts, scenario_on
from small_runs import loadsim, on, population_of

from loadsim.model.ports import Account
from loadsim.model.records import EVENTS
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import DovecotPostfix, check_machine
from loadsim.servers.running import RunningServer
from loadsim.timinglog.merge import read_logs

pytestmark = [pytest.mark.slow, pytest.mark.system]


def with_acl() -> str:
    """Settings by which Dovecot offers ACL, and takes each folder's rights from its file `dovecot-acl`."""
    dialect, _ = check_machine()
    if dialect.version:
        plugins = "mail_plugins {\n  acl = yes\n}\nprotocol imap {\n  mail_plugins {\n    imap_acl = yes\n  }\n}\n"
        return f"{plugins}acl_driver = vfile\n"
    return "mail_plugins = acl\nprotocol imap {\n  mail_plugins = acl imap_acl\n}\nplugin {\n  acl = vfile\n}\n"


def test_posts_are_where_the_log_says(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """The folder has the start state and each user's posts, once; `init` and `clean` leave the mail of others."""
    path, server = scenario_on(dovecot_postfix, tmp_path)
    account = load_scenario(str(path)).account(1)
    with logged_on(server, account) as client:
        before = client.list()
        client.append(f'"{FOLDER}"', "", "", b"Subject: of others\r\n\r\nnot loadsim's\r\n")
    out = tmp_path / "out"
    ended = loadsim(
        "run", "--no-report", path, "--out", out, "--set", "run.audit=yes", "--set", "client.check_state=100%"
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    score = json.loads((out / "score.json").read_text(encoding="utf-8"))
    tasks = {task["task"]: task for task in score["tasks"]}
    assert min(tasks[name]["hits"] for name in ("POST", "BROWSE PUBLIC")) > 0
    assert not any(tasks[name]["failed"] or tasks[name]["weight"] for name in ("POST", "BROWSE PUBLIC"))
    log = read_logs([out])
    made = log.mails[(log.mails["event"] == EVENTS.index("saved")) & (log.mails["user"] == 0)]
    posted = Counter(mail["message"].decode() for mail in made)
    assert len({mail["sender"] for mail in made}) == USERS
    held = posts(server)
    assert len(held) == len(posted) + 3
    assert posted.total() == len(posted) == (held & posted).total()
    assert log.audit is not None and log.audit.mailboxes == USERS

    ended = loadsim("init", path)
    assert ended.returncode == 0, ended.stderr
    assert not posts(server) & posted
    assert posts(server).total() == 3
    assert "nothing to do" in loadsim("init", path).stdout
    ended = loadsim("check", path)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "POST" in ended.stdout and posts(server).total() == 3
    assert loadsim("clean", path).returncode == 0
    with logged_on(server, account) as client:
        assert client.list() == before
        assert client.select(f'"{FOLDER}"')[1] == [b"1"]


@pytest.mark.nightly(part="servers")
def test_a_run_on_cyrus(tmp_path: Path) -> None:
    """There, \\Seen is each user's own, ACL is always offered, and the shared namespace has no prefix."""
    path = given(tmp_path)
    population = population_of(load_scenario(str(path)))
    with short_directory() as place, start_cyrus(*population, place, public_folder="Notices") as server:
        path = given(tmp_path, **on(server.services), folders={"public": "Notices"})
        account = load_scenario(str(path)).account(2)
        options = ["--set", "run.audit=yes", "--set", "client.check_state=100%"]
        ended = loadsim("run", "--no-report", path, "--out", tmp_path / "out", *options)
        assert ended.returncode == 0, ended.stderr + ended.stdout
        log = read_logs([tmp_path / "out"])
        posted = int(((log.mails["event"] == EVENTS.index("saved")) & (log.mails["user"] == 0)).sum())
        assert log.audit is not None and not log.audit.findings
        assert held(server, account) == posted + 3 > 3
        for command, left in (("check", posted + 3), ("init", 3), ("clean", 0)):
            ended = loadsim(command, path)
            assert ended.returncode == 0, ended.stderr + ended.stdout
            assert held(server, account) == left


def held(server: RunningServer, account: Account) -> int:
    """The number of messages in the folder, for this user."""
    with logged_on(server, account) as client:
        return int(client.select("Notices", readonly=True)[1][0] or b"")


def test_an_audit_names_each_post_that_is_not_there_once(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """Lost, doubled, altered: as all users' mail, and once although all of them list the folder."""
    path, server = scenario_on(dovecot_postfix, tmp_path)
    out = tmp_path / "out"
    ended = loadsim("run", "--no-report", path, "--out", out, "--set", "run.audit=no")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    lost, doubled, altered, *_ = sorted(message for message in posts(server) if message.startswith("p"))
    for file in files(server):
        text = file.read_bytes()
        if f"id={lost};".encode() in text:
            file.unlink()
        elif f"id={doubled};".encode() in text:
            second = file.with_name(f"1{file.name}")
            shutil.chown(shutil.copy2(file, second), file.owner())
        elif f"id={altered};".encode() in text:
            file.write_bytes(b"x".join(text.rsplit(b" ", 1)))
    ended = loadsim("audit", out, "--json", "--set", "accounts.password=secret-{index}")
    found = json.loads(ended.stdout)["findings"]
    run = read_logs([out]).sources[0].run
    named = {
        (one["code"], one["where"], one["values"]["message_id"].partition(f".{run}@")[0], one["values"]["user"])
        for one in found
    }
    assert named == {
        ("mail-lost", "all users", f"<{lost}", 0),
        ("mail-duplicated", "all users", f"<{doubled}", 0),
        ("mail-altered", "all users", f"<{altered}", 0),
    }


def files(server: DovecotPostfix) -> list[Path]:
    """The files of the folder's messages."""
    return [path for each in ("cur", "new") for path in (server.layout.public / ".Notice Board" / each).iterdir()]


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        ("lrwite", "lr", "user00002@loadsim.test): folders.public: expected the rights ri (RFC 4314) in"),
        ("lrw", "lrwi", "user00001@loadsim.test): folders.public: expected the rights rite (RFC 4314) in"),
        ("lrwite", None, "user00002@loadsim.test): folders.public: expected a folder below"),
    ],
)
def test_a_missing_right_is_named_before_the_run(
    dovecot_postfix: StartDovecotPostfix, tmp_path: Path, own: str, others: str | None, expected: str
) -> None:
    """In one line, and without a run: the first user needs more rights than others."""
    second = {"from": str(tmp_path / "posting.yaml"), "name": "second"}
    (tmp_path / "second.yaml").write_text(yaml.safe_dump(second), encoding="utf-8")
    groups = [{"profile": str(tmp_path / f"{name}.yaml"), "users": 1} for name in ("posting", "second")]
    path, server = scenario_on(dovecot_postfix, tmp_path, with_acl(), topology=groups)
    folder = server.layout.public / ".Notice Board"
    for place in (folder, *(folder / each for each in ("cur", "new", "tmp"))):
        place.mkdir()
        shutil.chown(place, server.layout.mail.owner())
    rights = f"user=user00001 {own}\n" + (f"user=user00002 {others}\n" if others else "")
    (folder / "dovecot-acl").write_text(rights, encoding="utf-8")
    for command in (["run", "--no-report", path, "--out", tmp_path / "out"], ["check", path]):
        ended = loadsim(*command)
        assert ended.returncode == 2, ended.stderr + ended.stdout
        assert expected in ended.stderr
        assert len([line for line in ended.stderr.splitlines() if "folders.public" in line]) == 1
    assert not (tmp_path / "out" / "logs").exists()
