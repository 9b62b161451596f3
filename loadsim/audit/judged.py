"""The faults of a mailbox: what it holds against what it must hold, and what cannot be known."""

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
"""The flag of a copy that is marked for deletion: it counts as gone, until it must be removed."""


class HeldCopy(NamedTuple):
    """A message of this run or of the start state in a folder.

    `flags` are in lower case, as `never_kept`, those that a folder of the mailbox keeps for no message. `fault` is that
    of its body.
    """

    message: str
    folder: str
    flags: frozenset[str]
    sender: int
    never_kept: frozenset[str] = frozenset()
    fault: Code | None = None


class Fault(NamedTuple):
    """A message that is not as it must be. `folder` is where it is, or where it must be if it is lost.

    `wanted` is the folder of a misfiled message, or the flag that is lost, or set by no user. `sender` is that of an
    unexpected message, which may belong to another mailbox. `under_way`: its user has never seen it, and it may still
    arrive.
    """

    code: Code
    message: str
    folder: str
    wanted: str = ""
    sender: int = 0
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """The faults of a mailbox of `messages`; `unknown` ones may be where they are, but the records do not say so.

    `complete`: the records of its user are.
    """

    messages: int
    faults: tuple[Fault, ...] = ()
    unknown: int = 0
    complete: bool = True


def judge(expected: ExpectedMail, found: Sequence[HeldCopy], complete: bool = True) -> Judged:
    """Compare a mailbox with what it must hold.

    If the records of its user are not `complete`, only the bodies are judged.
    """
    marked = [each for each in found if DELETED in each.flags]
    found = [each for each in found if DELETED not in each.flags]
    by_message: dict[str, list[HeldCopy]] = {}
    for each in found:
        if expected.knows_start or not each.message.startswith(INITIAL):
            by_message.setdefault(each.message, []).append(each)
    altered = [Fault(each.fault, each.message, each.folder) for each in found if each.fault]
    faults, unknown = _of_schedules(expected, found)
    faults += _not_removed(expected, marked)
    for message in dict.fromkeys([*expected.messages, *by_message]):
        of, there = expected.messages.get(message) or Expected(strange=True), by_message.get(message, [])
        if message in expected.schedules:
            of.copies = [copy for copy in of.copies if copy[0] != CALENDAR]
            there = [each for each in there if each.folder != CALENDAR]
        if not of.places and (of.strange or all(folder != SENT_ITEMS for folder, _ in of.copies)):
            there = _not_saved_itself(expected.user, there)
        if of.strange and not of.places:
            if expected.knows_start or not message.startswith(INITIAL):
                faults += _strange(message, of, there)
            continue
        wanted, have = Counter(folder for folder, _ in of.copies), Counter(each.folder for each in there)
        if of.places:
            possible = _possible(expected.user, of, wanted, have)
            unknown += possible == have != wanted
            wanted, of.surplus = possible, 0
        faults += _misplaced(message, of, wanted, have)
        if not (of.places or of.surplus):  # else it is unknown which copy has which flag
            faults += _unflagged(message, of, there)
    if not complete:
        return Judged(len(found), tuple(altered), 0, complete=False)
    return Judged(len(found), (*altered, *faults), unknown)


def _not_removed(expected: ExpectedMail, marked: Iterable[HeldCopy]) -> Iterator[Fault]:
    """Yield copies that are marked for deletion where the records, without a doubt, have none left."""
    for each in marked:
        of = expected.messages.get(each.message)
        doubtful = of is None or of.strange or of.places or each.message in expected.schedules
        if of and not doubtful and all(folder != each.folder for folder, _ in of.copies):
            yield Fault(Code.MAIL_UNEXPECTED, each.message, each.folder)


def _of_schedules(expected: ExpectedMail, found: Sequence[HeldCopy]) -> tuple[list[Fault], int]:
    """Return the fault of a calendar without any of its possible schedules, and how many are unknown.

    A calendar that a change has not reached, or only in part, has the old schedule, the new one, or both.
    """
    old = expected.in_calendar if expected.schedules else []
    there = [each.message for each in found if each.folder == CALENDAR and each.message in expected.schedules]
    if old and not there:
        return [Fault(Code.MAIL_LOST, old[-1], CALENDAR)], 0
    return [], int(there != old and bool(expected.schedules))


def _possible(user: int, of: Expected, wanted: Counter[str], have: Counter[str]) -> Counter[str]:
    """Return the copies by folder that a message may have, closest to those that it has.

    The server may also have saved it, if its user has sent it.
    """
    able = of.places.union(wanted, [SENT_ITEMS] if of.sender == user else [])
    possible = Counter({folder: copies for folder, copies in have.items() if folder in able})
    missing = [*(wanted - possible).elements()]
    possible.update(missing[: max(0, wanted.total() - of.surplus - possible.total())])
    return possible


def _not_saved_itself(user: int, there: list[HeldCopy]) -> list[HeldCopy]:
    """Return the copies without one that the server may have saved of sent mail by itself, which is no fault."""
    saved = next((at for at, each in enumerate(there) if each.folder == SENT_ITEMS and each.sender == user), len(there))
    return there[:saved] + there[saved + 1 :]


def _strange(message: str, of: Expected, there: Sequence[HeldCopy]) -> Iterator[Fault]:
    """Yield each copy of a message without place in this mailbox; if its user has removed all of them, one."""
    for each in there:
        yield Fault(Code.MAIL_UNEXPECTED, message, each.folder, sender=each.sender)
    if of.arrived and not there:
        yield Fault(Code.MAIL_UNEXPECTED, message, INBOX, sender=of.sender)


def _misplaced(message: str, of: Expected, wanted: Counter[str], have: Counter[str]) -> Iterator[Fault]:
    missing, extra = [*(wanted - have).elements()], [*(have - wanted).elements()]
    missing.sort(key=SENT_ITEMS.__eq__)  # what is elsewhere was rather not moved than not saved
    both = min(len(missing), len(extra))
    for folder, place in zip(extra, missing, strict=False):
        yield Fault(Code.MAIL_MISFILED, message, folder, place)
    filed = of.filed[: min(of.surplus, len(missing) - both)]
    for folder, place in zip(filed, missing[both:], strict=False):
        yield Fault(Code.MAIL_MISFILED, message, folder, place)
    for folder in missing[both + of.surplus :]:  # a copy too many may be gone again
        yield Fault(Code.MAIL_LOST, message, folder, under_way=folder == INBOX and not of.arrived)
    for _ in range(of.surplus - len(filed)):
        yield Fault(Code.MAIL_DUPLICATED, message, next(iter(have), INBOX))
    for folder in extra[both:]:
        again = not of.copies or folder in of.expunged
        yield Fault(Code.MAIL_UNEXPECTED if again else Code.MAIL_DUPLICATED, message, folder)


def _unflagged(message: str, of: Expected, there: Sequence[HeldCopy]) -> Iterator[Fault]:
    for folder in dict.fromkeys(folder for folder, _ in of.copies):
        needed = [flags for at, flags in of.copies if at == folder]
        copies = [each for each in there if each.folder == folder]
        present = [each.flags | each.never_kept for each in copies]
        for flag in Flag:
            kept = sum(flag.lower() in flags for flags in present) + max(0, len(needed) - len(present))
            for _ in range(sum(flag in flags for flags in needed) - kept):
                yield Fault(Code.FLAG_LOST, message, folder, flag)
        for each in copies:
            for name in USER_FLAGS:
                if name.lower() in each.flags - each.never_kept and name not in of.given:
                    yield Fault(Code.FLAG_UNEXPECTED, message, folder, name)
