"""`loadsim new`: write a commented scenario for the user's own server."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from loadsim.analysis.score import PROVISIONAL_HITS
from loadsim.cli.options import whole
from loadsim.errors import ConfigError
from loadsim.model.host_port import is_loopback
from loadsim.model.terms import MOST_USERS
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.services import IMAP_PORTS, SMTP_PORTS

TLS = ("none", "starttls", "implicit")

DOMAIN = "loadsim.test"

PASSWORD_VARIABLE = "LOADSIM_PASSWORD"  # noqa: S105 - the name of a variable

TRY_OPTIONS = "--set run.days=1 --set run.day_length=5m"
"""The options for a first try, whose score is provisional."""

LEAST_TRY = 50
"""The fewest users for a first try. With fewer, some tasks are due too rarely, and `run` refuses."""

_port = whole(1, 65535)


def _plain(text: str) -> str:
    """Accept text that needs no quotes in YAML. The scenario's own rules apply when it is read."""
    if not re.fullmatch(r"[A-Za-z0-9._:/@-]+", text):
        raise argparse.ArgumentTypeError(f"expected letters, digits and the characters - . : _ / @, found {text!r}")
    return text


def _host(text: str) -> str:
    if text.count(":") == 1:
        raise argparse.ArgumentTypeError(f"expected a host without a port, found {text!r}")
    return _plain(text)


TEMPLATE = """\
# {users} users on {host}, written by loadsim new. docs/reference/scenario.md lists all keys.
# Next: {next}
name: {name}

server:
  imap: {{host: {quoted}, port: {imap_port}, tls: {tls}}}
  smtp: {{host: {quoted}, port: {smtp_port}, tls: {tls}}}
{allow}
# Empty accounts, used for tests only. The environment variable {variable} has their password; {{index}} in it
# stands for the user's number. Or take names and passwords from a table: accounts: {{csv: accounts.csv}}
domain: {domain}
accounts: {{user: {user}, password_env: {variable}}}

{probes}
topology:
  - {{profile: loadsim-5.5/medium, users: {users}}}

# Distribution lists must exist on the server: loadsim topology export writes them. Without lists, users receive less
# mail than published: with the Medium profile, about a third of it.
lists: {{count: 0}}

run:
  day_length: 30m        # 8 hours, compressed; without it, a day takes 8 hours
  days: 4
  # 4 days of 30 min take 2 h. The first quarter of the run is discarded, and the next half is scored.
  # The score is provisional if a scored task is due fewer than {few_hits} times there: loadsim plan {file} says so.
"""


ALLOWED = """\
# loadsim puts load on this host only because it is listed here.
allow_hosts: [{quoted}]
"""

SAMPLED_HERE = """\
# The server runs on this machine: the answer names the resources that come closest to full.
probes: {host: {}}
"""

SAMPLED_THERE = """\
# To see which of the server's resources come closest to full, install loadsim on its machine, and uncomment these two
# lines (docs/how-to/watch-the-server.md). If the server runs on this machine, use this instead: probes: {{host: {{}}}}
# monitors:
#   server: {{command: "ssh {host} loadsim monitor --probe host --imap-port {imap_port} --smtp-port {smtp_port} \
--name server"}}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the scenario, written to the new file NAME.yaml")
    parser.add_argument(
        "--host",
        type=_host,
        default="127.0.0.1",
        help="host of IMAP and SMTP, added to allow_hosts unless loopback; default: %(default)s",
    )
    parser.add_argument("--tls", choices=TLS, default=TLS[0], help="encryption; default: %(default)s")
    parser.add_argument("--imap-port", type=_port, metavar="PORT", help="default: 143; with implicit TLS, 993")
    parser.add_argument(
        "--smtp-port", type=_port, metavar="PORT", help="default: 25; with STARTTLS, 587; with implicit TLS, 465"
    )
    parser.add_argument("--domain", type=_plain, help="domain of the users' addresses; default: loadsim.test")
    parser.add_argument(
        "--user", default="user{index:05d}", metavar="PATTERN", help="log-on names; default: %(default)s"
    )
    parser.add_argument(
        "--users", type=whole(2, MOST_USERS), default=200, metavar="N", help="number of users; default: %(default)s"
    )
    parser.set_defaults(run=run_new)


def run_new(args: argparse.Namespace) -> int:
    """Write the scenario, and print the next commands. Raises `ConfigError`, and leaves no file, if it is invalid."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}", args.name):
        ending = ", without .yaml, which is added" if args.name.endswith((".yaml", ".yml")) else ""
        raise ConfigError(f"NAME: expected letters, digits, - and _{ending}, found {args.name!r}")
    file = Path(f"{args.name}.yaml")
    steps = [f"loadsim check {file}", f"loadsim run {file}"]
    answers = {
        "host": args.host,
        "quoted": json.dumps(args.host) if ":" in args.host else args.host,
        "imap_port": args.imap_port or IMAP_PORTS[args.tls],
        "smtp_port": args.smtp_port or SMTP_PORTS[args.tls],
    }
    text = TEMPLATE.format(
        name=args.name,
        next=", then ".join(steps),
        variable=PASSWORD_VARIABLE,
        allow="" if is_loopback(args.host) else ALLOWED.format(**answers),
        probes=SAMPLED_HERE if is_loopback(args.host) else SAMPLED_THERE.format(**answers),
        few_hits=PROVISIONAL_HITS,
        file=file,
        tls=args.tls,
        # If log-on names are addresses, they contain the domain.
        domain=args.domain or args.user.partition("@")[2] or DOMAIN,
        user=json.dumps(args.user),  # YAML reads JSON strings
        users=args.users,
        **answers,
    )
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        expected = "expected a new file, found one that exists"
        raise ConfigError(f"{file}: {expected}; choose another name, or delete it") from None
    try:
        load_scenario(str(file), passwords=False)
    except ConfigError:
        file.unlink()
        raise
    print(f"Wrote {file}. Next:")
    print(f"  export {PASSWORD_VARIABLE}='...'    # each {{index}} in it becomes the user's number: 'secret-{{index}}'")
    print("  # If the accounts do not exist yet:")
    print(f"  loadsim topology export {file} --format csv --out accounts")
    for step in steps:
        print(f"  {step}")
    if args.users >= LEAST_TRY:
        print(f"A first try of 5 min, with a provisional score:\n  loadsim run {file} {TRY_OPTIONS}")
    return 0
