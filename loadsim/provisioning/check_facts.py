"""Facts of a server that a check sees besides faults: offers, limits, and the form of its answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from loadsim.model.ports import RESET_FLAGS, Stored
from loadsim.provisioning.check_folders import CheckPlace
from loadsim.provisioning.check_mail import Check
from loadsim.provisioning.check_tasks import CheckObserver
from loadsim.provisioning.server_report import Observation, ServerFacts

_NOT_OF_SERVER = {"\\recent", *map(str.lower, RESET_FLAGS)}


class MoveLines:
    """Finds the place of COPYUID in the answer to the last MOVE; implements `ports.KeptLines`."""

    def __init__(self) -> None:
        self.copyuid = ""
        self._is_sent = self._is_move = self._is_expunged = False

    def append(self, line: bytes | int, /) -> None:
        if isinstance(line, int):
            self._is_sent = True
        elif self._is_sent:
            self._is_sent, self._is_expunged, self._is_move = False, False, b" UID MOVE " in line
            self.copyuid = "none" if self._is_move else self.copyuid
        elif self._is_move and b"[COPYUID " in line.upper():
            untagged = f"untagged, {'after' if self._is_expunged else 'before'} EXPUNGE"
            self.copyuid, self._is_move = untagged if line.startswith(b"*") else "tagged", False
        elif line.upper().endswith(b" EXPUNGE"):
            self._is_expunged = True

    def __iter__(self) -> Iterator[bytes | int]:
        return iter(())


class MovingObserver(CheckObserver):
    """An observer of a session that moves messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: MoveLines = MoveLines()


class WatchingObserver(CheckObserver):
    """An observer of a session that watches; it has the time of the first announcement since `begin`."""

    announced_s: float | None = None

    def begin(self) -> None:
        self.news.clear()
        self.announced_s = None

    def arrived(self, messages: int) -> None:
        self.announced_s = self.announced_s or time.monotonic()
        super().arrived(messages)


def keywords_of(check: Check, stored: Sequence[Stored]) -> tuple[str, ...] | None:
    """Return the keywords that the server has set on messages of the check; None if there are none of these."""
    own = [each for each in stored if each.tag is not None and each.tag.run == check.host.run_id]
    return None if not own else tuple(sorted({flag for each in own for flag in each.flags} - _NOT_OF_SERVER))


def with_offers(check: Check, facts: ServerFacts, seen: Sequence[Observation]) -> ServerFacts:
    """Return facts with what the server offers, its limits, and the words of its refusals among these observations."""
    place: CheckPlace | None = next(iter(check.places), None)
    offer = place.offer if place is not None else None
    answers = (each.seen for each in seen if each.finding is not None and "answer" in each.finding.code.fields)
    return replace(
        facts,
        imap_capabilities=tuple(sorted(offer.features)) if offer else (),
        smtp_extensions=tuple(sorted(check.smtp.features)) if check.smtp else (),
        permanent_flags=facts.permanent_flags or (offer.permanent_flags if offer else ""),
        missing_folder=place.missing_folder if place is not None else "",
        append_limit_bytes=offer.limit("APPENDLIMIT") if offer else None,
        message_limit_bytes=check.smtp.limit("SIZE") if check.smtp else None,
        quotas=tuple(place.quotas) if place is not None else (),
        refusals=tuple(dict.fromkeys(answers)),
    )
