"""A mailbox's faults: its contents compared with what is expected, as far as that is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loadsim.audit.expected import Expected, ExpectedMail
from loadsim.findings.catalogue import Code
from loadsim.model.message_tag import INITIAL
from loadsim.model.ports import CALENDAR, INBOX, SENT_ITEMS, USER_FLAGS, Flag

DELETED = "\\deleted"
"""The flag that marks a copy for deletion. The copy counts as gone, but is a fault where it should be removed."""


class HeldCopy(NamedTuple):
    """A copy in a folder of a message of this run or of the start state.

    `flags` are in lower case, as are `never_kept`, those that some folder of the mailbox does not store. `fault` is the
    fault in its body.
    """

    message: str
    folder: str
    flags: frozenset[str]
    sender: int
    never_kept: frozenset[str] = frozenset()
    fault: Code | None = None


class Fault(NamedTuple):
    """A message that is not as it should be. `folder` is where it is or, if it is lost, should be.

    `wanted` is the proper folder of a misfiled message, or the flag that is lost, or that no user has set. `sender` is
    set for an unexpected message, which may belong to another mailbox. A message `under_way` may still arrive, since
    its user has never seen it: the mailbox is read again (`Auditor.read_all`).
    """

    code: Code
    message: str
    folder: str
    wanted: str = ""
    sender: int = 0
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """A mailbox's faults and number of messages; the records do not tell where `unknown` ones belong.

    `complete` is true if its user's records are.
    """

    messages: int
    faults: tuple[Fault, ...] = ()
    unknown: int = 0
    complete: bool = True


def judge(expected: ExpectedMail, found: Sequence[HeldCopy], complete: bool = True) -> Judged:
    """Compare the copies found in a mailbox with those expected.

    Only the bodies are judged if the records of its user are not `complete`.
    """
    marked = [copy for copy in found if DELETED in copy.flags]
    found = [copy for copy in found if DELETED not in copy.flags]
    by_message: dict[str, list[HeldCopy]] = {}
    for copy in found:
        if expected.knows_start or not copy.message.startswith(INITIAL):
            by_message.setdefault(copy.message, []).append(copy)
    altered = [Fault(copy.fault, copy.message, copy.folder) for copy in found if copy.fault]
    faults, unknown = _of_schedules(expected, found)
    faults += _not_removed(expected, marked)
    for message in dict.fromkeys([*expected.messages, *by_message]):
        of, there = expected.messages.get(message) or Expected(strange=True), by_message.get(message, [])
        if message in expected.schedules:
            of.copies = [(folder, flags) for folder, flags in of.copies if folder != CALENDAR]
            there = [copy for copy in there if copy.folder != CALENDAR]
        if not of.places and (of.strange or all(folder != SENT_ITEMS for folder, _ in of.copies)):
            there = _not_saved_itself(expected.user, there)
        if of.strange and not of.places:
            if expected.knows_start or not message.startswith(INITIAL):
                faults += _strange(message, of, there)
            continue
        wanted, have = Counter(folder for folder, _ in of.copies), Counter(copy.folder for copy in there)
        if of.places:
            possible = _possible(expected.user, of, wanted, have)
            unknown += possible == have != wanted
            wanted, of.surplus = possible, 0
        faults += _misplaced(message, of, wanted, have)
        if not (of.places or of.surplus):  # otherwise it is unknown which copy has which flags
            faults += _unflagged(message, of, there)
    if not complete:
        return Judged(len(found), tuple(altered), 0, complete=False)
    return Judged(len(found), (*altered, *faults), unknown)


def _not_removed(expected: ExpectedMail, marked: Iterable[HeldCopy]) -> Iterator[Fault]:
    """Yield copies marked for deletion in folders where, by the records, none can be left."""
    for copy in marked:
        of = expected.messages.get(copy.message)
        doubtful = of is None or of.strange or of.places or copy.message in expected.schedules
        if of and not doubtful and all(folder != copy.folder for folder, _ in of.copies):
            yield Fault(Code.MAIL_UNEXPECTED, copy.message, copy.folder)


def _of_schedules(expected: ExpectedMail, found: Sequence[HeldCopy]) -> tuple[list[Fault], int]:
    """Return the fault of a calendar that has none of the schedules it may have, and the number of unknown messages.

    If a change failed or was only partly made, a calendar has the old schedule, the new one, or both.
    """
    old = expected.in_calendar if expected.schedules else []
    there = [copy.message for copy in found if copy.folder == CALENDAR and copy.message in expected.schedules]
    if old and not there:
        return [Fault(Code.MAIL_LOST, old[-1], CALENDAR)], 0
    return [], int(there != old and bool(expected.schedules))


def _possible(user: int, of: Expected, wanted: Counter[str], have: Counter[str]) -> Counter[str]:
    """Return, by folder, the copies that a message may have that are closest to the actual ones.

    The server may have saved one more if this user sent the message.
    """
    able = of.places.union(wanted, [SENT_ITEMS] if of.sender == user else [])
    possible = Counter({folder: copies for folder, copies in have.items() if folder in able})
    missing = [*(wanted - possible).elements()]
    possible.update(missing[: max(0, wanted.total() - of.surplus - possible.total())])
    return possible


def _not_saved_itself(user: int, there: list[HeldCopy]) -> list[HeldCopy]:
    """Return the copies except one in Sent Items: a server may save sent mail on its own, which is no fault."""
    own = (index for index, copy in enumerate(there) if copy.folder == SENT_ITEMS and copy.sender == user)
    saved = next(own, len(there))
    return there[:saved] + there[saved + 1 :]


def _strange(message: str, of: Expected, there: Sequence[HeldCopy]) -> Iterator[Fault]:
    """Yield each copy of a message that does not belong in this mailbox, or one if its user has removed all."""
    for copy in there:
        yield Fault(Code.MAIL_UNEXPECTED, message, copy.folder, sender=copy.sender)
    if of.arrived and not there:
        yield Fault(Code.MAIL_UNEXPECTED, message, INBOX, sender=of.sender)


def _misplaced(message: str, of: Expected, wanted: Counter[str], have: Counter[str]) -> Iterator[Fault]:
    missing, extra = [*(wanted - have).elements()], [*(have - wanted).elements()]
    missing.sort(key=SENT_ITEMS.__eq__)  # a copy elsewhere was more likely not moved than not saved
    both = min(len(missing), len(extra))
    for folder, place in zip(extra, missing, strict=False):
        yield Fault(Code.MAIL_MISFILED, message, folder, place)
    filed = of.filed[: min(of.surplus, len(missing) - both)]
    for folder, place in zip(filed, missing[both:], strict=False):
        yield Fault(Code.MAIL_MISFILED, message, folder, place)
    for folder in missing[both + of.surplus :]:  # a surplus copy may be gone again
        yield Fault(Code.MAIL_LOST, message, folder, under_way=folder == INBOX and not of.arrived)
    for _ in range(of.surplus - len(filed)):
        yield Fault(Code.MAIL_DUPLICATED, message, next(iter(have), INBOX))
    for folder in extra[both:]:
        again = not of.copies or folder in of.expunged
        yield Fault(Code.MAIL_UNEXPECTED if again else Code.MAIL_DUPLICATED, message, folder)


def _unflagged(message: str, of: Expected, there: Sequence[HeldCopy]) -> Iterator[Fault]:
    for folder in dict.fromkeys(folder for folder, _ in of.copies):
        needed = [flags for place, flags in of.copies if place == folder]
        copies = [copy for copy in there if copy.folder == folder]
        present = [copy.flags | copy.never_kept for copy in copies]
        for flag in Flag:
            kept = sum(flag.lower() in flags for flags in present) + max(0, len(needed) - len(present))
            for _ in range(sum(flag in flags for flags in needed) - kept):
                yield Fault(Code.FLAG_LOST, message, folder, flag)
        for copy in copies:
            for name in USER_FLAGS:
                if name.lower() in copy.flags - copy.never_kept and name not in of.given:
                    yield Fault(Code.FLAG_UNEXPECTED, message, folder, name)
