"""The probes `postfix` and `dovecot` on real servers: their figures are those that other programs find there."""

import imaplib
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from mailservers import DOMAIN, logged_on, numbered_accounts, short_directory, submit
from patience import PATIENCE_S
from small_runs import loadsim, on, population_of, written

from loadsim.analysis.probes.statistics import probe_facts, samples_of
from loadsim.model.ports import Probe
from loadsim.model.scenario import load_scenario
from loadsim.monitor.dovecot_probe import COMMANDS, DUMP_METRICS, LOG_INS, Total, answer_of, metrics_of_dump
from loadsim.monitor.dovecot_probe import open_probe as open_dovecot
from loadsim.monitor.postfix_probe import QUEUES, LogCounter
from loadsim.monitor.postfix_probe import open_probe as open_postfix
from loadsim.servers.dovecot_postfix import DovecotPostfix, start_dovecot_postfix
from loadsim.servers.private import free_port
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog

pytestmark = pytest.mark.nightly(part="runs")

ACCOUNTS = numbered_accounts(4)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "probes.md"


def metrics_of_the_page(port: int) -> str:
    """The configuration that the page recommends, and a listener for OpenMetrics."""
    shown = PAGE.read_text().partition("```dovecot\n")[2].partition("```")[0]
    assert shown.count("metric ") == 3
    return f"{shown}\nservice stats {{\n  inet_listener http {{\n    address = 127.0.0.1\n    port = {port}\n  }}\n}}\n"


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(metrics_port: int) -> Iterator[DovecotPostfix]:
    with short_directory() as directory:
        (directory / "dovecot").mkdir()
        (directory / "dovecot" / "extra.conf").write_text(metrics_of_the_page(metrics_port))
        with start_dovecot_postfix(ACCOUNTS, {}, directory) as started:
            yield started


def await_equal(expected: object, found: Callable[[], object]) -> None:
    """Wait until a server, which works in the background, has got there."""
    until = time.monotonic() + PATIENCE_S
    while (now := found()) != expected:
        assert time.monotonic() < until, f"expected {expected}, found {now}"
        time.sleep(0.05)


def events_between(sample: Probe, work: Callable[[], None]) -> tuple[Mapping[str, float], float, float]:
    """The figures of a sample after some work, and the least and most seconds since the one before."""
    begun_s = time.monotonic()
    sample()
    sampled_s = time.monotonic()
    work()
    asked_s = time.monotonic()
    figures = sample()
    return figures, asked_s - sampled_s, time.monotonic() - begun_s


def assert_rate(figures: Mapping[str, float], name: str, events: float, least_s: float, most_s: float) -> None:
    """The rate is that of so many events in the time that passed."""
    assert figures[name] * least_s <= events * 1.000001, name
    assert figures[name] * most_s >= events * 0.999999, name


def postfix_probe(server: DovecotPostfix, **settings: object) -> Probe:
    return open_postfix(server.services, config_directory=str(server.postfix.conf), **settings)


def postfix(server: DovecotPostfix, command: str, *arguments: str) -> str:
    """The output of one of Postfix's commands on this instance."""
    words = [f"/usr/sbin/{command}", "-c", str(server.postfix.conf), *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


def spooled(server: DovecotPostfix) -> dict[str, int]:
    return {
        f"{queue}_messages": sum(len(files) for _, _, files in os.walk(server.postfix.queue_files / queue))
        for queue in QUEUES
    }


def send(server: DovecotPostfix, recipients: int, *headers: bytes) -> None:
    to = [account.address for account in ACCOUNTS[:recipients]]
    refused = submit(server.services, f"a@{DOMAIN}", to, b"\r\n".join((*headers, b"Subject: x", b"", b"hi", b"")))
    assert not refused


def test_deliveries_are_those_of_the_log(server: DovecotPostfix) -> None:
    """Messages are counted once, with any headers, and deliveries by recipient. The queue is empty after."""
    sample = postfix_probe(server, log=str(server.postfix.log))
    before = server.postfix.log.read_bytes()

    def work() -> None:
        send(server, 3)
        send(server, 2, b"Message-ID: <a@b>", b"Message-ID: <c@d>")
        send(server, 1, b"Message-ID: <a@b>")
        await_equal([], server.queue)
        await_equal(3, lambda: server.postfix.log.read_bytes()[len(before) :].count(b": removed\n"))

    figures, least_s, most_s = events_between(sample, work)
    for name, events in (("queued", 3), ("sent", 6), ("deferred", 0), ("bounced", 0)):
        assert_rate(figures, f"{name}_per_s", events, least_s, most_s)
    assert figures["sent_per_s"] == pytest.approx(2 * figures["queued_per_s"])
    new = server.postfix.log.read_bytes()[len(before) :]
    assert LogCounter("postfix").counts(new) == {"queued": 3, "sent": new.count(b" status=sent ")}


def test_the_queue_is_that_of_the_spool(server: DovecotPostfix) -> None:
    """Held and deferred messages, their recipients, sizes and ages; and in the listing that people read."""
    postfix(server, "postconf", "-e", "smtpd_recipient_restrictions=check_client_access static:HOLD")
    postfix(server, "postconf", "-e", "defer_transports=lmtp")
    postfix(server, "postfix", "reload")
    try:
        first_s = time.time()
        while spooled(server)["hold_messages"] < 4:  # until the settings have an effect
            send(server, 3)
        sent_s = time.time()
        held = sorted(path.name for path in (server.postfix.queue_files / "hold").rglob("*"))
        postfix(server, "postsuper", "-H", held[0])
        found, listed = spooled(server), {}
        while found != listed:  # until nothing moves meanwhile
            listed = found
            asked_s = time.time()
            figures = postfix_probe(server)()
            now_s = time.time()
            listing = postfix(server, "postqueue", "-p").splitlines()
            found = spooled(server)
        assert found["hold_messages"] == 3
        assert sum(found.values()) >= 4
        assert {name: figures[name] for name in found} == found
        messages = [line.split() for line in listing[1:-1] if line[:1].isalnum()]
        assert figures["queue_bytes"] == sum(int(words[1]) for words in messages)
        assert (
            figures["recipients"] == sum("@" in line for line in listing if line.startswith(" ")) == 3 * len(messages)
        )
        # The oldest one that is not held arrived between the first and the last one, or in the same second.
        assert now_s - sent_s <= figures["oldest_message_s"] + (now_s - asked_s)
        assert figures["oldest_message_s"] <= now_s - first_s + 1
    finally:
        postfix(server, "postsuper", "-d", "ALL")
        postfix(server, "postconf", "-X", "smtpd_recipient_restrictions", "defer_transports")
        postfix(server, "postfix", "reload")
    assert set(postfix_probe(server)().values()) == {0}


def dovecot_metrics(server: DovecotPostfix) -> dict[str, Total]:
    return metrics_of_dump(answer_of(server.layout.dovecot_run / "stats-reader", DUMP_METRICS))


def by_doveadm(server: DovecotPostfix) -> dict[str, int]:
    """The counts of all metrics, by Dovecot's own program."""
    rows = [line.split("\t") for line in server.doveadm("-f", "tab", "stats", "dump").splitlines()]
    return {row[0]: int(row[2]) for row in rows[1:] if row[1] == "duration"}


def use(session: imaplib.IMAP4) -> None:
    """Commands of which the expected numbers are known: 2 APPEND, 2 SELECT of which 1 fails, and so on."""
    message = b"Subject: x\r\n\r\nhi\r\n"
    for _ in range(2):
        assert session.append("INBOX", "", "", message)[0] == "OK"
    assert session.select("INBOX")[0] == "OK"
    assert session.fetch("1", "(FLAGS)")[0] == "OK"
    assert session.uid("FETCH", "1:*", "(FLAGS)")[0] == "OK"
    assert session.uid("SEARCH", "ALL")[0] == "OK"
    assert session.store("1", "+FLAGS", "(\\Deleted)")[0] == "OK"
    assert session.copy("2", "INBOX")[0] == "OK"
    assert session.expunge()[0] == "OK"
    assert session.list()[0] == "OK"
    for _ in range(3):
        assert session.noop()[0] == "OK"
    session.send(b"X1 IDLE\r\n")
    assert session.readline().startswith(b"+")
    session.send(b"DONE\r\nX2 XUNKNOWN\r\n")
    while not session.readline().startswith(b"X2 BAD"):
        pass
    assert session.select("none of this name")[0] == "NO"


USED = dict.fromkeys(COMMANDS, 1) | {"append": 2, "fetch": 2, "move": 0, "select": 2}


def test_commands_are_those_that_were_sent(server: DovecotPostfix) -> None:
    before = dovecot_metrics(server)
    total = before["imap_command"].events
    every = sum(USED.values()) + sum({"noop": 3, "unknown": 1}.values())
    with logged_on(server, ACCOUNTS[0]) as session:
        # A log-on may send CAPABILITY, too.
        time_before = dovecot_metrics(server)["imap_command"].events
        sample = open_dovecot(server.services, base_dir=str(server.layout.dovecot_run))

        def work() -> None:
            use(session)
            await_equal(time_before + every, lambda: dovecot_metrics(server)["imap_command"].events)

        figures, least_s, most_s = events_between(sample, work)
    assert total <= time_before
    assert figures["imap_sessions"] == 1
    for name, count in USED.items():
        assert_rate(figures, f"{name}_per_s", count, least_s, most_s)
        assert figures[f"{name}_per_s"] == pytest.approx(figures["commands_per_s"] * count / every)
        assert (f"{name}_mean_ms" in figures) == (count > 0 and name != "idle")
    assert_rate(figures, "commands_per_s", every, least_s, most_s)
    assert_rate(figures, "failed_commands_per_s", 2, least_s, most_s)
    # No command took longer than all of them did.
    assert sum(count * figures.get(f"{name}_mean_ms", 0) for name, count in USED.items()) <= 1000 * most_s
    # The log-off is counted after the server's answer.
    await_equal(time_before + every + 1, lambda: dovecot_metrics(server)["imap_command"].events)
    await_equal({name: total.events for name, total in dovecot_metrics(server).items()}, lambda: by_doveadm(server))


def test_log_ins_and_sessions(server: DovecotPostfix) -> None:
    """Those of IMAP: also those that fail, and the sessions that doveadm lists."""
    sample = open_dovecot(server.services, base_dir=str(server.layout.dovecot_run))
    await_equal(0, lambda: sample()["imap_sessions"])
    before = dovecot_metrics(server)
    with ExitStack() as stack:

        def work() -> None:
            for account in (*ACCOUNTS, ACCOUNTS[0], ACCOUNTS[0]):
                stack.enter_context(logged_on(server, account))
            endpoint = server.services.imap
            client = stack.enter_context(imaplib.IMAP4(endpoint.host, endpoint.port, timeout=PATIENCE_S))
            with pytest.raises(imaplib.IMAP4.error):
                client.login(ACCOUNTS[0].login, "wrong")
            for metric, count in (("auth_success", 6), ("auth_failures", 1)):
                await_equal(before[metric].events + count, lambda metric=metric: dovecot_metrics(server)[metric].events)

        figures, least_s, most_s = events_between(sample, work)
        assert_rate(figures, "logins_per_s", 6, least_s, most_s)
        assert_rate(figures, "failed_logins_per_s", 1, least_s, most_s)
        assert figures["imap_sessions"] == 6
        listed = server.doveadm("-f", "tab", "who").splitlines()[1:]
        assert sum(int(line.split("\t")[1]) for line in listed) == 6
    await_equal(0, lambda: sample()["imap_sessions"])


def assert_integrates_to(log: TimingLog) -> None:
    """The rates of the Dovecot probe, times the seconds between its samples, are the commands of the timing log.

    The sampling begins before the first log-on. On a busy machine, its last sample is before some of the log-offs: it
    has at least the commands that had ended by then. A sample is taken some time after its instant in the log, hence
    the tolerance.
    """
    samples = [each for each in log.health if each.get("probe") == "dovecot"]
    seen: Counter[str] = Counter()
    for before, after in pairwise(samples):
        for figure, per_s in after["figures"].items():
            seen[figure.removesuffix("_per_s")] += per_s * (after["at_s"] - before["at_s"])
    assert samples[0]["at_s"] < log.commands["started_us"].min() / 1e6
    ended_us = log.commands["started_us"] + log.commands["took_us"]
    by_then, all_made = (
        Counter(
            name.removeprefix("IMAP ").removeprefix("UID ").lower()
            for command in commands
            if (name := log.strings[command["command"]]).startswith("IMAP ")
        )
        for commands in (log.commands[ended_us <= samples[-1]["at_s"] * 1e6], log.commands)
    )
    for name in COMMANDS:
        assert 0.95 * by_then[name] - 2 <= seen[name] <= 1.05 * all_made[name] + 2, name
    assert 5 <= round(seen["logins"]) <= 7  # each user, and what renews the hold of the accounts
    # IDLE counts once, with its DONE, and a connection is no command.
    least, most = (made.total() - made["done"] - made["connect"] for made in (by_then, all_made))
    assert 0.95 * least <= seen["commands"] <= 1.05 * most


def test_a_run_with_all_of_them(tmp_path: Path) -> None:
    """Dovecot's counters are the commands of the timing log, and the deliveries are those of the score."""
    path = written(tmp_path / "small.yaml")
    port = free_port()
    with short_directory() as directory:
        (directory / "dovecot").mkdir()
        (directory / "dovecot" / "extra.conf").write_text(metrics_of_the_page(port))
        with start_dovecot_postfix(*population_of(load_scenario(str(path))), directory) as server:
            probes = {
                "dovecot": {"base_dir": str(server.layout.dovecot_run)},
                "postfix": {"config_directory": str(server.postfix.conf), "log": str(server.postfix.log)},
                "prometheus": {
                    "url": f"http://127.0.0.1:{port}/metrics",
                    "metrics": "rate(dovecot_imap_command_count)",
                },
                "command/a": {"run": "echo 5"},
                "command/b": {"run": "echo a_count 7"},
            }
            written(path, probes=probes, **on(server.services))
            assert loadsim("init", path).returncode == 0
            await_equal([], server.queue)
            before = dovecot_metrics(server)
            run = loadsim("run", "--no-report", path, "--out", tmp_path / "out", "--set", "initialise=never")
            assert run.returncode == 0, run.stderr + run.stdout
            log = read_logs([tmp_path / "out"])
            sent = Counter(log.strings[command["command"]].removeprefix("IMAP ") for command in log.commands)

            def made() -> dict[str, float]:
                after = dovecot_metrics(server)
                return {
                    name: after[key].events - (before[key].events if key in before else 0)
                    for name in sent
                    if (key := f"imap_command_{name.replace(' ', '_')}") in after
                }

            # The preflight, which no log has, reads the manifest of each mailbox: a list of its folder, and its text.
            # The hold on the first one is written and removed.
            # How many connections it makes to try log-ons and limits is no matter of this test.
            hold = {"SELECT": 3, "UID FETCH": 6, "APPEND": 2, "UID STORE": 2, "UID EXPUNGE": 2}
            preflight = Counter({"SELECT": 6, "UID FETCH": 2 * 6}) + Counter(hold)
            of_connections = {"CAPABILITY", "NAMESPACE", "LIST", "LOGOUT"}
            expected = {name: sent[name] + preflight[name] for name in made() if name not in of_connections}
            assert {"APPEND", "IDLE", "SELECT", "UID FETCH", "UID STORE", "UID MOVE", "UID EXPUNGE"} <= set(expected)
            await_equal(expected, lambda: {name: count for name, count in made().items() if name in expected})
    (facts,) = (source.facts.probes for source in log.sources if source.facts.probes)
    assert set(facts) == set(probes)
    assert {probe: each.failures for probe, each in probe_facts(log).items()} == dict.fromkeys(probes, 0)
    assert all(each.package.startswith("loadsim ") for each in probe_facts(log).values())
    assert_integrates_to(log)
    values = {
        (probe, figure): [value for at_s, value in samples if 0 <= at_s < 20]
        for probe, figures in samples_of(log).items()
        for figure, samples in figures.items()
    }
    assert {*values["command/a", "value"]} == {5}
    assert {*values["command/b", "a_count"]} == {7}
    assert max(values["dovecot", "imap_sessions"]) == 6
    commands = fmean(values["dovecot", "commands_per_s"])
    assert commands > 0
    assert fmean(values["prometheus", "dovecot_imap_command_count_per_s"]) == pytest.approx(commands, rel=0.2)
    assert fmean(values["postfix", "sent_per_s"]) > fmean(values["postfix", "queued_per_s"]) > 0
    assert max(values["dovecot", "failed_logins_per_s"]) == 0
    assert {("dovecot", f"{name}_per_s") for name in (*COMMANDS, *LOG_INS)} <= values.keys()
