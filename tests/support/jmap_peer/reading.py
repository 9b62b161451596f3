"""The methods that read: get, changes and query (RFC 8620 sections 5.1, 5.2 and 5.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .calls import CHANGES, GET, QUERY, SUBMIT, Answers, Args, Call, method, pick
from .messages import DEFAULT_PART, header_value
from .queries import email_ids, mailbox_ids
from .store import (
    COUNTS,
    CREATED,
    DESTROYED,
    EMAIL,
    MAILBOX,
    SUBMISSION,
    THREAD,
    UPDATED,
    Account,
    Email,
    Mailbox,
    Refused,
)

EMAIL_PROPERTIES = [
    "id",
    "blobId",
    "threadId",
    "mailboxIds",
    "keywords",
    "size",
    "receivedAt",
    "messageId",
    "inReplyTo",
]
EMAIL_PROPERTIES += ["references", "sender", "from", "to", "cc", "bcc", "replyTo", "subject", "sentAt", "hasAttachment"]
EMAIL_PROPERTIES += ["preview", "bodyValues", "textBody", "htmlBody", "attachments"]
RIGHTS = ["mayReadItems", "mayAddItems", "mayRemoveItems", "maySetSeen", "maySetKeywords", "mayCreateChild"]
RIGHTS += ["mayRename", "mayDelete", "maySubmit"]
FETCH = {"fetchTextBodyValues": "textBody", "fetchHTMLBodyValues": "htmlBody"}
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
    except (KeyError, ValueError) as error:
        raise Refused("invalidArguments", description=f"unknown property {error}") from error
    missing = [each for each in ids if each not in found]
    state = call.account.logs[kind].state
    return [(f"{kind}/get", {"accountId": call.account.id, "state": state, "list": shown, "notFound": missing})]


@method("Mailbox/get", *GET)
def mailbox_get(call: Call) -> Answers:
    def view(mailbox: Mailbox, properties: Sequence[str]) -> Args:
        rights = {"myRights": dict.fromkeys(RIGHTS, True)}
        return pick(asdict(mailbox) | call.account.counts(mailbox) | rights, properties)

    return get(call, MAILBOX, call.account.mailboxes, [*Mailbox.__slots__, *COUNTS, "myRights"], view)


@method("Thread/get", *GET)
def thread_get(call: Call) -> Answers:
    threads = {each: {"id": each, "emailIds": emails} for each, emails in call.account.threads.items()}
    return get(call, THREAD, threads, ["id", "emailIds"])


@method("Identity/get", *GET, capability=SUBMIT)
def identity_get(call: Call) -> Answers:
    return get(call, "Identity", identities(call.account), list(identities(call.account)["i1"]))


def identities(account: Account) -> dict[str, Args]:
    texts = {"replyTo": None, "bcc": None, "textSignature": "", "htmlSignature": "", "mayDelete": False}
    email = "" if account.switches.identity_without_address else account.user.address
    return {"i1": {"id": "i1", "name": account.user.name, "email": email, **texts}}


@method("EmailSubmission/get", *GET, capability=SUBMIT)
def submission_get(call: Call) -> Answers:
    known = ["id", "identityId", "emailId", "threadId", "envelope", "sendAt", "undoStatus", "deliveryStatus"]
    return get(call, SUBMISSION, call.account.submissions, [*known, "dsnBlobIds", "mdnBlobIds"])


@method("Email/get", *GET, "bodyProperties", *FETCH, "fetchAllBodyValues", "maxBodyValueBytes")
def email_get(call: Call) -> Answers:
    def view(email: Email, properties: Sequence[str]) -> Args:
        return {name: email_property(email, name, call.args) for name in properties}

    return get(call, EMAIL, call.account.emails, EMAIL_PROPERTIES, view)


def email_property(email: Email, name: str, args: Args) -> Any:
    message, part_properties = email.message, args.get("bodyProperties") or DEFAULT_PART
    match name:
        case "id" | "blobId" | "threadId" | "receivedAt":
            ids = {"id": email.id, "blobId": message.blob_id, "threadId": email.thread_id}
            return ids.get(name, email.received_at)
        case "size":
            return len(message.raw)
        case "mailboxIds" | "keywords":
            return dict.fromkeys(sorted(email.mailbox_ids if name == "mailboxIds" else email.keywords), True)
        case "hasAttachment":
            return bool(message.bodies["attachments"])
        case "preview":
            return message.preview
        case "headers" | "bodyStructure":
            described = message.describe(
                message.root, ["headers"] if name == "headers" else [*part_properties, "subParts"]
            )
            return described["headers"] if name == "headers" else described
        case "textBody" | "htmlBody" | "attachments":
            return [message.describe(part, part_properties) for part in message.bodies[name]]
        case "bodyValues":
            parts = [part for flag, body in FETCH.items() if args.get(flag) for part in message.bodies[body]]
            parts = message.leaves if args.get("fetchAllBodyValues") else parts
            texts = [part for part in parts if part.get_content_maintype() == "text"]
            return {message.part_id(part): message.value(part, args.get("maxBodyValueBytes", 0)) for part in texts}
    return header_value(message.root, name)


def changes(call: Call, kind: str) -> Answers:
    most = call.args.get("maxChanges")
    if most is not None and most < 1:
        raise Refused("invalidArguments", description="maxChanges")
    answer = call.account.logs[kind].since(call.args["sinceState"], most)
    if kind == EMAIL and call.site.switches.changes_omit:
        del next((answer[each] for each in (CREATED, UPDATED, DESTROYED) if answer[each]), [])[-1:]
    if kind == EMAIL and call.site.switches.changes_invent:
        answer[CREATED].append("invented")
    extra = {"updatedProperties": None} if kind == MAILBOX else {}
    return [(f"{kind}/changes", {"accountId": call.account.id, **answer, **extra})]


method("Email/changes", *CHANGES)(lambda call: changes(call, EMAIL))
method("Mailbox/changes", *CHANGES)(lambda call: changes(call, MAILBOX))
method("Thread/changes", *CHANGES)(lambda call: changes(call, THREAD))


@method("Email/query", *QUERY, "collapseThreads")
def email_query(call: Call) -> Answers:
    ids = email_ids(call.account, call.args.get("filter"), call.args.get("sort") or [])
    if call.args.get("collapseThreads"):
        thread_of = {each: call.account.emails[each].thread_id for each in reversed(ids)}
        firsts = {thread: each for each, thread in thread_of.items()}.values()
        ids = [each for each in ids if each in firsts]
    return query(call, EMAIL, ids)


@method("Mailbox/query", *QUERY, "sortAsTree", "filterAsTree")
def mailbox_query(call: Call) -> Answers:
    return query(call, MAILBOX, mailbox_ids(call.account, call.args.get("filter"), call.args.get("sort") or []))


def query(call: Call, kind: str, ids: Sequence[str]) -> Answers:
    """Answer with the window that the arguments name."""
    args, limit, most = call.args, call.args.get("limit"), call.site.switches.query_limit
    if limit is not None and limit < 0:
        raise Refused("invalidArguments", description="limit")
    if args.get("anchor") not in (None, *ids):
        raise Refused("anchorNotFound")
    if args.get("anchor") is not None:
        position = max(0, ids.index(args["anchor"]) + args.get("anchorOffset", 0))
    else:
        position = args.get("position", 0)
        position = max(0, len(ids) + position) if position < 0 else position
    lowered = most is not None and (limit is None or limit > most)
    window = {"position": position, "ids": ids[position:][: most if lowered else limit]}
    window |= {"limit": most} if lowered else {}
    window |= {"total": len(ids)} if args.get("calculateTotal") and not call.site.switches.no_total else {}
    state = call.account.logs[kind].state
    fixed = {"accountId": call.account.id, "queryState": state, "canCalculateChanges": False}
    return [(f"{kind}/query", fixed | window)]
