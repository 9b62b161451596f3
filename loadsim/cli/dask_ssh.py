"""A client that Dask's own `dask ssh` starts by SSH: `--remote-dask-worker loadsim.cli.dask_ssh` makes it that.

`dask ssh` runs `python -m` this on each machine, with the station's address and with options for workers of Dask's. A
worker that is to be a client of loadsim's needs none of those, but an agent; and it is a client by its bundle.
"""

from __future__ import annotations

import sys

from loadsim.cli import main

CERTS = "loadsim-certs"
"""Where the machine's bundle lies: in the home directory, where SSH begins."""


def joined(arguments: list[str]) -> int:
    """Be a client of the station whose HOST:PORT comes first, until Ctrl-C; the exit status of `loadsim client`."""
    station = arguments[0] if arguments else ""
    return main(["client", "--cluster", f"tls://{station}", "--certs", CERTS])


if __name__ == "__main__":
    sys.exit(joined(sys.argv[1:]))
