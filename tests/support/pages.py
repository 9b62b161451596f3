"""Pages of the documentation as a reader types them: blocks of commands, files and outputs, in their order."""

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from paths import ROOT

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

SHELL = ("sh", "bash", "console")
"""Languages of blocks whose lines are commands; those of `console` have a prompt, such as `station$ `."""

FENCED = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n) {4}\S.*\n(?: {4}.*\S.*\n)*", re.MULTILINE)
UNTESTED = re.compile(r"<!-- untested: (?P<reason>[^>]+) -->\s*\Z")
PROMPT = re.compile(r"^\w*\$ ")
COMMAND = re.compile(
    r"^(?:\w*\$ )?(?:sudo )?(?:[A-Z]+=\S+ )*(?:\w+=\$\()?(?:[\w./-]*/)?"
    r"(?:loadsim|make|git|pip|python3?|apt-get|kubectl|docker|podman|scp|ssh|dask|curl|doveadm|postqueue|chmod|mkdir|systemd-run"
    r"|install-[\w-]+\.sh|(?:sh|bash) \S+|\. \S+/activate)(?: [^:]|\n|$)"
)
"""The first line of a block without a language that has commands; a message such as `loadsim: expected` is none."""

GAP = "..."
"""A line of an output that stands for any number of lines left out."""

MACHINE = "vm"
"""The name of the machine in the outputs that pages show."""

PROGRESS = re.compile(r"(?:inspect|initialise|clean|log-on|work|drain|log-off|over): ")
"""The lines that commands print on standard error while they last."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: its language ("" without one), its lines, the number of its first line, its heading of level 2.

    `prose` is the text between the block before and this one.
    """

    page: Path
    language: str
    text: str
    line: int
    section: str
    prose: str

    @property
    def commands(self) -> list[str]:
        """The commands of the block, without prompts, each with its continuation lines; none if it has no commands."""
        if self.language not in SHELL and not (self.language == "" and COMMAND.match(self.text)):
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        if any(PROMPT.match(line) for line in lines):
            lines = [PROMPT.sub("", line) for line in lines if PROMPT.match(line)]
        return [line for line in lines if line.strip() and not line.startswith("#")]

    @property
    def untested(self) -> str | None:
        """The reason why no test reads the block, from the comment before it."""
        found = UNTESTED.search(self.prose)
        return found["reason"].strip() if found else None

    @property
    def file(self) -> str | None:
        """The name of the file that the reader writes: a block in YAML begins with it in a comment."""
        found = re.match(r"# ([\w./-]+\.ya?ml)\b", self.text)
        return found[1] if self.language == "yaml" and found else None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    fenced = list(FENCED.finditer(text))
    outside = FENCED.sub(lambda found: "\n" * found[0].count("\n") + " " * (len(found[0]) - found[0].count("\n")), text)
    found = sorted([*fenced, *INDENTED.finditer(outside)], key=lambda match: match.start())
    return list(_blocks(page, text, found))


def _blocks(page: Path, text: str, found: list[re.Match[str]]) -> Iterator[Block]:
    ends = [0, *(match.end() for match in found)]
    for begin, match in zip(ends, found, strict=False):
        before = text[: match.start()]
        headings = re.findall(r"^## (.+)$", before, re.MULTILINE)
        fence = "language" in match.groupdict()
        yield Block(
            page,
            match["language"] if fence else "",
            re.sub(
                rf"^{match['indent']}" if fence else r"^ {4}",
                "",
                match["text"] if fence else match[0],
                flags=re.MULTILINE,
            ),
            before.count("\n") + 1 + fence,
            headings[-1] if headings else "",
            text[begin : match.start()],
        )


def with_outputs(found: list[Block]) -> Iterator[tuple[Block, Block | None]]:
    """Pair each block with the output that is shown for its last command: a following block without commands."""
    for block, after in pairwise([*found, None]):
        assert block is not None
        shown = after is not None and after.language == "" and not after.commands
        yield block, after if block.commands and shown else None


def masked(text: str) -> list[str]:
    """Return the statements of an output without what differs from run to run: numbers, names of runs, verdicts.

    A statement is a line with its continuation lines, which are indented by two spaces at least.
    """
    text = re.sub(r"\n {2,}(?![-*])", " ", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [_mask(line) for line in lines if line]


def _mask(line: str) -> str:
    """Mask a statement. Of a table, columns after the failures are left out: how many fit depends on the figures."""
    line = re.sub(r"^((?:Category|Command) .* Failed) .*", r"\1", line)
    line = re.sub(r", at \S+ % of the plan's load", "", line)
    line = re.sub(r"^(Score, weighted) .*", r"\1", line)  # an invalid run has none
    line = re.sub(r"(fewer than 300 hits of) .*", r"\1", line)
    line = re.sub(r"\b(engine|core|client|process)(?:s|es)\b", r"\1", line)
    line = re.sub(r"priority; .* \(", "priority; PROCESSES (", line)
    line = re.sub(r"\d{8}T\d{6}Z?(-[0-9a-f]{6}\b)?", "RUN", line)
    line = re.sub(r"/tmp/loadsim-\w+", "DIRECTORY", line)
    line = re.sub(r"\b(?:[0-9a-f]{64}\b|[0-9a-f]{4}\.\.\.)", "DIGEST", line)
    line = re.sub(r"\b(Verdict: )\w+(?: by relaxed limits)?, criteria (?:not )?\w+", r"\1VERDICT", line)
    line = re.sub(rf"\b{re.escape(platform.node())}\b", MACHINE, line)
    line = re.sub(r"\bnever\b|[+-]?\d+(?:[.,:]\d+)*", "N", line)
    line = re.sub(r"\bN (?:ms|s|min)\b", "N", line)
    return re.sub(r"\bN(?: (?:< )?N)+\b", "N", line)


def missing_from(output: str, shown: str) -> list[str]:
    """Return the statements that are shown but not, in this order, in the output.

    If the shown output leaves nothing out and has no verdict, statements that are not shown count too. The lists below
    a verdict differ from run to run.
    """
    expected, found = masked(shown), [line for line in masked(output) if not PROGRESS.match(line)]
    rest, lacking = iter(found), []
    for statement in expected:
        if statement != GAP and statement not in rest:
            lacking.append(statement)
            rest = iter(found)
    if not lacking and GAP not in expected and "Verdict:" not in shown and len(found) > len(expected):
        lacking = [f"not shown: {statement}" for statement in found if statement not in expected]
    return lacking
