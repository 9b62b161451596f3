"""Fingerprint of the software: its version, and a digest of its sources, as checkouts of one version differ."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from loadsim.version import __version__

_PACKAGE = Path(__file__).parent.parent

_DATA = "model/content/data/*"
"""The data files from which message contents are made."""


def build_fingerprint(package: Path = _PACKAGE) -> str:
    """Return `loadsim VERSION (sources DIGEST)` of the files on disk: those that a new process would run."""
    return f"loadsim {__version__} (sources {sources_digest(package)[:12]})"


def sources_digest(package: Path) -> str:
    """Return the SHA-256 of the names and contents of a package's sources and data, in hexadecimal."""
    digest = sha256()
    for path in sorted((*package.rglob("*.py"), *package.glob(_DATA))):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()
