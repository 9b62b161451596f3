"""The commands: one module per verb."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from loadsim.engine.signals import requests_end_it
from loadsim.errors import LoadSimError, RunInvalid, printable
from loadsim.passwords import blot_command_line
from loadsim.version import __version__

BAD_INPUT = 2
"""The exit status when what the user gave us is wrong; nothing was run."""

INVALID = 3
"""The exit status when a run was made and has no verdict that could be believed."""

OUR_FAULT = 70
"""The exit status of a bug of ours (EX_SOFTWARE): none of those that say something about a server."""

INTERRUPTED = 130
"""The exit status after Ctrl-C where nothing was measured that could be told (128 + SIGINT)."""

VERBS = {
    "run": "run a scenario: the load, the timing log, the score and the verdict",
    "plan": "the whole run in virtual time, without a server: how much load it is",
    "init": "bring every mailbox of a scenario to its start state",
    "clean": "remove what loadsim put into the mailboxes, and nothing else",
    "topology": "accounts and distribution lists of a scenario",
    "server": "start a mail server for a scenario, until Ctrl-C",
    "log": "read timing logs: times, check, show, truncate, merge, answer, export",
    "compare": "two sets of runs: is the second slower, and by how much?",
    "report": "a run, or several, as one page to send on: HTML, Markdown or JSON",
    "cluster": "several client machines: their control station, their certificates, their logs",
    "client": "be one of the client machines of a cluster, until Ctrl-C",
}
"""The commands, and what each is for. A module is imported when its command is given: `--help` need not wait."""


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments, and where to read about them. The parsers of verbs do, too."""

    def error(self, message: str) -> NoReturn:
        """Leave with the exit status of bad input."""
        self.exit(BAD_INPUT, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; with `only`, the others are known by name alone."""
    top = _Parser(
        prog="loadsim",
        description="Simulated mail users on a real mail server: how many can it take, and did the upgrade slow it?",
    )
    top.add_argument("--version", action="version", version=f"loadsim {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for verb, purpose in VERBS.items():
        if only in (None, verb):
            import_module(f"loadsim.cli.{verb}").add_parser(verbs)
        else:
            verbs.add_parser(verb, help=purpose)
    return top


def open_standard_streams() -> None:
    """Let what is written to a closed standard stream go nowhere, rather than into whatever is opened next."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files and servers need not be of the terminal's letters
            stream.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status: 0 pass, 1 criteria missed, 2 bad input, 3 run invalid or ended early.

    4 is a comparison that is undecided, 70 is a bug of ours, 130 Ctrl-C before there was any load.
    """
    open_standard_streams()
    if argv is None:
        blot_command_line()
    with requests_end_it():
        return _obey(sys.argv[1:] if argv is None else argv)


def _obey(given: Sequence[str]) -> int:
    status = 0
    try:
        args = parser(next((word for word in given if not word.startswith("-")), "")).parse_args(given)
        status = args.run(args)
        sys.stdout.flush()
    except RunInvalid as error:
        print(f"loadsim: {printable(str(error))}", file=sys.stderr)
        return INVALID
    except LoadSimError as error:
        print(f"loadsim: {printable(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        pass
    except KeyboardInterrupt:
        print("loadsim: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception:  # noqa: BLE001  the one place that may: a bug must not look like a verdict
        traceback.print_exc()
        print("loadsim: this is a bug of loadsim, and says nothing about the server", file=sys.stderr)
        return OUR_FAULT
    finally:
        let_go()
    return status


def let_go() -> None:
    """Send what nobody reads any more nowhere; left in a buffer, it would make Python end with a status of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
