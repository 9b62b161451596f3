"""The methods that read: get, changes and query (RFC 8620 sections 5.1, 5.2 and 5.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .calls import CHANGES, GET, QUERY, SUBMIT, Answers, Args, Call, method, pick
from .messages import HEADERS, PART, header_value
from .store import COUNTS, CREATED, DESTROYED, EMAIL, IDENTITY, MAILBOX, UPDATED, Account, Email, Mailbox, Refused

EMAIL_PROPERTIES = ["id", "blobId", "threadId", "mailboxIds", "keywords", "size", "receivedAt", *HEADERS]
EMAIL_PROPERTIES += ["bodyValues", "textBody", "attachments"]
SEARCHED = ("from", "to", "cc", "subject")
View = Callable[[Any, Sequence[str]], Args]


def get(call: Call, kind: str, objects: Mapping[str, Any], known: Sequence[str], view: View = pick) -> Answers:
    ids = list(objects) if call.args.get("ids") is None else list(dict.fromkeys(call.args["ids"]))
    if len(ids) > call.site.limits.maxObjectsInGet:
        raise Refused("requestTooLarge")
    wanted = call.args.get("properties")
    properties = list(dict.fromkeys(["id", *(known if wanted is None else wanted)]))
    hidden = ids[:1] if kind == EMAIL and call.site.switches.listed_not_found else []
    found = [each for each in ids if each in objects and each not in hidden]
    try:
        shown = [
            view(objects[each], properties) for each in (sorted(found) if call.site.switches.other_order else found)
        ]
    except KeyError as error:
        raise Refused("invalidArguments", description=f"unknown property {error}") from error
    missing = [each for each in ids if each not in found]
    state = call.account.logs[kind].state
    return [(f"{kind}/get", {"accountId": call.account.id, "state": state, "list": shown, "notFound": missing})]


@method("Mailbox/get", *GET)
def mailbox_get(call: Call) -> Answers:
    def view(mailbox: Mailbox, properties: Sequence[str]) -> Args:
        return pick(asdict(mailbox) | call.account.counts(mailbox), properties)

    return get(call, MAILBOX, call.account.mailboxes, [*Mailbox.__slots__, *COUNTS], view)


@method("Identity/get", *GET, capability=SUBMIT)
def identity_get(call: Call) -> Answers:
    return get(call, IDENTITY, identities(call.account), list(identities(call.account)["i1"]))


def identities(account: Account) -> dict[str, Args]:
    texts = {"replyTo": None, "bcc": None, "textSignature": "", "htmlSignature": "", "mayDelete": False}
    email = "" if account.site.switches.identity_without_address else account.user.address
    return {"i1": {"id": "i1", "name": account.user.name, "email": email, **texts}}


@method("Email/get", *GET, "bodyProperties", "fetchTextBodyValues")
def email_get(call: Call) -> Answers:
    def view(email: Email, properties: Sequence[str]) -> Args:
        return {name: email_property(email, name, call.args) for name in properties}

    return get(call, EMAIL, call.account.emails, EMAIL_PROPERTIES, view)


def email_property(email: Email, name: str, args: Args) -> Any:
    message = email.message
    match name:
        case "id" | "blobId" | "threadId" | "receivedAt":
            ids = {"id": email.id, "blobId": message.blob_id, "threadId": f"t{email.id}"}
            return ids.get(name, email.received_at)
        case "size":
            return len(message.raw)
        case "mailboxIds" | "keywords":
            return dict.fromkeys(sorted(email.mailbox_ids if name == "mailboxIds" else email.keywords), True)
        case "textBody" | "attachments":
            return [message.describe(part, args.get("bodyProperties") or [*PART]) for part in message.bodies[name]]
        case "bodyValues":
            texts = message.bodies["textBody"] if args.get("fetchTextBodyValues") else []
            return {message.part_id(part): message.value(part) for part in texts}
    return header_value(message.root, name)


@method("Email/changes", *CHANGES)
def email_changes(call: Call) -> Answers:
    most = call.args.get("maxChanges")
    if most is not None and most < 1:
        raise Refused("invalidArguments", description="maxChanges")
    answer = call.account.logs[EMAIL].since(call.args["sinceState"], most)
    if call.site.switches.changes_omit:
        del next((answer[each] for each in (CREATED, UPDATED, DESTROYED) if answer[each]), [])[-1:]
    if call.site.switches.changes_invent:
        answer[CREATED].append("invented")
    return [("Email/changes", {"accountId": call.account.id, **answer})]


def has_words(text: str, wanted: str) -> bool:
    return all(word in text.casefold() for word in wanted.casefold().split())


def matches(email: Email, name: str, wanted: str) -> bool:
    """Return if an Email meets a condition (RFC 8621 section 4.4.1)."""
    if name == "inMailbox":
        return wanted in email.mailbox_ids
    texts = {field: shown(email, field) for field in SEARCHED}
    if name == "text":
        return has_words("\n".join([email.message.text, *texts.values()]), wanted)
    if name not in ("from", "subject"):
        raise Refused("unsupportedFilter", description=name)
    return has_words(texts[name], wanted)


def shown(email: Email, field: str) -> str:
    value = header_value(email.message.root, field)
    return value if isinstance(value, str) else " ".join(f"{one['name']} {one['email']}" for one in value or ())


@method("Email/query", *QUERY)
def email_query(call: Call) -> Answers:
    """Answer with the window that the arguments name. Cyrus has Emails that the sort leaves equal in any order."""
    args, limit, most = call.args, call.args.get("limit"), call.site.switches.query_limit
    by_content = call.site.switches.content_ids
    sort = args.get("sort") or []
    if [each.get("property") for each in sort] not in ([], ["receivedAt"]):
        raise Refused("unsupportedSort")
    if (limit or 0) < 0 or args.get("position", 0) < 0:
        raise Refused("invalidArguments", description="limit or position")
    found = [
        email
        for email in sorted(call.account.emails.values(), key=lambda email: email.message.digest if by_content else "")
        if all(matches(email, name, wanted) for name, wanted in (args.get("filter") or {}).items())
    ]
    for each in sort:
        found.sort(key=lambda email: email.received_at, reverse=each.get("isAscending") is False)
    position, lowered = args.get("position", 0), most is not None and (limit is None or limit > most)
    window = {"position": position, "ids": [each.id for each in found][position:][: most if lowered else limit]}
    window |= {"limit": most} if lowered else {}
    fixed = {"queryState": call.account.logs[EMAIL].state, "canCalculateChanges": False}
    return [("Email/query", {"accountId": call.account.id, **fixed, **window})]
