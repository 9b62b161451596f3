"""`loadsim new`: write a commented scenario for a server of one's own, by options or a few questions."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadsim.analysis.score import FEW_HITS
from loadsim.cli.options import duration, whole
from loadsim.cli.progress import shown_share
from loadsim.cli.show import EDITOR_LINE, EXISTS, schema_file, write_new, write_schema
from loadsim.cli.stderr_lines import print_line
from loadsim.dryrun.forecast import few_planned, not_valid
from loadsim.errors import ConfigError, printable
from loadsim.model.accounts import AccountPattern
from loadsim.model.host_port import is_loopback
from loadsim.model.profile import load_profile
from loadsim.model.run_times import in_words
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.scenario_server import IMAP_PORTS, SMTP_PORTS
from loadsim.model.schema import with_nearest
from loadsim.model.terms import MOST_USERS
from loadsim.model.yaml_reader import known
from loadsim.runs.quick_forecast import quick_forecast, quick_load

TLS = ("none", "starttls", "implicit")

DOMAIN = "loadsim.test"

PASSWORD_VARIABLE = "LOADSIM_PASSWORD"  # noqa: S105 - the name of a variable

DAYS = 4
"""The days of a run. With the default answers, a run of 2 h has 413 REPLY ALL in its scored hour, and more of the other
scored tasks: 300 are enough for a score that is not provisional."""

FIRST_TRY = ("run.days=1", "run.day_length=5m")
"""The settings of a first try: by the default answers, its score is provisional."""

TRY_OPTIONS = " ".join(f"--set {setting}" for setting in FIRST_TRY)

Check = Callable[[str, Mapping[str, str]], None]

_port = whole(1, 65535)
_users = whole(2, MOST_USERS)


def _check_host(text: str, answers: Mapping[str, str]) -> None:
    _check_name(text, answers)
    if text.count(":") == 1:
        raise ConfigError(f"expected a host without a port (--imap-port and --smtp-port name them), found {text!r}")


def _check_name(text: str, _: Mapping[str, str]) -> None:
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", text):
        raise ConfigError(f"expected letters, digits and the signs - . : _, found {text!r}")


def _check_tls(text: str, _: Mapping[str, str]) -> None:
    if text not in TLS:
        raise ConfigError(f"expected one of {', '.join(TLS)}, found {with_nearest(text, TLS)}")


def _check_user(text: str, answers: Mapping[str, str]) -> None:
    if problem := AccountPattern(text).problem(answers["domain"].lower(), 2):
        raise ConfigError(f"expected {problem}, found {text!r}")


def _check_profile(text: str, _: Mapping[str, str]) -> None:
    if text not in known("profiles") and not Path(text).is_file():
        names = known("profiles")
        raise ConfigError(f"expected one of {', '.join(names)}, or a file, found {with_nearest(text, names)}")
    load_profile(text)


def _parsed(parse: Callable[[str], object]) -> Check:
    """Return the check of an answer that a parser of options takes."""

    def check(text: str, _: Mapping[str, str]) -> None:
        try:
            parse(text)
        except argparse.ArgumentTypeError as failure:
            raise ConfigError(str(failure)) from None

    return check


@dataclass(frozen=True, slots=True)
class Question:
    """An option, asked for on a terminal if it is missing; `default` answers it otherwise.

    `check` raises `ConfigError` for an answer that cannot be used after those before it. A default may depend on the
    TLS mode.
    """

    option: str
    text: str
    default: str | Mapping[str, str]
    check: Check

    @property
    def name(self) -> str:
        return self.option.removeprefix("--").replace("-", "_")

    def answer_by_default(self, before: Mapping[str, str]) -> str:
        """Return the default after the answers to the questions before this one."""
        return self.default if isinstance(self.default, str) else self.default[before["tls"]]


_IMAP_DEFAULTS = {mode: str(port) for mode, port in IMAP_PORTS.items()}
_SMTP_DEFAULTS = {mode: str(port) for mode, port in SMTP_PORTS.items()}

QUESTIONS = (
    Question("--host", "The mail server's host", "127.0.0.1", _check_host),
    Question("--tls", "Encryption: none, starttls or implicit", "none", _check_tls),
    Question("--imap-port", "The port of IMAP", _IMAP_DEFAULTS, _parsed(_port)),
    Question("--smtp-port", "The port of SMTP, for submission", _SMTP_DEFAULTS, _parsed(_port)),
    Question("--domain", "The domain of the users' addresses", DOMAIN, _check_name),
    Question("--user", "The users' log-on names; {index} is their number", "user{index:05d}", _check_user),
    Question("--users", "The number of users", "200", _parsed(_users)),
    Question("--profile", "What they do in a day: a profile", "loadsim-5.5/medium", _check_profile),
    Question("--day-length", "The length of their day of 8 hours in the run", "30m", _parsed(duration)),
)

TEMPLATE = """\
{editor}# {users} users on {host}, written by loadsim new. docs/reference/scenario.md has all keys.
# Next: {next}
name: {name}

server:
  imap: {{host: {host}, port: {imap_port}, tls: {tls}}}
  smtp: {{host: {host}, port: {smtp_port}, tls: {tls}}}
{allow}
# Empty accounts, for tests only. The password of all is in the environment variable {variable}; {{index}} in it
# stands for the number of the user. Instead, a table may have users and passwords: accounts: {{csv: accounts.csv}}
domain: {domain}
accounts: {{user: {user}, password_env: {variable}}}

{probes}
topology:
  - {{profile: {profile}, users: {users}}}

# Distribution lists must exist on the server: loadsim topology export writes them. Without lists, users receive less
# mail than published, about a third of it with the Medium profile.
lists: {{count: 0}}

run:
  day_length: {day_length}        # 8 hours, compressed; without it, a day takes 8 hours
  days: {days}
  # {days} days of {day} take {run}. The first quarter of the run is discarded, and the next half is scored.
  # The score is provisional if a scored task is due fewer than {few_hits} times in it: loadsim plan {file} says so.
"""


SAMPLED_HERE = """\
# The answer names the resources of this machine, on which the server is, that come nearest to full.
probes: {host: {}}
"""

SAMPLED_THERE = """\
# To see which resources of the server come nearest to full, install loadsim on its machine, and uncomment these two
# lines (docs/how-to/watch-the-server.md). If that is this machine, use this key instead: probes: {{host: {{}}}}
# monitors:
#   server: {{command: "ssh {host} loadsim monitor --probe host --imap-port {imap_port} --smtp-port {smtp_port} \
--name server --out -"}}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the scenario's name; it is written to NAME.yaml, a new file")
    parser.add_argument(
        "--host", help="host of IMAP and SMTP; one beyond loopback gets into allow_hosts; default: 127.0.0.1"
    )
    parser.add_argument("--tls", choices=TLS, help="encryption; default: none")
    parser.add_argument("--imap-port", type=_port, metavar="PORT", help="default: 143; with implicit TLS, 993")
    parser.add_argument(
        "--smtp-port", type=_port, metavar="PORT", help="default: 25; with STARTTLS, 587; with implicit TLS, 465"
    )
    parser.add_argument("--domain", help="domain of the users' addresses; default: loadsim.test")
    parser.add_argument("--user", metavar="PATTERN", help="log-on names; default: user{index:05d}")
    parser.add_argument("--users", type=_users, metavar="N", help="number of users; default: 200")
    parser.add_argument("--profile", metavar="PROFILE", help="a profile; default: loadsim-5.5/medium")
    parser.add_argument("--day-length", metavar="DURATION", help="length of the day in the run; default: 30m")
    parser.add_argument(
        "--no-schema", action="store_true", help="do not write the JSON Schema next to it, which editors use"
    )
    parser.set_defaults(run=run_new)


def run_new(args: argparse.Namespace) -> int:
    """Write the scenario, and print the next commands. Raises `ConfigError`, and then writes nothing."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}", args.name):
        ending = ", without .yaml, which is added" if args.name.endswith((".yaml", ".yml")) else ""
        raise ConfigError(f"NAME: expected letters, digits, - and _{ending}, found {args.name!r}")
    file = Path(f"{args.name}.yaml")
    if file.exists():
        raise ConfigError(f"{file}: {EXISTS}")
    answers = _answers(args)
    steps = [f"loadsim check {file}", f"loadsim run {file}"]
    answers["user"] = json.dumps(answers["user"])  # quoted, which YAML reads, too
    text = TEMPLATE.format(
        editor="" if args.no_schema else f"{EDITOR_LINE}{schema_file('scenarios').name}\n",
        name=args.name,
        next=", then ".join(steps),
        variable=PASSWORD_VARIABLE,
        allow=_allow(answers["host"]),
        probes=_probes(answers),
        days=DAYS,
        day=in_words(duration(answers["day_length"])),
        run=in_words(DAYS * duration(answers["day_length"])),
        few_hits=FEW_HITS,
        file=file,
        **answers,
    )
    scenario = _write_checked(file, text)
    print(f"Wrote {file}{'' if args.no_schema else _schema_beside(file)}. Next:")
    print(f"  export {PASSWORD_VARIABLE}='...'    # each {{index}} in it becomes the user's number: 'secret-{{index}}'")
    print("  # If the accounts do not exist yet:")
    print(f"  loadsim topology export {file} --format csv --out accounts")
    for step in steps:
        print(f"  {step}")
    with shown_share("Planning a run, to warn beforehand") as planning:
        reasons, notes = quick_forecast(scenario, planning)
    for line in _duration(scenario, file):
        print(line)
    sys.stdout.flush()
    for reason in reasons:
        print_line(f"loadsim: warning: {reason}")
    for note in notes:
        print_line(f"loadsim: note: {note}")
    return 0


def _duration(scenario: Scenario, file: Path) -> Iterator[str]:
    """Yield how long a run takes, and the command of a shorter first try, if it can become valid."""
    yield f"The run takes about {in_words(scenario.duration_s)}."
    shorter = load_scenario(str(file), FIRST_TRY, passwords=False)
    if shorter.duration_s < scenario.duration_s:
        load = quick_load(shorter)
        if not not_valid(shorter, load):
            provisional = ", with a provisional score" if load and few_planned(shorter, load) else ""
            yield f"A first try of {in_words(shorter.duration_s)}{provisional}:"
            yield f"  loadsim run {file} {TRY_OPTIONS}"


def _schema_beside(file: Path) -> str:
    """Write the schema next to the scenario, unless there is one. Return what was done, for the first line."""
    existed = (file.parent / schema_file("scenarios").name).exists()
    schema = write_schema("scenarios", file)
    return f"; {schema} for editors was there already" if existed else f", and {schema} for editors"


def _answers(args: argparse.Namespace) -> dict[str, str]:
    """Return the answers by the names of their questions. Raises `ConfigError` for an option, before it asks."""
    given = {each.name: str(getattr(args, each.name)) for each in QUESTIONS if getattr(args, each.name) is not None}
    # A log-on name that is an address has the domain.
    domain = given.get("domain") or given.get("user", "").partition("@")[2] or DOMAIN
    for question in QUESTIONS:
        if question.name in given:
            try:
                question.check(given[question.name], {"domain": domain})
            except ConfigError as failure:
                raise ConfigError(f"{question.option}: {failure}") from None
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    answers: dict[str, str] = {}
    for question in QUESTIONS:
        default = domain if question.name == "domain" else question.answer_by_default(answers)
        if question.name in given:
            answers[question.name] = given[question.name]
        else:
            answers[question.name] = _ask(question, default, answers) if terminal else default
    return answers


def _ask(question: Question, default: str, answers: Mapping[str, str]) -> str:
    """Ask until an answer can be used after these. The end of the input takes the default."""
    while True:
        print(f"{question.text} [{default}]: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        if not answer:
            return default
        try:
            question.check(answer, answers)
        except ConfigError as failure:
            print(f"  {printable(str(failure))}", file=sys.stderr)
        else:
            return answer


def _allow(host: str) -> str:
    """Return the key that permits load on a host; "" for loopback, which needs none."""
    if is_loopback(host):
        return ""
    return f"# loadsim puts load on this host because you say so here.\nallow_hosts: [{host}]\n"


def _probes(answers: Mapping[str, str]) -> str:
    """Return the key that samples the server's machine; for another machine than this one, how to do it there."""
    return SAMPLED_HERE if is_loopback(answers["host"]) else SAMPLED_THERE.format(**answers)


def _write_checked(file: Path, text: str) -> Scenario:
    """Write a scenario that can be read, and return it. Raises `ConfigError` and removes it otherwise."""
    write_new(file, text)
    try:
        return load_scenario(str(file), passwords=False)
    except ConfigError:
        file.unlink()
        raise
