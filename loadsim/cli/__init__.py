"""The command line: one module per verb."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from loadsim.cli.live.stderr_lines import print_line
from loadsim.errors import ConfigError, LoadSimError, RunInvalid, machine_failures, printable
from loadsim.passwords import blot_command_line
from loadsim.processes.signals import ended_by_signals
from loadsim.version import __version__

BAD_INPUT = 2
"""The exit status for bad input, and for a finished run if one of its files could not be written."""

INVALID = 3
"""The exit status of a run whose figures must not be quoted."""

OUR_FAULT = 70
"""The exit status for a bug in loadsim (EX_SOFTWARE); no verdict on a server has it."""

INTERRUPTED = 130
"""The exit status if Ctrl-C arrives before anything was measured (128 + SIGINT)."""

MOST_CHOICES = 9
"""If an option has more choices than this, an error names only the closest one."""

VERBS = {
    "run": "run a scenario, and print its score and verdict",
    "suite": "run a matrix of servers, users and settings, with repeats; resume it after a crash",
    "capacity": "find the largest number of users that meets the criteria, with an interval",
    "storage": "test whether disks can carry the mailboxes, without a mail server",
    "size": "compute from a measured run how many users would fill each server resource",
    "characterise": "derive profiles and a day's shape from the logs of a mail server",
    "plan": "compute the load of a scenario in virtual time, without a server",
    "check": "try out a server for a scenario: what works, and what must change?",
    "new": "write a scenario for your own mail server",
    "init": "bring every mailbox of a scenario to its start state",
    "clean": "remove what loadsim put into the mailboxes, and nothing else",
    "topology": "export the accounts and distribution lists of a scenario",
    "show": "list shipped files, or show one",
    "monitor": "sample probes on the server's machine, and write the log to standard output, until Ctrl-C",
    "server": "start a mail server for a scenario, until Ctrl-C",
    "log": "check, summarise or export timing logs",
    "audit": "account for every message of a run: was any lost, duplicated, altered or misdelivered?",
    "compare": "compare two sets of runs: is the second slower, and by how much?",
    "explain": "explain what a finding means, and what to do about it",
    "report": "report on one or more runs, in HTML or Markdown",
    "cluster": "coordinate several client machines: controller, certificates, logs",
    "client": "make load as a client machine of a cluster, until Ctrl-C",
}
"""The commands and their help. Only the given command's module is imported, so that `--help` stays fast."""


class _Parser(argparse.ArgumentParser):
    """Reports an error on one line that names `--help`. Parsers of verbs are of this class as well."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register("action", "parsers", _Verbs)

    def error(self, message: str) -> NoReturn:
        print_line(f"{self.prog}: {printable(message)}; see {self.prog} --help")
        self.exit(BAD_INPUT)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reject unknown options here, so that the error names the verb's own `--help`."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            words = " ".join(unknown)
            option = f"--{unknown[0].partition('=')[0].lstrip('-')}" if unknown[0].startswith("-") else ""
            near = get_close_matches(option, self._option_string_actions, n=1, cutoff=0.79)
            hint = f" (perhaps {near[0]})" if near else ""
            self.error(f"unrecognized arguments: {words}{hint}")
        return known, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest the closest choice, instead of a long list."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as failure:
            choices = tuple(map(str, action.choices or ()))
            near = get_close_matches(str(value), choices, n=1)
            text = failure.message
            if near and len(choices) > MOST_CHOICES:
                text = f"{text.partition('(choose from')[0]}(perhaps {near[0]})"
            elif near:
                text = text.replace("(choose from", f"(perhaps {near[0]}; choose from", 1)
            raise argparse.ArgumentError(action, text) from None


class _Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Repeats the help of a verb at the top of its own `--help`."""

    def add_parser(self, name: str, **options: Any) -> Any:
        about = str(options.get("help", ""))
        end = "" if about.endswith("?") else "."
        return super().add_parser(name, **{"description": f"{about[:1].upper()}{about[1:]}{end}"} | options)


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; with `only`, the other commands have no arguments."""
    top = _Parser(
        prog="loadsim",
        description="Simulated mail users on a real server: how many can it take, and did the upgrade slow it down?",
    )
    top.add_argument("--version", action="version", version=f"loadsim {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for verb, purpose in VERBS.items():
        added = verbs.add_parser(verb, help=purpose)
        if only in (None, verb):
            import_module(f"loadsim.cli.{verb}").add_arguments(added)
    return top


def open_standard_streams() -> None:
    """Open missing standard streams on the null device: otherwise, the next file opened would take their place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names may have characters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit status.

    0: pass; 1: criteria missed; 2: bad input; 3: run invalid or ended early; 4: comparison or capacity undecided;
    70: a bug in loadsim; 130: Ctrl-C before any load.
    """
    open_standard_streams()
    # Our matrices are small. If OpenBLAS cannot start its threads, it ends the process with SIGINT.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if argv is None:
        blot_command_line()
    with ended_by_signals():
        return _run(sys.argv[1:] if argv is None else argv)


def _run(given: Sequence[str]) -> int:
    status = 0
    try:
        with machine_failures(ConfigError):
            args = parser(next((word for word in given if not word.startswith("-")), "")).parse_args(given)
            Path.cwd()  # fails before any work if the directory was removed
            status = args.run(args)
            sys.stdout.flush()
    except LoadSimError as error:
        for line in error.lines:
            print_line(f"loadsim: {printable(line)}")
        return INVALID if isinstance(error, RunInvalid) else BAD_INPUT
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        pass
    except KeyboardInterrupt:
        print("loadsim: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception:  # noqa: BLE001  a bug must not look like a verdict
        traceback.print_exc()
        print("loadsim: this is a bug in loadsim, not a fault of the server", file=sys.stderr)
        return OUR_FAULT
    finally:
        flush_standard_streams()
    return status


def flush_standard_streams() -> None:
    """Flush the standard streams, and discard output that cannot be written: it would change Python's exit status."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # no reader, or a full disk
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
