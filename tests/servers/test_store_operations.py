"""The stores of files make the calls of Dovecot: what is written, synced, renamed and removed, traced on both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from patience import PATIENCE_S

from loadsim.servers.dovecot_postfix import check_machine
from loadsim.servers.dovecot_postfix_config import DIALECTS

pytestmark = pytest.mark.nightly(part="tools")

USER = "nobody"
"""The user of Dovecot's processes, which refuse to be root."""

CALLS = "fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat"

CALL = re.compile(r"(fsync|fdatasync|rename\w*|unlink\w*)\((.*)\) += 0")

ROLES = (
    (r"lock|\.cache|uidlist\.tmp|dovecot\.list", None),
    (r"uidlist", "list"),
    (r"map\.index", "map"),
    (r"\.log", "index"),
    (r"tmp/|\.temp|/u\.|/m\.|(new|cur)/\w", "message"),
    (r"(new|cur)>|dbox-Mails>|storage>", "directory"),
)
"""The role of a file by its path; None for those that only Dovecot has."""

OURS = """
import sys
from loadsim.plugins import plugin
from loadsim.storage.messages import StoredMessages
from loadsim.storage.store import StoreSettings
from pathlib import Path
kind, place, operation = sys.argv[1:]
store = plugin("store", kind).load()(StoreSettings(Path(place), True, 1, 1 << 20, 1 << 20, 0))
make = StoredMessages(1, 50_000).make
if operation == "insert":
    for key in (1, 2, 3):
        store.insert(key, make(key, 0), durable=True)
elif operation == "flag":
    store.replace(2, None, durable=True)
elif operation == "expunge":
    store.delete(1, durable=True)
"""

DOVEADM = {"insert": ["save"], "flag": ["flags", "add", r"\Seen"], "expunge": ["expunge"]}


def operations(trace: Path, root: Path) -> list[tuple[str, str]]:
    """Return calls and roles of the files below a directory."""
    found = []
    for line in trace.read_text().splitlines():
        call = CALL.search(line)
        if call is None or str(root) not in line:
            continue
        name = "sync" if "sync" in call[1] else re.sub("at2?$", "", call[1])
        role = next((role for pattern, role in ROLES if re.search(pattern, call[2].replace(str(root), ""))), "?")
        if role is not None:
            found.append((name, role))
    return found


def traced(trace: Path, *command: str, **options: object) -> None:
    subprocess.run(
        ["strace", "-f", "-y", "-e", f"trace={CALLS}", "-o", str(trace), *command],
        check=True,
        timeout=PATIENCE_S,
        **options,  # type: ignore[call-overload]
    )


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others may enter, unlike those of pytest."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


@pytest.mark.parametrize("kind", ["maildir", "sdbox", "mdbox"])
def test_a_store_makes_the_calls_of_dovecot(kind: str, place: Path) -> None:
    """For the last of three insertions, a flag and an expunged message."""
    ours, theirs = place / "ours", place / "theirs"
    ours.mkdir()
    settings = place / "dovecot.conf"
    dialect = check_machine()[0]
    own_user = [] if dialect == DIALECTS[2, 3] else ["--no-userdb-lookup"]
    settings.write_text(
        f"{dialect.version}\nprotocols =\nbase_dir = {place}/run\nstate_dir = {place}/run\nlog_path = /dev/stderr\n"
        f"ssl = no\nmail_uid = {USER}\nmail_gid = nogroup\nfirst_valid_uid = 1\nmail_fsync = optimized\n"
        + dialect.mailboxes.format(theirs, format=kind)
    )
    for each in (theirs, place / "run"):
        each.mkdir()
        os.chown(each, 65534, 65534)
    message = b"From: a@example.org\r\nSubject: x\r\n\r\n" + b"text\r\n" * 8000
    for operation, words in DOVEADM.items():
        query = [] if operation == "insert" else ["mailbox", "INBOX", "uid", "2" if operation == "flag" else "1"]
        trace = place / f"trace-{operation}"
        for _ in range(3 if operation == "insert" else 1):
            traced(
                trace,
                *("doveadm", "-c", str(settings), *words, *own_user, *query),
                input=message,
                user=65534,
                group=65534,
                extra_groups=[],
                env={**os.environ, "USER": "user", "HOME": str(theirs)},
            )
        expected = operations(trace, theirs)
        traced(trace, sys.executable, "-c", OURS, kind, str(ours), operation)
        found = operations(trace, ours)
        assert found[-len(expected) :] == expected if expected else found == [], operation
