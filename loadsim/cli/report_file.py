"""Reports in files, whose suffix selects the format."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

from loadsim.errors import ConfigError
from loadsim.files import mode_at
from loadsim.report.document import Document

FORMATS = ("html", "md")
"""The formats of reports, which are also the suffixes of their files."""

REPORT_NAME = "report.html"
"""The report in a run directory."""

INCOMPLETE = ".incomplete"
"""The suffix of a report while it is being written."""


def check_place(option: str, path: Path) -> None:
    """Raise `ConfigError` for an unknown suffix, or if it is already clear that no file can be written there."""
    if _suffix(path) not in FORMATS:
        suffixes = " or ".join(f".{suffix}" for suffix in FORMATS)
        raise ConfigError(f"{option} {path}: expected a name that ends in {suffixes}")
    try:
        in_directory = S_ISDIR(mode_at(path.parent))
        found = "a directory" if S_ISDIR(mode_at(path)) else None if in_directory else "No such directory"
    except OSError as failure:  # for example, the name is too long
        found = failure.strerror
    if found:
        raise ConfigError(f"{option} {path}: expected a file to write, found: {found}")


def _suffix(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()


def write(document: Document, path: Path, option: str) -> None:
    """Write or replace a report. Raises `ConfigError` if that fails; the old report then stays."""
    if _suffix(path) == "html":
        from loadsim.report.html import to_html as rendered  # only once there is a report
    else:
        from loadsim.report.markdown import to_markdown as rendered
    report = rendered(document).encode()
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
