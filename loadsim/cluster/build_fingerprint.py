"""Which software this is: its version, and a digest of what it was made of, for checkouts of one version differ."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from loadsim.version import __version__

_PACKAGE = Path(__file__).parent.parent

_DATA = "model/content/data/*"
"""What stands in messages, beside what is written by code."""


def build_fingerprint(package: Path = _PACKAGE) -> str:
    """`loadsim VERSION (sources DIGEST)`, of the files that lie there now: those that a new process would run."""
    return f"loadsim {__version__} (sources {sources_digest(package)[:12]})"


def sources_digest(package: Path) -> str:
    """SHA-256 over the names and contents of a package's sources and data; in hexadecimal."""
    digest = sha256()
    for path in sorted((*package.rglob("*.py"), *package.glob(_DATA))):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()
