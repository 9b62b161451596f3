"""Probes on real mail servers: their figures are those that other programs find there."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import yaml
from mailservers import DOMAIN, numbered_accounts, short_directory, submit
from paths import ROOT
from patience import PATIENCE_S
from small_runs import loadsim, on, population_of, written

from loadsim.analysis.probes.statistics import probe_facts, samples_of
from loadsim.model.ports import Probe
from loadsim.monitor.postfix_probe import QUEUES, LogCounter
from loadsim.monitor.postfix_probe import open_probe as open_postfix
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import DovecotPostfix, check_machine, start_dovecot_postfix
from loadsim.servers.dovecot_postfix_config import DIALECTS
from loadsim.servers.private import free_port
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog

pytestmark = pytest.mark.nightly(part="runs")

ACCOUNTS = numbered_accounts(4)
PAGE = ROOT / "docs" / "reference" / "probes.md"


BY_COMMAND = "metric by_command {{\n  filter = event=imap_command_finished\n  {}\n}}\n"
GROUPS = {DIALECTS[2, 3]: "group_by = cmd_name", DIALECTS[2, 4]: "group_by cmd_name {\n  }"}


def shown_on_the_page(language: str, port: int) -> str:
    """The configuration that the page recommends for Dovecot's metrics, with another port."""
    text = PAGE.read_text()
    shown = text[text.index("```dovecot\n") :].partition(f"```{language}\n")[2].partition("```")[0]
    assert shown.count("9900") == 1
    return shown.replace("9900", str(port))


@pytest.fixture(scope="module")
def server() -> Iterator[DovecotPostfix]:
    with short_directory() as directory, start_dovecot_postfix(ACCOUNTS, {}, directory) as started:
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


def test_queue_figures_are_those_of_the_spool(server: DovecotPostfix) -> None:
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


def by_doveadm(server: DovecotPostfix) -> Counter[str]:
    """The counts of all metrics, by Dovecot's own program."""
    rows = [line.split("\t") for line in server.doveadm("-f", "tab", "stats", "dump").splitlines()]
    return Counter({row[0]: int(row[2]) for row in rows[1:] if row[1] == "duration"})


def assert_integrates_to(log: TimingLog) -> None:
    """The rates, times the seconds between samples, are the IMAP commands of the timing log.

    The sampling begins before the first log-on. On a busy machine, its last sample is before some of the log-offs: it
    has at least the commands that had ended by then. A sample is taken some time after its instant in the log, hence
    the tolerance. IDLE counts once, with its DONE, and a connection is no command.
    """
    samples = [each for each in log.health if each.get("probe") == "prometheus/dovecot"]
    seen = sum(
        after["figures"].get("commands_per_s", 0) * (after["at_s"] - before["at_s"])
        for before, after in pairwise(samples)
    )
    assert samples[0]["at_s"] < log.commands["started_us"].min() / 1e6
    imap = np.array([name.startswith("IMAP ") and name[5:] not in ("CONNECT", "DONE") for name in log.strings])
    made = log.commands[imap[log.commands["command"]]]
    by_then = (made["started_us"] + made["took_us"]) <= samples[-1]["at_s"] * 1e6
    assert 0.95 * np.count_nonzero(by_then) - 20 <= seen <= 1.05 * len(made) + 20


def test_a_run_records_all_mail_probes(tmp_path: Path) -> None:
    """Dovecot's counters are the commands of the timing log, and the deliveries are those of the score."""
    path = written(tmp_path / "small.yaml")
    port = free_port()
    with short_directory() as directory:
        (directory / "dovecot").mkdir()
        by_command = BY_COMMAND.format(GROUPS[check_machine()[0]])
        (directory / "dovecot" / "extra.conf").write_text(shown_on_the_page("dovecot", port) + by_command)
        with start_dovecot_postfix(*population_of(load_scenario(str(path))), directory) as server:
            probes = {
                **yaml.safe_load(shown_on_the_page("yaml", port))["probes"],
                "postfix": {"config_directory": str(server.postfix.conf), "log": str(server.postfix.log)},
                "command/a": {"run": "echo 5"},
                "command/b": {"run": "echo a_count 7"},
            }
            written(path, probes=probes, **on(server.services))
            assert loadsim("init", path).returncode == 0
            await_equal([], server.queue)
            before = by_doveadm(server)
            run = loadsim(
                "run",
                "--no-report",
                path,
                "--out",
                tmp_path / "out",
                "--set",
                "initialise=never",
                "--set",
                "run.audit=no",
            )
            assert run.returncode == 0, run.stderr + run.stdout
            log = read_logs([tmp_path / "out"])
            sent = Counter(log.strings[command["command"]].removeprefix("IMAP ") for command in log.commands)

            def made() -> dict[str, int]:
                after = by_doveadm(server)
                return {
                    name: after[key] - before[key]
                    for name in sent
                    if (key := f"by_command_{name.replace(' ', '_')}") in after
                }

            # The preflight, which no log has, reads the manifest of each mailbox: a list of its folder, and its text.
            # The hold on the first one is taken, renewed after the load, and ended: each time, a manifest is written.
            # How many connections it makes to try log-ons and limits is no matter of this test.
            hold = {"SELECT": 4, "UID FETCH": 8, "APPEND": 3, "UID STORE": 3, "UID EXPUNGE": 3}
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
    assert fmean(values["postfix", "sent_per_s"]) > fmean(values["postfix", "queued_per_s"]) > 0
