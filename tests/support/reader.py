"""A reader of a page who types each command as it is printed, writes each file, and compares what the page shows."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Self

from pages import Block, missing_from, with_outputs
from shells import Shell, Typed

GOES_ON = {
    re.compile(r"\bloadsim server\b"): r"# Ctrl-C stops it\.",
    re.compile(r"\bloadsim cluster up\b"): r"# Ctrl-C ends it\.",
    re.compile(r"\bloadsim client\b"): r"joined \S+ as \S+",
}
"""Commands that keep their terminal, each with the end of the line that it shows when it is ready."""

PRESS = re.compile(r"[Pp]ress Ctrl-C in the server's\s+terminal")
REFUSED = "loadsim: "
"""A shown output that begins so is a refusal, with exit status 2."""

RUN = re.compile(r"\bloadsim (?:run|log answer)\b|^make run$")


class Reader:
    """Someone with as many terminals as the page asks for: a new one when all have commands that go on."""

    def __init__(
        self, open_terminal: Callable[[], AbstractContextManager[Shell]], note: Callable[[str], object] = print
    ) -> None:
        self._open_terminal = open_terminal
        self._note = note
        self._terminals: list[Shell] = []
        self._open = ExitStack()
        self._at = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self, found: Sequence[Block]) -> list[Typed]:
        """Do all that these blocks of a page ask for, in their order. Return the commands' results."""
        done = []
        for block, shown in with_outputs(list(found)):
            if PRESS.search(block.prose):
                self.interrupt()
            if block.file is not None:
                self._write(block.file, block.text)
            for number, command in enumerate(block.commands, 1):
                last = number == len(block.commands)
                done.append(self._type(block, command, shown if last else None))
        return done

    @property
    def terminals(self) -> Sequence[Shell]:
        return self._terminals

    def interrupt(self) -> None:
        """Press Ctrl-C in each terminal where a command goes on, those that were opened last first."""
        for each in reversed(self._terminals):
            if each.busy:
                typed = each.interrupt()
                self._note(f"{typed.output}\nCtrl-C: {typed.took_s:.1f} s, status {typed.status}")
                assert typed.status in (0, 130), typed

    def type(self, command: str) -> Typed:
        """Type a command that stands on no page."""
        return self._type("no page", command, None)

    def _type(self, block: Block | str, command: str, shown: Block | None) -> Typed:
        terminal = self._free()
        until = next((line for pattern, line in GOES_ON.items() if pattern.search(command)), None)
        typed = terminal.type(command) if until is None else terminal.start(command, until)
        self._note(f"{typed.output}\n{block}: {command}: {typed.took_s:.1f} s, status {typed.status}")
        refused = shown is not None and shown.text.startswith(REFUSED)
        allowed = (2,) if refused else (0, 1, 2, 3) if RUN.search(command) else (0,)
        assert typed.status in allowed, f"{block}: {command}: {typed}"
        assert "Traceback" not in typed.output, f"{block}: {command}: {typed.output}"
        if RUN.search(command):  # the figures of a busy machine may be invalid or miss criteria
            assert "Verdict: " in typed.output, f"{block}: {command}: {typed.output}"
        if shown is not None:
            lacking = missing_from(typed.output, shown.text)
            assert not lacking, f"{shown}: {lacking}; found {typed.output}"
        return typed

    def _write(self, name: str, text: str) -> None:
        """Write a file with an editor, which is `cat` here, into the directory of the terminal."""
        typed = self._free().type(f"cat >{name} <<'END OF FILE'\n{text}END OF FILE")
        assert typed.status == 0, typed

    def _free(self) -> Shell:
        """Return the terminal that was used last, or another one if that is busy, or a new one."""
        order = [*self._terminals[self._at :], *self._terminals] if self._terminals else []
        for each in order:
            if not each.busy:
                self._at = self._terminals.index(each)
                return each
        self._terminals.append(self._open.enter_context(self._open_terminal()))
        self._at = len(self._terminals) - 1
        return self._terminals[-1]
