"""Write `docs/reference/commands.md`, the page of all commands and options, from the parsers."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from loadsim.cli import parser
from tools.command_tree import Argument, Command, command_tree

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "commands.md"

HEAD = """\
# Commands

<!-- Written by tools/make_commands.py from the parsers: make reference -->

Results go to standard output; progress, warnings and errors to standard error. [Exit status](exit-status.md) lists the
exit statuses, [JSON output](json.md) the keys of `--json`. `loadsim VERB --help` and `man loadsim` have the same text
as this page.

Give all commands the same settings (`--set`), or accounts will be missing. A `TIME` counts from the common start:
`h:mm`, `h:mm:ss` or seconds. Ctrl-C ends a run early, and keeps the figures measured so far. Before the load, and in
other commands, it ends the command.
"""


def page() -> str:
    """Return the page. Arguments shared by several commands are described once if frequent or unambiguous."""
    commands = [command for command in command_tree(parser()).all() if command.path and not command.verbs]
    uses = Counter(_row(argument) for command in commands for argument in _described(command))
    texts = Counter(row.partition(" | ")[0] for row in uses)
    shared = [row for row, count in uses.items() if count > 2 or (count == 2 and texts[row.partition(" | ")[0]] == 1)]
    parts = [HEAD, "## Common options\n", _table(shared)]
    for command in commands:
        own = [row for row in map(_row, _described(command)) if row not in shared]
        parts += [f"## `loadsim {command.name}`\n", _synopsis(command), f"{sentence(command.about)}\n"]
        parts += [_table(own)] if own else []
    return "\n".join(parts)


def _described(command: Command) -> list[Argument]:
    return [argument for argument in (*command.operands, *command.options) if "--help" not in argument.flags]


def _synopsis(command: Command) -> str:
    words = [_typed(argument) for argument in _described(command)]
    line = f"loadsim {command.name}"
    # Lines must not break at a space within brackets.
    text = " ".join([line, *(word.replace(" ", "\0") for word in words)])
    wrapped = textwrap.wrap(text, 110, break_on_hyphens=False, subsequent_indent="    ")
    return "".join(f"    {part}\n" for part in wrapped).replace("\0", " ")


def _typed(argument: Argument) -> str:
    word = " ".join(part for part in (argument.flags[-1] if argument.flags else "", argument.value) if part)
    word = f"[{word}]" if argument.optional else word
    return f"{word}..." if argument.repeated else word


def _row(argument: Argument) -> str:
    name = " ".join(part for part in (", ".join(argument.flags), argument.value) if part).replace("|", r"\|")
    return f"| `{name}` | {sentence(argument.help).removesuffix('.')} |"


def _table(rows: Iterable[str]) -> str:
    return "\n".join(["| option | meaning |", "|---|---|", *rows, ""])


def sentence(text: str) -> str:
    """Return a help text as a sentence."""
    end = "" if text.endswith((".", "?")) else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
