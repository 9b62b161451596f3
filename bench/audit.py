"""The audit of up to a million sent messages: seconds, memory and disk of all but the reading of mailboxes.

The log is as four engines would have written it: each message is accepted, saved, seen and read, every second one also
moved. What a healthy server holds is known from the same numbers, so nothing may be found. The audit runs in a process
of its own, started as `python -m bench.audit DIRECTORY`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.part import Part
from bench.processes import LONGEST_S, Cpus
from bench.table import table
from loadsim.audit.audit import Auditor
from loadsim.audit.audit_file import NAME, open_audit_file
from loadsim.audit.judged import HeldCopy
from loadsim.errors import ConfigError
from loadsim.model.partition import divide
from loadsim.model.ports import INBOX, SENT_ITEMS
from loadsim.model.records import INDIVIDUALLY
from loadsim.scenario.criteria import DEFAULT
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog import container
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.records import EVENT, MAIL, Records

FILES = 4
EACH = 100
"""The number of messages that a user sends; their recipient is the next user."""

FOLDER = "Folder 01"
NAMES = (INDIVIDUALLY, INBOX, SENT_ITEMS, FOLDER)
"""The string table of a log, after the empty name."""

SEEN, UNSEEN = frozenset({"\\seen"}), frozenset[str]()

Step = tuple[str, str, bool]
"""An event of each message, the folder, and whether it is in the recipient's mailbox."""

STEPS: Sequence[Step] = (
    ("accepted", INDIVIDUALLY, True),
    ("saved", SENT_ITEMS, False),
    ("seen", INBOX, True),
    ("read", INBOX, True),
    ("moved", FOLDER, True),
)


def measure(_: Cpus, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for each number of sent messages. Raises `ConfigError` if a fault is found."""
    rows = []
    for messages in sizes:
        with tempfile.TemporaryDirectory() as place:
            rows.append(_measure(Path(place), messages // EACH))
    return rows


def _measure(directory: Path, users: int) -> dict[str, Any]:
    group = {"profile": "loadsim-5.5/medium", "users": users}
    scenario = {"name": "audit", "server": "embedded", "topology": [group], "initialise": "never"}
    (directory / "scenario.yaml").write_text(json.dumps(scenario))
    (directory / "logs").mkdir()
    for engine, part in enumerate(divide(users, FILES)):
        with (directory / "logs" / f"c1.{engine}.tlog").open("xb") as file:
            header = {"run": "run-1", "client": "c1", "engine": str(engine), "users": users, "engine_users": len(part)}
            assignment = {"hand": asdict(part)}
            file.write(
                container.encode_head(
                    header | assignment | {"window_s": [0, 100], "epoch_ns": 0, "criteria": dict.fromkeys(DEFAULT)}
                )
            )
            file.write(container.encode_json(container.STRINGS, list(NAMES)))
            for user in part:
                file.write(container.encode_block(container.MAILS, _records(user, users).tobytes()))
            file.write(container.encode_json(container.FACTS, [{"start_ns": 0, "ended": "completed"}]))
    done = subprocess.run(
        [sys.executable, "-m", "bench.audit", str(directory)],
        stdout=subprocess.PIPE,
        check=False,
        text=True,
        timeout=LONGEST_S,
        cwd=Path(__file__).parents[1],
    )
    if done.returncode:
        raise ConfigError(f"audit: expected status 0, it ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    if found["faults"] or found["messages"] != 2 * EACH * users:
        raise ConfigError(f"audit: expected {2 * EACH * users} messages without a fault, found {found}")
    log_bytes = sum(path.stat().st_size for path in (directory / "logs").iterdir())
    return {"sent": EACH * users, "log_bytes": log_bytes, **found}


def _records(user: int, users: int) -> Records:
    """Return the events of a user's messages, for every second one without the last event."""
    records = np.zeros(len(STEPS) * EACH, MAIL)
    ids = np.array([f"n{user}.{index}" for index in range(EACH)], "S20")
    for step, (event, folder, received) in enumerate(STEPS):
        some = records[step :: len(STEPS)]
        some["message"], some["sender"] = ids, user
        some["user"] = 1 + user % users if received else user
        some["event"], some["folder"] = EVENT[event], 1 + NAMES.index(folder)
        some["at_us"] = 1_000_000 * np.arange(1, EACH + 1) + step
    kept: Records = records[(records["event"] != EVENT["moved"]) | (np.arange(len(records)) // len(STEPS) % 2 == 0)]
    return kept


def _held(user: int, users: int) -> Iterator[HeldCopy]:
    """Yield what a mailbox holds: the user's own messages, and those of the user before."""
    sender = user - 1 or users
    for index in range(EACH):
        yield HeldCopy(f"n{user}.{index}", SENT_ITEMS, SEEN, sender=user)
        yield HeldCopy(f"n{sender}.{index}", INBOX if index % 2 else FOLDER, SEEN, sender=sender)


def main() -> int:
    """Print the totals, the seconds of each step (of CPU, the first with the reading of the log) and what they took."""
    directory = Path(sys.argv[1])
    began_s = time.process_time()
    log = read_logs([directory])
    workload = Workload(load_scenario(str(directory / "scenario.yaml")))
    with open_audit_file(directory / NAME, log) as file:
        filled_s = time.process_time()
        auditor = Auditor(workload, log, file)
        for user in range(1, workload.scenario.users + 1):
            auditor.judge(user, [*_held(user, workload.scenario.users)])
        judged_s = time.process_time()
        totals, faults = file.settle(auditor.unsure_senders), sum(file.counts().values())
    settled_s = time.process_time()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = {
        "messages": totals.messages,
        "faults": faults + totals.unknown + totals.unjudged,
        "filled_s": filled_s - began_s,
        "judged_s": judged_s - filled_s,
        "settled_s": settled_s - judged_s,
        "peak_kib": int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]),
        "file_bytes": (directory / NAME).stat().st_size,
    }
    print(json.dumps(found))
    return 0


def shown(rows: Sequence[dict[str, Any]]) -> str:
    """Return CPU time, memory and disk by number of messages."""
    body = [
        [
            f"{row['sent']:,}",
            f"{row['messages']:,}",
            *(f"{row[name]:.1f} s" for name in ("filled_s", "judged_s", "settled_s")),
            f"{row['peak_kib'] / 1024:.0f} MiB",
            f"{row['log_bytes'] / 1e6:.0f} MB",
            f"{row['file_bytes'] / 1e6:.0f} MB",
        ]
        for row in rows
    ]
    head = ["sent", "in mailboxes", "sorting the log", "judging", "joining", "memory", "log", "audit.sqlite"]
    return table(head, body)


AUDIT = Part("audit", measure, {"Audit of mail": shown}, smallest=(1_000,), short=(100_000,), full=(100_000, 1_000_000))

if __name__ == "__main__":
    sys.exit(main())
