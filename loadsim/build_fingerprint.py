"""A fingerprint of the software: its version, and a digest of its sources, as checkouts of one version may differ."""

from __future__ import annotations

from pathlib import Path

from loadsim.files import sources_digest
from loadsim.version import __version__

_PACKAGE = Path(__file__).parent


def build_fingerprint(package: Path = _PACKAGE) -> str:
    """Return `loadsim VERSION (sources DIGEST)` for the files on disk, which a new process would run."""
    return f"loadsim {__version__} (sources {sources_digest(package)[:12]})"
