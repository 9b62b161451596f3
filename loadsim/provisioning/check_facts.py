"""Facts of a server that a check sees besides faults: offers, limits, and the form of its answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from loadsim.model.ports import RESET_FLAGS, Stored
from loadsim.provisioning.check_folders import CheckPlace
from loadsim.provisioning.check_mail import Check
from loadsim.provisioning.server_report import ServerFacts

_NOT_OF_SERVER = {"\\recent", *map(str.lower, RESET_FLAGS)}


def place_of_copyuid(lines: Iterable[bytes | int]) -> str:
    """Return the place of COPYUID in the answer to the last MOVE of kept lines; "" without one."""
    text = b"\0".join(b"" if isinstance(each, int) else each for each in lines).upper()
    moves = [command for command in text.split(b"\0\0") if b" UID MOVE " in command]
    if not moves:
        return ""
    before, found, _ = moves[-1].partition(b"[COPYUID ")
    if not before.endswith(b"* OK "):
        return "tagged" if found else "none"
    return f"untagged, {'after' if b' EXPUNGE' in before else 'before'} EXPUNGE"


def keywords_of(check: Check, stored: Iterable[Stored]) -> tuple[str, ...] | None:
    """Return the keywords that the server has set on messages of the check; None if there are none of these."""
    own = [each for each in stored if each.tag is not None and each.tag.run == check.post.run_id]
    return None if not own else tuple(sorted({flag for each in own for flag in each.flags} - _NOT_OF_SERVER))


def facts_of(check: Check) -> ServerFacts:
    """Return a check's facts with what the server offers, and its limits."""
    place: CheckPlace | None = next(iter(check.places), None)
    offer = place.offer if place is not None else None
    return replace(
        check.facts,
        imap_capabilities=tuple(sorted(offer.features)) if offer else (),
        smtp_extensions=tuple(sorted(check.smtp.features)) if check.smtp else (),
        permanent_flags=check.facts.permanent_flags or (offer.permanent_flags if offer else ""),
        missing_folder=place.missing_folder if place is not None else "",
        append_limit_bytes=offer.limit("APPENDLIMIT") if offer else None,
        message_limit_bytes=check.smtp.limit("SIZE") if check.smtp else None,
    )
