"""`loadsim new`: write a commented scenario for a server of one's own, by options or a few questions."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from loadsim.cli.options import whole
from loadsim.cli.shipped import EDITOR_LINE, schema_file, write_new, write_schema
from loadsim.errors import ConfigError
from loadsim.model.scenario import load_scenario
from loadsim.model.yaml_reader import known

TLS = ("none", "starttls", "implicit")

PASSWORD_VARIABLE = "LOADSIM_PASSWORD"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class Question:
    """An option, asked for on a terminal if it is missing; `default` answers it otherwise."""

    option: str
    text: str
    default: str

    @property
    def name(self) -> str:
        return self.option.removeprefix("--").replace("-", "_")


QUESTIONS = (
    Question("--host", "The mail server's host", "127.0.0.1"),
    Question("--tls", "Encryption: none, starttls or implicit", "none"),
    Question("--domain", "The domain of the users' addresses", "loadsim.test"),
    Question("--user", "The users' log-on names; {index} is their number", "user{index:05d}"),
    Question("--users", "The number of users", "20"),
    Question("--profile", "What they do in a day: a profile", "loadsim-5.5/medium"),
    Question("--day-length", "The length of their day of 8 hours in the run", "1h"),
)

TEMPLATE = """\
{editor}# {users} users on {host}, written by loadsim new. docs/reference/scenario.md has all keys.
# Next: {next}
name: {name}

server:
  imap: {{host: {host}, tls: {tls}}}        # port: 143, or 993 with tls: implicit
  smtp: {{host: {host}, tls: {tls}}}        # port: 25, 587 with tls: starttls, 465 with tls: implicit
{allow}
# Empty accounts, for tests only. The password of all is in the environment variable {variable}; {{index}} in it
# stands for the number of the user. Instead, a table may have users and passwords: accounts: {{csv: accounts.csv}}
domain: {domain}
accounts: {{user: {user}, password_env: {variable}}}

topology:
  - {{profile: {profile}, users: {users}}}

# Distribution lists must exist on the server: loadsim topology export writes them. Without them, no mail goes to lists.
lists: {{count: 0}}

run:
  day_length: {day_length}         # 8 hours, compressed; without it, a run takes 8 hours
  # The first quarter of the run is discarded, and the next half is scored.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the scenario's name; it is written to NAME.yaml")
    parser.add_argument("--host", help="host of IMAP and SMTP; default: 127.0.0.1")
    parser.add_argument("--tls", choices=TLS, help="encryption; default: none")
    parser.add_argument("--domain", help="domain of the users' addresses; default: loadsim.test")
    parser.add_argument("--user", metavar="PATTERN", help="log-on names; default: user{index:05d}")
    parser.add_argument("--users", type=whole(2, 10**9), metavar="N", help="number of users; default: 20")
    parser.add_argument("--profile", metavar="PROFILE", help="a profile; default: loadsim-5.5/medium")
    parser.add_argument("--day-length", metavar="DURATION", help="length of the day in the run; default: 1h")
    parser.add_argument(
        "--no-schema", action="store_true", help="do not write the JSON Schema next to it, which editors use"
    )
    parser.set_defaults(run=run_new)


def run_new(args: argparse.Namespace) -> int:
    """Write the scenario, and print the next commands. Raises `ConfigError`, and then writes nothing."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}", args.name):
        raise ConfigError(f"NAME: expected letters, digits, - and _, found {args.name!r}")
    file = Path(f"{args.name}.yaml")
    if file.exists():
        raise ConfigError(f"{file}: expected a new file, found one that exists")
    ask = _ask if sys.stdin.isatty() and sys.stderr.isatty() else _take_default
    answers = {each.name: _answer(each, args, ask) for each in QUESTIONS}
    for name in ("host", "domain"):
        if not re.fullmatch(r"[A-Za-z0-9._:-]+", answers[name]):
            raise ConfigError(f"--{name}: expected letters, digits and the signs - . : _, found {answers[name]!r}")
    if answers["profile"] not in known("profiles") and not Path(answers["profile"]).is_file():
        raise ConfigError(
            f"--profile: expected one of {', '.join(known('profiles'))}, or a file, found {answers['profile']!r}"
        )
    steps = [f"loadsim check {file}", f"loadsim run {file}"]
    answers["user"] = json.dumps(answers["user"])  # quoted, which YAML reads, too
    text = TEMPLATE.format(
        editor="" if args.no_schema else f"{EDITOR_LINE}{schema_file('scenarios').name}\n",
        name=args.name,
        next=", then ".join(steps),
        variable=PASSWORD_VARIABLE,
        allow=_allow(answers["host"]),
        **answers,
    )
    _write_checked(file, text)
    also = "" if args.no_schema else f", and {write_schema('scenarios', file)} for editors"
    print(f"Wrote {file}{also}. Next:")
    print(f"  export {PASSWORD_VARIABLE}=...      # the password of all users")
    print(f"  loadsim topology export {file} --format csv --out accounts    # if the accounts do not exist yet")
    for step in steps:
        print(f"  {step}")
    return 0


def _answer(question: Question, args: argparse.Namespace, ask: Callable[[Question], str]) -> str:
    given = getattr(args, question.name)
    return ask(question) if given is None else str(given)


def _take_default(question: Question) -> str:
    return question.default


def _ask(question: Question) -> str:
    print(f"{question.text} [{question.default}]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or question.default


def _allow(host: str) -> str:
    """Return the key that permits load on a host; "" for loopback, which needs none."""
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return "" if loopback else f"# loadsim puts load on this host because you say so here.\nallow_hosts: [{host}]\n"


def _write_checked(file: Path, text: str) -> None:
    """Write a scenario that can be read. Raises `ConfigError` and removes it otherwise."""
    write_new(file, text)
    try:
        load_scenario(str(file), passwords=False)
    except ConfigError:
        file.unlink()
        raise
