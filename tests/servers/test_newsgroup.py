"""The public folder as a newsgroup: users of JMAP with a news server of the tests, and of IMAP with INN."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mailservers import StartDovecotPostfix, numbered_accounts, short_directory, start_jmap_peer
from news_peer import NewsPeer, field_of
from news_reader import NewsReader
from other_servers.inn import start_inn
from small_runs import loadsim, on, population_of, written

from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import Services
from loadsim.model.records import EVENTS
from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.merge import read_logs

pytestmark = pytest.mark.slow

USERS = 4
GROUP = "loadsim.board"
SMALL = {"inbox": 2, "deleted_items": 0, "folders": 2, "messages_per_folder": 2}


def given(place: Path, protocol: str = "imap", **changes: Any) -> Path:
    """A scenario whose users post and browse often."""
    profile = {"from": "loadsim-5.5/medium", "name": "posting", "start_state": SMALL}
    profile |= {"post": {"per_day": 8}, "browse_public": {"per_day": 12}}
    (place / "posting.yaml").write_text(json.dumps(profile), encoding="utf-8")
    topology = [{"profile": str(place / "posting.yaml"), "users": USERS, "protocol": protocol}]
    keys = {"topology": topology, "folders": {"public": GROUP}, "mailbox": {"public": 3}}
    return written(place / "public.yaml", **keys | changes)


def given_jmap(place: Path, services: Services, peer: NewsPeer, **changes: Any) -> Path:
    jmap = {"host": "127.0.0.1", "port": services.endpoint("jmap").port}
    keys = {
        "domain": "example.test",
        "server": {"jmap": jmap, "nntp": {"host": "127.0.0.1", "port": peer.endpoint.port}},
        "accounts": {"user": "user{index}", "password": "secret-of-{index}"},
        "lists": {"count": 0},
    }
    return given(place, "jmap", **keys | changes)


def test_users_of_jmap_share_a_newsgroup_and_the_audit_names_its_faults(tmp_path: Path) -> None:
    """Lost, doubled, altered: each once, as all users' mail. A post of an earlier run is none of this one's."""
    with start_jmap_peer(numbered_accounts(USERS)) as services, NewsPeer().running() as peer:
        out, path = tmp_path / "out", given_jmap(tmp_path, services, peer)
        ended = loadsim("run", "--no-report", path, "--out", out, "--set", "run.audit=no")
        assert ended.returncode == 0, ended.stderr + ended.stdout
        score = json.loads((out / "score.json").read_text(encoding="utf-8"))
        tasks = {task["task"]: task for task in score["tasks"]}
        assert min(tasks[name]["hits"] for name in ("POST", "BROWSE PUBLIC")) > 0
        assert not any(tasks[name]["failed"] for name in tasks)
        posted = [each for each in peer.articles if b"id=p" in each]
        assert len(peer.articles) == len(posted) + 3
        lost, doubled, altered, *_ = posted
        peer.gone.add(peer.articles.index(lost) + 1)
        peer.articles.append(doubled)
        peer.articles[peer.articles.index(altered)] = b"x".join(altered.rsplit(b" ", 1))
        ended = loadsim("audit", out, "--json", "--set", "accounts.password=secret-of-{index}")
        found = json.loads(ended.stdout)["findings"]
    named = {(one["code"], one["where"], one["values"]["message_id"].encode(), one["values"]["user"]) for one in found}
    faults = {"mail-lost": lost, "mail-duplicated": doubled, "mail-altered": altered}
    assert named == {(code, "all users", field_of(article, "Message-ID"), 0) for code, article in faults.items()}


def test_what_a_news_server_lacks_is_named_before_the_run(tmp_path: Path) -> None:
    """In one line, without a run."""
    with start_jmap_peer(numbered_accounts(USERS)) as services, NewsPeer().running() as peer:
        path, out = given_jmap(tmp_path, services, peer), tmp_path / "out"
        run = ("run", "--no-report", path, "--out", out)

        def refused(*further: str) -> str:
            ended = loadsim(*run, *further)
            assert ended.returncode == 2, ended.stderr + ended.stdout
            (line,) = [line for line in ended.stderr.splitlines() if "expected" in line]
            return line

        peer.password = "another"
        assert "account user1 (user1@example.test): expected to log on over NNTP, the server answered: 481" in refused()
        peer.password = None
        line = refused("--set", "folders.public=example.board")
        assert "folders.public: expected a newsgroup example.board that users can read, found: 411 GROUP" in line
        peer.posting = False
        assert "folders.public: expected a news server that lets users post" in refused()
        peer.posting = True
        assert loadsim("init", path).returncode == 0
        assert "folders.public: expected 2 articles of loadsim's start state, found 3" in refused(
            "--set", "mailbox.public=2"
        )
        line = refused("--set", "run.seed=7")
        assert "expected 3 articles of loadsim's start state, found 3, of which 0 are its own; articles cannot" in line
        assert not (out / "logs").exists()


@pytest.mark.system
@pytest.mark.nightly(part="servers")
def test_articles_are_where_the_log_says(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """The newsgroup has the start state and each user's posts, once, and keeps them after `init` and `clean`."""
    keys = on(dovecot_postfix(*population_of(load_scenario(str(given(tmp_path))))).services)
    with short_directory() as directory, start_inn(directory, GROUP) as inn:
        assert inn.services.nntp is not None
        port = inn.services.nntp.port
        keys["server"]["nntp"] = {"host": "127.0.0.1", "port": port}
        path, out = given(tmp_path, **keys), tmp_path / "out"
        ended = loadsim("run", "--no-report", path, "--out", out, "--set", "run.audit=yes")
        assert ended.returncode == 0, ended.stderr + ended.stdout
        score = json.loads((out / "score.json").read_text(encoding="utf-8"))
        tasks = {task["task"]: task for task in score["tasks"]}
        assert min(tasks[name]["hits"] for name in ("POST", "BROWSE PUBLIC")) > 0
        assert not any(tasks[name]["failed"] for name in ("POST", "BROWSE PUBLIC"))
        log = read_logs([out])
        assert log.audit is not None and not log.audit.findings
        made = log.mails[(log.mails["event"] == EVENTS.index("saved")) & (log.mails["user"] == 0)]
        posted = Counter(mail["message"].decode() for mail in made)
        assert posted.total() == len(posted) and len({mail["sender"] for mail in made}) == USERS
        sent = Counter(log.strings[command] for command in log.commands["command"])
        assert sent["NNTP POST"] == len(posted)
        with NewsReader(port) as reader:
            held = articles(reader)
            assert (held & posted) == posted and held.total() == len(posted) + 3
            for command, said in (
                ("init", "Initialised"),
                ("init", "nothing to do"),
                ("check", "POST"),
                ("clean", f"{len(posted) + 5} articles of loadsim's stay in the newsgroup"),
            ):
                ended = loadsim(command, path)
                assert ended.returncode == 0, ended.stderr + ended.stdout
                assert said in ended.stdout
            assert articles(reader).total() == held.total() + 2


def articles(reader: NewsReader) -> Counter[str]:
    """The ids of loadsim's articles in the newsgroup."""
    _, _, low, high, _ = reader.ask(f"GROUP {GROUP}").split()
    tags = (MessageTag.parse(line.partition(" ")[2]) for line in reader.lines(f"HDR X-LoadSim {low}-{high}"))
    return Counter(tag.id for tag in tags if tag is not None)
