"""Facts of a server that a check sees besides faults: offers, limits, and the form of its answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from loadsim.model.ports import RESET_FLAGS, Stored
from loadsim.protocols.lines import MoveLines
from loadsim.provisioning.check_folders import CheckPlace
from loadsim.provisioning.check_mail import Check
from loadsim.provisioning.check_tasks import CheckObserver
from loadsim.provisioning.server_report import Observation, ServerFacts

_NOT_OF_SERVER = {"\\recent", *map(str.lower, RESET_FLAGS)}


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


def keywords_of(check: Check, stored: Iterable[Stored]) -> tuple[str, ...] | None:
    """Return the keywords that the server has set on messages of the check; None if there are none of these."""
    own = [each for each in stored if each.tag is not None and each.tag.run == check.host.run_id]
    return None if not own else tuple(sorted({flag for each in own for flag in each.flags} - _NOT_OF_SERVER))


def facts_of(check: Check, seen: Sequence[Observation]) -> ServerFacts:
    """Return a check's facts with what the server offers, its limits, and the words of refusals in observations."""
    place: CheckPlace | None = next(iter(check.places), None)
    offer = place.offer if place is not None else None
    answers = (each.seen for each in seen if each.finding is not None and "answer" in each.finding.code.fields)
    return replace(
        check.facts,
        imap_capabilities=tuple(sorted(offer.features)) if offer else (),
        smtp_extensions=tuple(sorted(check.smtp.features)) if check.smtp else (),
        permanent_flags=check.facts.permanent_flags or (offer.permanent_flags if offer else ""),
        missing_folder=place.missing_folder if place is not None else "",
        append_limit_bytes=offer.limit("APPENDLIMIT") if offer else None,
        message_limit_bytes=check.smtp.limit("SIZE") if check.smtp else None,
        quotas=tuple(place.quotas) if place is not None else (),
        refusals=tuple(dict.fromkeys(answers)),
    )
