"""Filters and sorts of Email/query and Mailbox/query (RFC 8621 sections 2.3 and 4.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from .messages import header_value, text_of
from .store import Account, Email, Mailbox, Refused

FIELDS = ("from", "to", "cc", "bcc", "subject")


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def has_words(text: str, wanted: str) -> bool:
    """Return if all tokens and quoted phrases of `wanted` are in the text, in any case."""
    phrases = re.findall(r'"([^"]*)"|\'([^\']*)\'|(\S+)', wanted)
    return all("".join(phrase).casefold() in text.casefold() for phrase in phrases)


def header(email: Email, name: str) -> str:
    values = header_value(email.message.root, f"header:{name}:all")
    return "\n".join(text_of(each) for each in values)


CONDITIONS: dict[str, Callable[[Email, Any], bool]] = {
    "inMailbox": lambda email, place: place in email.mailbox_ids,
    "inMailboxOtherThan": lambda email, ids: bool(email.mailbox_ids - set(ids)),
    "before": lambda email, date: instant(email.received_at) < instant(date),
    "after": lambda email, date: instant(email.received_at) >= instant(date),
    "minSize": lambda email, size: len(email.message.raw) >= size,
    "maxSize": lambda email, size: len(email.message.raw) < size,
    "hasKeyword": lambda email, keyword: keyword.lower() in email.keywords,
    "notKeyword": lambda email, keyword: keyword.lower() not in email.keywords,
    "hasAttachment": lambda email, wanted: bool(email.message.bodies["attachments"]) == wanted,
    "body": lambda email, text: has_words(email.message.text, text),
    "text": lambda email, text: has_words("\n".join([email.message.text, *(header(email, n) for n in FIELDS)]), text),
    "header": lambda email, pair: (
        bool(header_value(email.message.root, f"header:{pair[0]}:all"))
        and has_words(header(email, pair[0]), "".join(pair[1:]))
    ),
}
CONDITIONS |= {name: lambda email, text, name=name: has_words(header(email, name), text) for name in FIELDS}

MAILBOX_CONDITIONS: dict[str, Callable[[Mailbox, Any], bool]] = {
    "parentId": lambda mailbox, parent: mailbox.parentId == parent,
    "name": lambda mailbox, name: name.casefold() in mailbox.name.casefold(),
    "role": lambda mailbox, role: mailbox.role == role,
    "hasAnyRole": lambda mailbox, wanted: (mailbox.role is not None) == wanted,
    "isSubscribed": lambda mailbox, wanted: mailbox.isSubscribed == wanted,
}
SORTS: dict[str, Callable[[Email], Any]] = {
    "receivedAt": lambda email: instant(email.received_at),
    "size": lambda email: len(email.message.raw),
    "subject": lambda email: re.sub(r"(?i)^((re|fwd?):\s*)+", "", header(email, "subject")).casefold(),
    "sentAt": lambda email: header_value(email.message.root, "sentAt") or "",
}
MAILBOX_SORTS: dict[str, Callable[[Mailbox], Any]] = {
    "sortOrder": lambda mailbox: mailbox.sortOrder,
    "name": lambda mailbox: mailbox.name.casefold(),
}


def matches(item: Any, condition: Any, conditions: Mapping[str, Callable[[Any, Any], bool]]) -> bool:
    if condition is None:
        return True
    if "operator" in condition:
        results = [matches(item, each, conditions) for each in condition["conditions"]]
        return {"AND": all(results), "OR": any(results), "NOT": not any(results)}[condition["operator"]]
    return all(conditions[name](item, value) for name, value in condition.items())


def ordered(items: list[Any], condition: Any, sort: Any, conditions: Any, sorts: Any) -> list[str]:
    names = [each.get("property") if isinstance(each, dict) else None for each in sort]
    if not set(names) <= set(sorts):
        raise Refused("unsupportedSort")
    try:
        found = [item for item in items if matches(item, condition, conditions)]
    except KeyError as error:
        raise Refused("unsupportedFilter", description=str(error)) from error
    except (TypeError, AttributeError, ValueError) as error:
        raise Refused("invalidArguments", description="filter") from error
    for name, comparator in reversed(list(zip(names, sort, strict=True))):
        found.sort(key=sorts[name], reverse=comparator.get("isAscending") is False)
    return [item.id for item in found]


def email_ids(account: Account, condition: Any, sort: Any) -> list[str]:
    return ordered(list(account.emails.values()), condition, sort, CONDITIONS, SORTS)


def mailbox_ids(account: Account, condition: Any, sort: Any) -> list[str]:
    return ordered(list(account.mailboxes.values()), condition, sort, MAILBOX_CONDITIONS, MAILBOX_SORTS)
