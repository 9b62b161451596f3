"""The commands that pages show: typed by a test, executed as they stand, or taken by the parser."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from pages import PAGES, SHELL, Block, blocks
from paths import ROOT

ALL = ".*"
TYPED: Mapping[str, Mapping[str, str]] = {
    "docs/README.md": {
        "A first run|Dovecot and Postfix|Profile, scenario, plan": (
            "tests/docs/test_tutorials.py::test_the_first_page_runs_in_a_fresh_debian"
        )
    },
    "docs/how-to/two-machines.md": {
        "Try it on one machine": "tests/docs/test_tutorials.py::test_the_cluster_tutorial_runs_on_one_machine"
    },
    "docs/tutorial-cluster.md": {
        "1. Install": "tests/docs/test_tutorials.py::test_the_cluster_tutorial_runs_on_one_machine",
        "5. Twelve machines": "tests/cluster/test_tutorial_cluster.py::test_twelve_machines_join_and_make_load",
        ALL: "tests/cluster/test_tutorial_cluster.py::test_the_tutorials_commands_have_the_stated_outputs",
    },
}
"""The tests that type all commands of a page's sections, whose titles match a pattern."""

CHOICE = re.compile(r"(?<![\w|-])[\w-]+(?:\|[\w-]+)+")
"""Alternatives, of which the reader types one."""


def command_blocks() -> list[Block]:
    """Return the blocks of all pages that a reader types.

    The synopses of docs/reference/commands.md are none: tools/make_commands.py writes them from the parsers.
    """
    found = [block for page in PAGES for block in blocks(page) if block.commands or block.language in SHELL]
    synopses = ROOT / "docs" / "reference" / "commands.md"
    return [
        block for block in found if block.page != synopses or not block.prose.rstrip().endswith(f"## {block.section}")
    ]


def typed_by(block: Block) -> str | None:
    tests = TYPED.get(str(block.page.relative_to(ROOT)), {})
    return next((test for pattern, test in tests.items() if re.fullmatch(pattern, block.section)), None)


def alternatives(line: str) -> list[str]:
    choice = CHOICE.search(line)
    return [line.replace(choice[0], one) for one in choice[0].split("|")] if choice else [line]


def arguments(line: str) -> list[list[str]]:
    """Split a command line into its commands and their words, without comments and redirections."""
    return [words for one in alternatives(line) for words in _arguments(one)]


def _arguments(line: str) -> list[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(";&|()"):
            found.append([])
        elif set(word) <= set("<>"):
            next(lexer)
        else:
            found[-1].append(word)
    return [words for words in found if words]


QUICK = (*("plan", "new", "topology", "show", "log", "compare"), *("report", "size", "characterise"))
"""Verbs that need no mail server and take a moment. So do `cluster certs` and `suite --list`."""

PARSED_ONLY: Mapping[str, Mapping[str, str]] = {
    ALL: {
        "make ": "the target exists, which CI or make nightly makes: Makefile",
        "pip install": "the extra exists; it would change the installation of the tests: tests/docs/test_package.py",
        "python -m bench": "takes minutes: bench/tests/test_crimes.py",
        "tests/install-": "it installs packages, and make nightly-servers calls it: Makefile",
        ".venv/bin/loadsim server dovecot-postfix": "the first page has the same line: tests/docs/test_tutorials.py",
        ".venv/bin/loadsim run dovecot-postfix --pin": "the first page has the same line: tests/docs/test_tutorials.py",
        "loadsim server ": "has no end: tests/servers/test_servers.py",
        "loadsim capacity ": "takes a day: tests/servers/test_capacity_run.py",
        ".venv/bin/loadsim capacity ": "takes half an hour: tests/servers/test_capacity_run.py",
        "loadsim cluster collect ": "needs a cluster that has lost a client: tests/cluster/test_cluster_losses.py",
        "loadsim run quickstart --metrics ": "the port may be in use: tests/servers/test_watched_runs.py",
        "loadsim run medium --metrics ": "the port may be in use: tests/servers/test_watched_runs.py",
        "loadsim run quickstart --web ": "the port may be in use: tests/servers/test_web_runs.py",
    },
    "docs/how-to/extend.md": {"loadsim run my.yaml": "needs the plug-ins' servers: tests/servers/test_plugins.py"},
    "docs/how-to/make-a-report.md": {},
    "docs/how-to/mapi.md": dict.fromkeys(
        [f"loadsim {verb} my-exchange.yaml" for verb in ("check", "run", "clean")],
        "needs such a server: tests/servers/test_mapi_run.py",
    ),
    "docs/how-to/run-a-suite.md": {"loadsim suite suite.yaml --out": "30 long runs: tests/servers/test_suite_run.py"},
    "docs/how-to/test-storage.md": {"loadsim storage ": "takes hours: tests/unit/storage/test_runs.py"},
    "docs/how-to/two-machines.md": {
        "loadsim cluster up": "has no end: tests/cluster/test_cluster_commands.py",
        "loadsim client": "has no end: tests/cluster/test_cluster_commands.py",
        "loadsim run": "needs that cluster: tests/cluster/test_cluster_commands.py",
    },
    "docs/how-to/watch-the-server.md": {
        "loadsim monitor": "has no end, and needs Postfix: tests/servers/test_monitor_command.py"
    },
}
"""The beginnings of commands that are taken by the program's parser only, with the reason, and the test of the like."""

MOST_PARSED_ONLY = 38
"""The number of command lines that are parsed only. Execute a new one, or state why not, and raise this."""


def parsed_only(page: str, line: str) -> str | None:
    """Return why a command line is not executed, or None."""
    reasons = PARSED_ONLY.get(page, {}) | PARSED_ONLY[ALL]
    return next((why for begin, why in reasons.items() if line.removeprefix("sudo ").startswith(begin)), None)


def executed(block: Block) -> list[str]:
    """Return the command lines of a block that tests/docs/test_executed_examples.py executes.

    A line that assigns or exports a variable of the shell is joined to the next one.
    """
    if typed_by(block) or block.untested is not None:
        return []
    page = str(block.page.relative_to(ROOT))
    text = re.sub(r"^(\w+=\$\(.*\)|export \w+=.*)$\n", r"\1; ", block.text, flags=re.MULTILINE)
    return [line for line in replace(block, text=text).commands if parsed_only(page, line) is None]


def quick(line: str) -> bool:
    """Return True for a command line that needs no server and takes a moment."""
    return all(
        words[0] in QUICK or words[:2] == ["cluster", "certs"] or (words[0] == "suite" and "--list" in words)
        for words in map(words_of_loadsim, arguments(line))
        if words
    )


def words_of_loadsim(words: list[str]) -> list[str]:
    """Return the words after `loadsim`, without sudo and the directory; none of another program."""
    words = words[1:] if words[0] == "sudo" else words
    return words[1:] if words[0].removeprefix(".venv/bin/") == "loadsim" else []
