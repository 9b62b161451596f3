"""Everything in the mailboxes of any server, read by imaplib, which knows nothing of loadsim's names and drivers."""

import imaplib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from patience import PATIENCE_S
from provisioning import SERVERS_FLAGS

from loadsim.model.ports import CALENDAR, INBOX, Account, Services

MANIFESTS = "LoadSim"

_LISTED = re.compile(rb'\(([^)]*)\) (?:"([^"]*)"|NIL) (?:"([^"]*)"|(\S+))')
_FLAGS = re.compile(rb"FLAGS \(([^)]*)\)")
_UID = re.compile(rb"UID (\d+)")
_DATE = re.compile(rb'INTERNALDATE "([^"]*)"')
_ID = re.compile(rb"^X-LoadSim: [^\r]*\bid=([^;\s]+)", re.MULTILINE | re.IGNORECASE)
_NAMESPACE = re.compile(rb'\(\("([^"]*)"')


class Message(NamedTuple):
    """A message as imaplib reads it; `date` is the INTERNALDATE as the server writes it."""

    uid: int
    flags: frozenset[str]
    date: str
    content: bytes

    @property
    def id(self) -> str | None:
        """loadsim's id in the header; None if the message is someone else's."""
        found = _ID.search(self.content.partition(b"\r\n\r\n")[0])
        return found[1].decode() if found else None


Mailbox = dict[str, list[Message]]
"""By folder, with "/" between levels and without the prefix of the namespace."""


class Eye:
    """One account's imaplib session; `names` are folders of loadsim by the server's paths, where these differ."""

    def __init__(self, client: imaplib.IMAP4, names: Mapping[str, str]) -> None:
        self._client = client
        self._names = names
        self._prefix = b""
        if "NAMESPACE" in client.capabilities:
            found = _NAMESPACE.match(client.namespace()[1][0])
            assert found is not None
            self._prefix = found[1]
        self._separator = b"/"
        self._listed: dict[str, str] = {}

    def folders(self) -> dict[str, str]:
        """Return all folders that hold messages, with their names on the server."""
        found = {}
        for line in self._client.list()[1]:
            assert isinstance(line, bytes)
            listed = _LISTED.match(line)
            assert listed is not None, line
            self._separator = listed[2] or self._separator
            name = listed[3] if listed[3] is not None else listed[4]
            if b"\\noselect" in listed[1].lower() or b"\\nonexistent" in listed[1].lower():
                continue
            path = name.removeprefix(self._prefix).replace(self._separator, b"/").decode()
            found[INBOX if name.upper() == b"INBOX" else self._names.get(path, path)] = name.decode()
        return found

    def read(self) -> Mailbox:
        """Read all messages of all folders; reading changes nothing."""
        mailbox = {folder: self._messages(name) for folder, name in self.folders().items()}
        # GreenMail forgets no folder that a session leaves open, and then cannot delete it.
        self._examine(INBOX)
        return mailbox

    def _examine(self, name: str) -> int:
        status, found = self._client.select(f'"{name}"', readonly=True)
        assert status == "OK", found
        self._client.noop()  # James may answer FETCH from an older view otherwise
        return int(self._client.untagged_responses["EXISTS"][-1])

    def _messages(self, name: str) -> list[Message]:
        count = self._examine(name)
        if not count:
            return []
        status, answer = self._client.uid("FETCH", "1:*", "(UID FLAGS INTERNALDATE BODY.PEEK[])")
        assert status == "OK", answer
        messages = [_message(answer, at) for at, each in enumerate(answer) if isinstance(each, tuple)]
        assert len(messages) == count, name
        return messages

    def create(self, folder: str) -> None:
        levels = folder.encode().split(b"/")
        self.folders()  # for the separator
        for depth in range(1, len(levels) + 1):
            name = self._prefix + self._separator.join(levels[:depth])
            status, said = self._client.create(f'"{name.decode()}"')
            assert status == "OK", said

    def put(self, folder: str, message: bytes, flags: str, date: str) -> None:
        status, said = self._client.append(f'"{self.folders()[folder]}"', flags, f'"{date}"', message)
        assert status == "OK", said

    def remove(self, folder: str, uid: int) -> None:
        """Expunge a message, and what else has the flag `\\Deleted`, and close the folder."""
        assert self._client.select(f'"{self.folders()[folder]}"')[0] == "OK"
        assert self._client.uid("STORE", str(uid), "+FLAGS", r"(\Deleted)")[0] == "OK"
        assert self._client.close()[0] == "OK"


def _message(answer: list[Any], at: int) -> Message:
    """Return one message of imaplib's answer to FETCH: items stand before and behind the literal."""
    rest = answer[at + 1] if at + 1 < len(answer) and isinstance(answer[at + 1], bytes) else b""
    said = answer[at][0] + rest
    uid, flags, date = _UID.search(said), _FLAGS.search(said), _DATE.search(said)
    assert uid and flags and date, said
    named = frozenset(flags[1].decode().lower().split()) - SERVERS_FLAGS
    return Message(int(uid[1]), named, date[1].decode(), answer[at][1])


@contextmanager
def looking(services: Services, account: Account, names: Mapping[str, str]) -> Iterator[Eye]:
    """Log on by imaplib, without TLS, and log off."""
    with imaplib.IMAP4(services.imap.host, services.imap.port, timeout=PATIENCE_S) as client:
        client.login(account.login, account.password)
        yield Eye(client, names)


def ids_of(mailbox: Mailbox) -> dict[str, Counter[str]]:
    """Return how often each message id is in each folder, as `agreement.mailboxes_by_log` has it."""
    held = {
        folder: Counter(message.id or "(a message that loadsim did not make)" for message in messages)
        for folder, messages in mailbox.items()
        if folder not in (CALENDAR, MANIFESTS)
    }
    return {folder: ids for folder, ids in held.items() if ids}


def others(mailbox: Mailbox) -> Mailbox:
    """Return others' messages; folders without any are left out."""
    found = {
        folder: [message for message in messages if message.id is None]
        for folder, messages in mailbox.items()
        if folder != MANIFESTS
    }
    return {folder: messages for folder, messages in found.items() if messages}


def contents(mailbox: Mailbox) -> dict[str, list[tuple[str | None, frozenset[str], str, bytes]]]:
    """Return what a start state determines: messages in their order, with flags and dates, without UIDs."""
    return {
        folder: [(each.id, each.flags, each.date, each.content) for each in messages]
        for folder, messages in mailbox.items()
        if folder != MANIFESTS
    }
