"""A client that `dask ssh --remote-dask-worker loadsim.cli.dask_ssh` starts over SSH.

`dask ssh` runs `python -m loadsim.cli.dask_ssh` on each machine, with the controller's address and options for Dask
workers. A client of loadsim ignores the options: its bundle names it.
"""

from __future__ import annotations

import sys

from loadsim.cli import main

CERTS = "loadsim-certs"
"""The directory of the machine's bundle, below the home directory, where SSH starts commands."""


def join(arguments: list[str]) -> int:
    """Run `loadsim client` for the controller at HOST:PORT, the first argument. Return its exit status."""
    address = arguments[0] if arguments else ""
    return main(["client", "--cluster", f"tls://{address}", "--certs", CERTS])


if __name__ == "__main__":
    sys.exit(join(sys.argv[1:]))
