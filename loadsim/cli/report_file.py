"""A report in a file: its format by the file's suffix, and writing it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.report.document import Document, to_json
from loadsim.report.html import to_html
from loadsim.report.markdown import to_markdown

FORMATS = ("html", "md", "json")
"""The formats of reports, which are also the suffixes of their files."""

INCOMPLETE = ".incomplete"
"""The suffix of a report while it is written."""


def format_of(option: str, path: Path, stated: str | None = None) -> str:
    """Return the format of a report by the suffix of its file, or the `stated` one.

    Raises `ConfigError` for an unknown suffix, unless a format is stated, and for the suffix of another format.
    """
    suffix = path.suffix.removeprefix(".").lower()
    if stated is not None and (suffix == stated or suffix not in FORMATS):
        return stated
    if stated is not None:
        raise ConfigError(f"{option} {path}: expected a name that ends in .{stated}, as --format says")
    if suffix not in FORMATS:
        known = ", ".join(f".{one}" for one in FORMATS[:-1])
        raise ConfigError(f"{option} {path}: expected a name that ends in {known} or .{FORMATS[-1]}")
    return suffix


def check_place(option: str, path: Path) -> None:
    """Raise `ConfigError` if no file can be written there, as far as this is known without writing."""
    try:
        found = "a directory" if path.is_dir() else None if path.parent.is_dir() else "No such directory"
    except OSError as failure:  # such as a name that is too long
        found = failure.strerror
    if found:
        raise ConfigError(f"{option} {path}: expected a file to write, found: {found}")


def content(document: Document, chosen: str) -> bytes:
    """Return a report in a format."""
    if chosen == "html":
        return to_html(document).encode()
    if chosen == "md":
        return to_markdown(document).encode()
    return (json.dumps(to_json(document), indent=2) + "\n").encode()


def write(report: bytes, path: Path, option: str) -> None:
    """Write a report, or replace one. Raises `ConfigError` if it cannot be written; then an old one is as it was."""
    try:
        if path.exists() and not path.is_file():  # a device or a pipe
            path.write_bytes(report)
            return
        place = path.resolve()
        incomplete = place.with_name(f"{place.name}.{os.getpid()}{INCOMPLETE}")
        try:
            incomplete.write_bytes(report)
            incomplete.replace(place)
        except OSError:
            with suppress(OSError):
                incomplete.unlink()
            raise
    except OSError as failure:
        raise ConfigError(f"{option} {path}: expected a file to write, found: {failure.strerror}") from None
