"""Messages and folders in the answers to a mailbox's commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from loadsim.model.provisioning_ports import FolderStatus
from loadsim.protocols.imap.grammar import number_of, numbers_of
from loadsim.protocols.imap.header_lists import Ref
from loadsim.protocols.imap.responses import Expunged, Fetched, Unknown
from loadsim.protocols.imap.under_way import Answer


def expunged_in(answers: Iterable[Answer]) -> int:
    """Return the number of messages that these answers report as removed (RFC 9051 section 7.5.1)."""
    return sum(isinstance(response, Expunged) for answer in answers for response in answer.data)


def sent_instead(answers: Iterable[Answer]) -> str:
    """Return a clause with the first unknown response, sent instead of a command's data; "" if there is none."""
    unknown = (response.name for answer in answers for response in answer.data if isinstance(response, Unknown))
    return next((f"; the server sent * {name}" for name in unknown), "")


def fetched_in(answers: Iterable[Answer]) -> Iterator[Fetched]:
    return (response for answer in answers for response in answer.data if isinstance(response, Fetched))


def status_of(items: Mapping[str, int]) -> FolderStatus | None:
    """Return a folder's status; None if the server omitted a number."""
    numbers = [items.get(name, 0) for name in ("UIDVALIDITY", "UIDNEXT")]
    if not all(numbers) or not {"MESSAGES", "UNSEEN"} <= items.keys():
        return None
    return FolderStatus(numbers[0], numbers[1], items["MESSAGES"], items["UNSEEN"], items.get("HIGHESTMODSEQ") or None)


def references_of(folder: str, answer: Answer, messages: int) -> Sequence[Ref | None]:
    """Return the references from APPENDUID (RFC 4315 section 3); None for each unless it names them all."""
    code = answer.tagged.code
    if code is not None and code.name == "APPENDUID":
        validity, _, uids = code.arguments.partition(" ")
        numbers = numbers_of(uids)
        if numbers.size == messages:
            return [Ref(folder, number_of(validity), uid) for uid in numbers]
    return [None] * messages
