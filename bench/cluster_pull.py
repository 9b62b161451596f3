"""Speed of collecting the clients' logs: `python -m bench.cluster_pull ADDRESS CERTS OUT NAME...` at the controller.

Each client has a run called `RUN` (see `leave`), which is brought here, over TLS and with all checks, as `loadsim run`
does it: from all clients at once. It prints the seconds that this took.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RUN = "pulled"
PIECE_BYTES = 1 << 20


def leave(runs: Path, name: str, size_bytes: int) -> None:
    """Put a log of this size where the client of this name keeps its runs; the bytes are random ones."""
    logs = runs / RUN / "logs"
    logs.mkdir(parents=True)
    with (logs / f"{name}.1.tlog").open("wb") as log:
        for _ in range(size_bytes // PIECE_BYTES):
            log.write(os.urandom(PIECE_BYTES))


async def pull(address: str, certs: Path, out: Path, names: Sequence[str]) -> float:
    """Bring them all; how many seconds that took, when the controller was there."""
    from loadsim.cluster.address import control_address  # all of it takes the extra
    from loadsim.cluster.collect import collect
    from loadsim.cluster.controller import cluster_at
    from loadsim.cluster.security import access_to

    async with cluster_at(access_to(control_address(address), certs)) as cluster:
        began_s = time.monotonic()
        await asyncio.gather(*(collect(cluster, name, RUN, out) for name in names))
        return time.monotonic() - began_s


if __name__ == "__main__":
    print(asyncio.run(pull(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])))
