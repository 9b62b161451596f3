"""Errors of files: several checks at once, and the lines where the errors are."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import Self

from loadsim.errors import ConfigError, together

Key = tuple[str | int, ...]
"""The path of a value in a document: ("topology", 0, "users")."""


class Problems:
    """Errors of several checks.

    `with problems:` records the error of its block, after which the program continues behind the block. `check()`
    raises what was recorded.
    """

    def __init__(self) -> None:
        self.found: list[ConfigError] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, ConfigError):
            self.found.append(error)
        return isinstance(error, ConfigError)

    def check(self) -> None:
        """Raise the recorded errors as one `ConfigError`, if there are any."""
        if self.found:
            raise together(self.found)


class SourceLines:
    """The lines of a YAML text in which its values begin, by their key paths."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    def of(self, key: Key) -> int:
        """Return the line, from 1, of a key or of the nearest one above it that is in the text; 0 if none is."""
        parts = _parts(key)
        return next((self._lines[parts[:end]] for end in range(len(parts), 0, -1) if parts[:end] in self._lines), 0)

    @cached_property
    def _lines(self) -> dict[tuple[str, ...], int]:
        """Compute the lines when the first one is needed: most files have no error."""
        from loadsim.model.documents.yaml_dialect import lines_of

        lines: dict[tuple[str, ...], int] = {}
        for key, line in lines_of(self._text):
            lines.setdefault(_parts(key), line)
        return lines


def _parts(key: Key) -> tuple[str, ...]:
    """Return the parts of the names in a key path: criteria have dots in place of nested mappings."""
    return tuple(part for name in key for part in str(name).split("."))
