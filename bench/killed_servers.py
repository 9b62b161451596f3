"""`python -m bench.killed_servers`, as root: Dovecot and Postfix are killed during a run; no mail may be lost.

Half of the users work with each IMAP driver. Both servers are killed at the same instant and started again some seconds
later, several times. Each message that was accepted must then be in a mailbox of its recipient, in Postfix's queue,
or recorded as expunged in the timing log. Mailboxes are read as files, the log by its own export.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.nullserver import HOST
from bench.processes import LONGEST_S, short_directory
from bench.runs import AT_WORK, loadsim, scored, written
from bench.table import table
from loadsim.errors import ConfigError
from loadsim.model.message_tag import HEADER, MessageTag
from loadsim.model.ports import Account
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.command import run
from loadsim.servers.dovecot_postfix import DovecotPostfix, start_dovecot_postfix

DRIVERS = ("imap", "aioimaplib")
USERS = 20
"""The number of users of each driver."""

Copy = tuple[str, int]
"""A message's id, and the number of the user whose copy it is."""

RECIPIENT = re.compile(r"user(\d+)@")


@dataclass(frozen=True, slots=True)
class Times:
    """When the servers are killed, in seconds of work; how long they are down; the length of the work."""

    kills_s: Sequence[float]
    gone_s: float
    work_s: int


SHORT = Times((15.0,), 4.0, 60)
FULL = Times((120.0, 280.0, 440.0), 10.0, 600)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Accepted copies of messages of one run, and where they are; a copy may be in several places."""

    accepted: frozenset[Copy]
    on_disk: frozenset[Copy]
    queued: frozenset[Copy]
    expunged: frozenset[Copy]

    @property
    def unexplained(self) -> frozenset[Copy]:
        """Return the copies that are nowhere."""
        return self.accepted - self.on_disk - self.queued - self.expunged


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its exit status, its `score.json`, and the account of its mail."""

    status: int
    score: Mapping[str, Any]
    ledger: Ledger


def killed(times: Times, place: Path) -> Outcome:
    """Make the run below `place`, and account for its mail. Raises `ConfigError` if no mail server is installed."""
    nowhere = load_scenario(str(_scenario(times, place, (1, 1))))
    accounts = [nowhere.account(index) for index in range(1, nowhere.users + 1)]
    with short_directory() as directory:
        root = Path(directory) / "server"
        status, score, server = asyncio.run(_run(times, place, accounts, root))
        try:
            return Outcome(status, score, _ledger(place / "run", root, server))
        finally:
            server.stop()


async def _run(
    times: Times, place: Path, accounts: Sequence[Account], root: Path
) -> tuple[int, Mapping[str, Any], DovecotPostfix]:
    """Make the run, and return its exit status, its score, and the servers, which are running."""
    server = start_dovecot_postfix(accounts, {}, root)
    ports = (server.services.endpoint("imap").port, server.services.endpoint("smtp").port)
    try:
        command = loadsim("run", "--no-report", _scenario(times, place, ports), "--out", place / "run", "--json")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        try:
            # Wait for the start of the work, then kill and restart the servers at each instant.
            assert process.stderr is not None
            while (said := await process.stderr.readline()) and not said.startswith(AT_WORK):
                pass
            answer = asyncio.create_task(process.communicate())
            began_s = asyncio.get_running_loop().time()
            for at_s in times.kills_s if said else ():
                await asyncio.sleep(began_s + at_s - asyncio.get_running_loop().time())
                _kill(server)
                await asyncio.sleep(times.gone_s)
                server = start_dovecot_postfix(accounts, {}, root, imap_port=ports[0], smtp_port=ports[1])
            # Wait for the end of the run.
            async with asyncio.timeout(LONGEST_S):
                printed, complained = (text.decode() for text in await answer)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
    except BaseException:
        server.stop()
        raise
    assert process.returncode is not None
    score = scored(subprocess.CompletedProcess(command, process.returncode, printed, complained))
    return process.returncode, score, server


def _kill(server: DovecotPostfix) -> None:
    """Kill all processes of both servers with SIGKILL, so that they write nothing more."""
    for pid in server.pids():
        os.kill(pid, signal.SIGKILL)
    server.stop()


def _ledger(run_directory: Path, root: Path, server: DovecotPostfix) -> Ledger:
    """Read the log, then the queue, then the mailboxes: mail moves in this direction only."""
    export = loadsim("log", "export", "csv", "--kind", "mails", run_directory)
    done = subprocess.run(export, capture_output=True, text=True, check=True)
    mails = list(csv.DictReader(io.StringIO(done.stdout)))
    of_event = {
        event: frozenset((mail["message"], int(mail["user"])) for mail in mails if mail["event"] == event)
        for event in ("accepted", "expunged")
    }
    queued = frozenset(_queued(server))
    return Ledger(of_event["accepted"], frozenset(_on_disk(root / "mail")), queued, of_event["expunged"])


def _queued(server: DovecotPostfix) -> Iterator[Copy]:
    for entry in server.queue():
        message = _id(run("postcat", ("-c", str(server.postfix.conf), "-qh", entry["queue_id"])).encode())
        for recipient in entry["recipients"]:
            if message and (user := RECIPIENT.match(recipient["address"])):
                yield message, int(user[1])


def _on_disk(mail: Path) -> Iterator[Copy]:
    """Read all folders of all users' Maildirs."""
    for path in mail.rglob("*"):
        if path.parent.name in ("cur", "new") and path.is_file():
            with path.open("rb") as file:
                message = _id(file.read(16384).partition(b"\n\n")[0])
            user = re.search(r"user(\d+)", str(path.relative_to(mail)))
            if message and user:
                yield message, int(user[1])


def _id(header: bytes) -> str | None:
    found = re.search(rb"(?im)^" + HEADER.encode() + rb":((?:[^\r\n]|\r?\n[ \t])*)", header)
    tag = MessageTag.parse(found[1].decode("ascii", "replace")) if found else None
    return tag and tag.id


def _scenario(times: Times, place: Path, ports: tuple[int, int]) -> Path:
    """Half of the users work with each driver. Criteria and the generator's limits are off: an outage is expected."""
    place.mkdir(parents=True, exist_ok=True)
    small = {"inbox": 4, "deleted_items": 1, "folders": 4, "messages_per_folder": 5}
    profile = written(place / "medium.yaml", {"name": "medium", "from": "loadsim-5.5/medium", "start_state": small})
    return written(
        place / "killed.yaml",
        {
            "name": "killed servers",
            "server": {"imap": {"host": HOST, "port": ports[0]}, "smtp": {"host": HOST, "port": ports[1]}},
            "accounts": {"user": "user{index}", "password": "secret-{index}"},
            "topology": [{"profile": str(profile), "users": USERS, "protocol": driver} for driver in DRIVERS],
            "lists": {"count": 0},
            "run": {
                "day_length": f"{max(240, times.work_s)}s",
                "duration": f"{times.work_s}s",
                "ramp_up": "4s",
                "warm_up": "5s",
                "window": f"{times.work_s - 5}s",
            },
            "limits": {
                "hits": 5,
                "generator": {"lag_p99_ms": None, "lag_share": None, "cpu": None, "lateness_p95_ms": None},
            },
        },
    )


def document(outcome: Outcome) -> str:
    """Write the outcome as a Markdown table."""
    ledger, score = outcome.ledger, outcome.score
    rows = {
        "copies of messages accepted": len(ledger.accepted),
        "found in a mailbox": len(ledger.accepted & ledger.on_disk),
        "in the queue": len(ledger.accepted & ledger.queued - ledger.on_disk),
        "expunged, by the log": len(ledger.accepted & ledger.expunged - ledger.on_disk - ledger.queued),
        "unexplained": len(ledger.unexplained),
        "exit status of the run": outcome.status,
        "verdict": score["verdict"]["validity"],
        "sessions lost": score.get("sessions_lost"),
    }
    return table(["figure", "value"], [[name, str(value)] for name, value in rows.items()])


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the run and print its account. Return 1 if a message is unexplained."""
    parser = argparse.ArgumentParser(prog="python -m bench.killed_servers", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one kill in a minute instead of three in ten")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run directory there")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as passing:
        try:
            outcome = killed(SHORT if args.short else FULL, args.keep or Path(passing))
        except ConfigError as error:
            print(f"bench.killed_servers: {error}", file=sys.stderr)
            return 2
    print(document(outcome))
    for message, user in sorted(outcome.ledger.unexplained):
        print(f"unexplained: {message} of user {user}", file=sys.stderr)
    return int(bool(outcome.ledger.unexplained))


if __name__ == "__main__":
    sys.exit(main())
