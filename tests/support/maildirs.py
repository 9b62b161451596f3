"""Messages of loadsim in the Maildirs of a private Dovecot, read as files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOMAIN = "loadsim.test"
TAG = re.compile(rb"^X-LoadSim: run=([^;]+); from=(\d+); id=([^;]+); kind=([^;]+);", re.M)


@dataclass(frozen=True)
class Stored:
    """A message in a Maildir++: its file, whose it is, its folder, and what its tag states."""

    path: Path
    user: int
    folder: str
    run: str
    sender: int
    id: str
    kind: str

    @property
    def message_id(self) -> str:
        return f"<{self.id}.{self.run}@{DOMAIN}>"


def stored(mail: Path) -> Iterator[Stored]:
    """All messages of all users that have a tag, without the calendars and the manifests."""
    for path in sorted(mail.glob("user*/Maildir/**/cur/*")):
        folder = path.parent.parent.name
        name = "INBOX" if folder == "Maildir" else folder.removeprefix(".")
        tag = TAG.search(path.read_bytes().partition(b"\n\n")[0].replace(b"\n ", b" ").replace(b"\r", b""))
        if tag and name not in ("Calendar", "LoadSim"):
            run, sender, message, kind = (part.decode() for part in tag.groups())
            user = int(path.relative_to(mail).parts[0].removeprefix("user"))
            yield Stored(path, user, name, run, int(sender), message, kind)
