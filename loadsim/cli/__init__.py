"""The commands: one module per verb."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from loadsim import __version__
from loadsim.cli import clean, init, log, plan, run, server, topology
from loadsim.errors import LoadSimError, printable

BAD_INPUT = 2
"""The exit status when what the user gave us is wrong; nothing was run."""

OUR_FAULT = 70
"""The exit status of a bug of ours (EX_SOFTWARE): none of those that say something about a server."""

INTERRUPTED = 130
"""The exit status after Ctrl-C where nothing was measured that could be told (128 + SIGINT)."""

VERBS = (run, plan, init, clean, topology, server, log)


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments, and where to read about them. The parsers of verbs do, too."""

    def error(self, message: str) -> NoReturn:
        """Leave with the exit status of bad input."""
        self.exit(BAD_INPUT, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = _Parser(
        prog="loadsim",
        description="Simulated mail users on a real mail server: how many can it take, and did the upgrade slow it?",
    )
    top.add_argument("--version", action="version", version=f"loadsim {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for verb in VERBS:
        verb.add_parser(verbs)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status: 0 pass, 1 criteria missed, 2 bad input, 3 run invalid or ended early.

    70 is a bug of ours, 130 Ctrl-C before there was any load.
    """
    args = parser().parse_args(argv)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except LoadSimError as error:
        print(f"loadsim: {printable(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("loadsim: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception:  # noqa: BLE001  the one place that may: a bug must not look like a verdict
        traceback.print_exc()
        print("loadsim: this is a bug of loadsim, and says nothing about the server", file=sys.stderr)
        return OUR_FAULT
    return status
