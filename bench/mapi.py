"""The cost of the driver `mapi`, next to `imap`: of an operation, and of a user.

`imap` is on the null server, `mapi` on the embedded one: only the cost of the client counts. Operations have the names
of IMAP commands: NOOP is an Execute without remote operations, STORE is SetReadFlags, FETCH is OpenMessage, OpenStream
and ReadStream.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench import tables
from bench.client import account
from bench.cpu import BODY_BYTES, INBOX_MESSAGES, Imap, address_of, rows_of
from bench.nullserver import Shape, pinned, started
from bench.part import Part
from bench.processes import Cpus, interleave, run_client
from bench.runs import written
from bench.users import FOLDERS, PIN, Load, figures_of, logs_of, run, serving
from loadsim.servers.embedded import start_embedded_mapi

Rows = list[dict[str, Any]]


def operations(cpus: Cpus, size: Imap) -> Rows:
    """Both drivers, in turn."""
    job = {"what": "imap", "sessions": size.sessions, "count": size.each, "append_bytes": BODY_BYTES, "loop": "uvloop"}
    with tempfile.TemporaryDirectory() as place, started(Shape(messages=INBOX_MESSAGES), cpus.server) as null:
        with pinned(cpus.server):
            server = start_embedded_mapi([account(number) for number in size.users(0)], {}, Path(place))
        with server:
            mapi = server.services.endpoint("mapi")
            variants: dict[tuple[str, ...], Callable[[], Mapping[str, float]]] = {
                ("imap", "uvloop"): partial(
                    run_client, cpus, {**job, "client": "imap", "server": address_of(null.services)}
                ),
                ("mapi", "uvloop"): partial(
                    run_client, cpus, {**job, "client": "mapi", "server": (mapi.host, mapi.port), "path": mapi.path}
                ),
            }
            return rows_of("null", interleave(size.rounds, variants))


def users(_: Cpus, loads: list[Load]) -> Rows:
    """A row for a run of each driver under each load; `--pin` keeps engines and server apart."""
    everywhere = tuple(sorted(os.sched_getaffinity(0)))
    cpus = Cpus(everywhere, everywhere)
    rows = []
    for load in loads:
        for driver in ("imap", "mapi"):
            with tempfile.TemporaryDirectory() as place:
                directory = Path(place)
                if driver == "imap":
                    with serving(cpus, directory, load) as (_server, scenario):
                        run(cpus, scenario, directory / "run", load)
                else:
                    run(cpus, _on_embedded(directory, load), directory / "run", load)
                logs = logs_of(directory / "run")
            rows.append({"driver": driver, "users": load.users, "day": load.day, **figures_of(logs, load.hold_s)})
    return rows


def _on_embedded(directory: Path, load: Load) -> Path:
    """Write the scenario of a load on the embedded server, which the run starts; it is filled as the null server is."""
    start = {"inbox": 4, "deleted_items": 0, "folders": FOLDERS, "messages_per_folder": 5}
    profile = written(
        directory / "medium.yaml", {"from": "loadsim-5.5/medium", "name": "medium-null", "start_state": start}
    )
    document = {
        "name": "bench",
        "server": "embedded",
        "topology": [{"profile": str(profile), "users": load.users, "protocol": "mapi"}],
        "run": {"day_length": load.day, "ramp_up": "0s"},
    }
    return written(directory / "scenario.yaml", document)


MAPI = Part(
    "mapi",
    operations,
    {"CPU per operation of `mapi`, next to `imap` (microseconds of the client)": tables.imap},
    smallest=Imap(1, 3, 2, 1),
    short=Imap(3, 50, 20, 3),
    full=Imap(5, 50, 40, 4),
)
MAPI_USERS = Part(
    "mapi_users",
    users,
    {"Connected users of `mapi`, next to `imap`": tables.drivers},
    smallest=[Load(10, "5m", 3, pin=PIN)],
    full=[Load(users, "1h", 30, pin=PIN) for users in (100, 1000)],
)
