"""The methods that write: set, import, copy and submission (RFC 8620 sections 5.3 and 5.4, RFC 8621)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from .calls import SET, SUBMIT, Answers, Args, Call, method, pick
from .composition import compose
from .messages import Message, header_value
from .reading import email_property, identities
from .store import COUNTS, CREATED, DESTROYED, EMAIL, MAILBOX, SUBMISSION, UPDATED, Email, Mailbox, Refused, now

KEYWORD = re.compile(r"[!#$&'+-\[^-z|}~]{1,255}")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d*[1-9])?Z")
ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")


def each(items: Mapping[str, Any] | None, act: Callable[[str, Any], Any]) -> tuple[Args | None, Args | None]:
    """Return the results and the SetErrors of `act`, each None if there is none."""
    done: Args = {}
    failed: Args = {}
    for key, value in (items or {}).items():
        try:
            done[key] = act(key, value)
        except Refused as refused:
            failed[key] = refused.answer
    return done or None, failed or None


def refuse(*properties: str) -> None:
    if properties:
        raise Refused("invalidProperties", properties=list(properties))


def answer_set(call: Call, kind: str, objects: Mapping[str, Any], create: Any, update: Any, destroy: Any) -> Args:
    """Create, then update, then destroy."""

    def creating(key: str, value: Any) -> Args:
        made: Args = create(value)
        call.created[key] = made["id"]
        return made

    def found(act: Callable[..., None], *value: Any) -> None:
        key, *rest = value
        if call.real(key) not in objects:
            raise Refused("notFound")
        act(objects[call.real(key)], *rest)

    old = call.check_state(kind, call.args.get("ifInState"))
    created, not_created = each(call.args.get("create"), creating)
    updated, not_updated = each(call.args.get("update"), lambda key, patch: found(update, key, patch))
    destroyed, not_destroyed = each(dict.fromkeys(call.args.get("destroy") or ()), lambda key, _: found(destroy, key))
    answer = {"accountId": call.account.id, "oldState": old, "newState": call.account.logs[kind].state}
    answer |= {"created": created, "updated": updated and {call.real(key): None for key in updated}}
    answer |= {"destroyed": destroyed and [call.real(key) for key in destroyed]}
    return answer | {"notCreated": not_created, "notUpdated": not_updated, "notDestroyed": not_destroyed}


def checked_places(call: Call, value: Any) -> frozenset[str]:
    places = {call.real(key): state for key, state in value.items()} if isinstance(value, dict) else {}
    if not places or not all(key in call.account.mailboxes and state is True for key, state in places.items()):
        refuse("mailboxIds")
    return frozenset(places)


def checked_keywords(value: Any) -> frozenset[str]:
    if not isinstance(value, dict) or not all(KEYWORD.fullmatch(key) and state is True for key, state in value.items()):
        refuse("keywords")
    return frozenset(key.lower() for key in value)


def add(call: Call, message: Message, value: Args) -> Args:
    """Keep a message with the metadata of `value`, and return the properties that the server sets."""
    places, keywords = checked_places(call, value.get("mailboxIds")), checked_keywords(value.get("keywords", {}))
    received_at = value.get("receivedAt") or now()
    if not isinstance(received_at, str) or not DATE.fullmatch(received_at):
        refuse("receivedAt")
    email = call.account.add(message, places, keywords, received_at)
    return {name: email_property(email, name, {}) for name in ("id", "blobId", "threadId", "size")}


@method("Email/set", *SET)
def email_set(call: Call) -> Answers:
    account = call.account

    def create(value: Args) -> Args:
        checked_places(call, value.get("mailboxIds"))
        return add(call, Message(compose(value, account.blob, account.user.address.partition("@")[2])), value)

    def update(email: Email, patch: Args) -> None:
        whole = {name: email_property(email, name, {}) for name in ("mailboxIds", "keywords")}
        for path, value in patch.items():
            name, slash, key = path.partition("/")
            if name not in whole:
                refuse(path)
            if slash and name in patch:
                raise Refused("invalidPatch")
            key = call.real(key) if name == "mailboxIds" else key.replace("~1", "/").replace("~0", "~").lower()
            if not slash:
                whole[name] = value
            elif value is None:
                whole[name].pop(key, None)
            else:
                whole[name][key] = value
        account.update(email, checked_places(call, whole["mailboxIds"]), checked_keywords(whole["keywords"]))

    return [("Email/set", answer_set(call, EMAIL, account.emails, create, update, account.destroy))]


@method("Mailbox/set", *SET, "onDestroyRemoveEmails")
def mailbox_set(call: Call) -> Answers:
    account = call.account

    def checked(mailbox: Mailbox, value: Args) -> Mailbox:
        refuse(*(name for name in value if name not in Mailbox.__slots__ or name == "id"))
        mailbox = replace(mailbox, **value)
        mailbox.parentId = call.real(mailbox.parentId)
        others = [other for other in account.mailboxes.values() if other.id != mailbox.id]
        if not mailbox.name or (mailbox.name, mailbox.parentId) in [(other.name, other.parentId) for other in others]:
            refuse("name")
        if mailbox.role and mailbox.role in [other.role for other in others]:
            refuse("role")
        above, passed = mailbox.parentId, {mailbox.id}
        while above is not None:
            if above in passed or above not in account.mailboxes:
                refuse("parentId")
            passed.add(above)
            above = account.mailboxes[above].parentId
        return mailbox

    def create(value: Args) -> Args:
        mailbox = checked(Mailbox(account.new_id("m"), ""), value)
        account.add_mailbox(mailbox)
        return pick(asdict(mailbox), [name for name in Mailbox.__slots__ if name not in value]) | dict.fromkeys(
            COUNTS, 0
        )

    def update(mailbox: Mailbox, patch: Args) -> None:
        account.mailboxes[mailbox.id] = checked(mailbox, patch)
        account.changed(MAILBOX, [mailbox.id], UPDATED)

    def destroy(mailbox: Mailbox) -> None:
        if mailbox.id in [other.parentId for other in account.mailboxes.values()]:
            raise Refused("mailboxHasChild")
        inside = [email for email in account.emails.values() if mailbox.id in email.mailbox_ids]
        if inside and not call.args.get("onDestroyRemoveEmails"):
            raise Refused("mailboxHasEmail")
        for email in inside:
            left = email.mailbox_ids - {mailbox.id}
            account.update(email, left, email.keywords) if left else account.destroy(email)
        del account.mailboxes[mailbox.id]
        account.changed(MAILBOX, [mailbox.id], DESTROYED)

    return [("Mailbox/set", answer_set(call, MAILBOX, account.mailboxes, create, update, destroy))]


@method("Email/import", "accountId", "ifInState", "emails")
def email_import(call: Call) -> Answers:
    def one(key: str, value: Args) -> Args:
        raw = call.account.blob(str(value.get("blobId")))
        if raw is None or (call.site.switches.no_unread_import and not value.get("keywords")):
            raise Refused("invalidProperties", properties=["blobId" if raw is None else "keywords"])
        made = add(call, Message(raw), value)
        if not call.site.switches.unresolved_imports:
            call.created[key] = made["id"]
        return made

    old = call.check_state(EMAIL, call.args.get("ifInState"))
    created, failed = each(call.args["emails"], one)
    answer = {"accountId": call.account.id}
    if not call.site.switches.import_without_states:
        answer |= {"oldState": old, "newState": call.account.logs[EMAIL].state}
    return [("Email/import", answer | {"created": created, "notCreated": failed})]


@method("Email/copy", *SET[:3], "fromAccountId", "ifFromInState", "onSuccessDestroyOriginal")
def email_copy(call: Call) -> Answers:
    try:
        source = replace(call, account=call.site.account(call.user, call.args["fromAccountId"]))
    except Refused:
        raise Refused("fromAccountNotFound") from None
    if source.account is call.account:
        raise Refused("invalidArguments", description="fromAccountId")
    source.check_state(EMAIL, call.args.get("ifFromInState"))
    copied: list[str] = []

    def one(key: str, value: Args) -> Args:
        email = source.account.emails.get(call.real(value.get("id")))
        if email is None:
            raise Refused("notFound")
        kept = {name: email_property(email, name, {}) for name in ("keywords", "receivedAt")}
        made = add(call, email.message, kept | value)
        call.created[key] = made["id"]
        copied.append(email.id)
        return made

    old = call.check_state(EMAIL, call.args.get("ifInState"))
    created, failed = each(call.args.get("create"), one)
    answer = {"fromAccountId": source.account.id, "accountId": call.account.id, "oldState": old}
    answer |= {"newState": call.account.logs[EMAIL].state, "created": created, "notCreated": failed}
    implicit = copied if call.args.get("onSuccessDestroyOriginal") else []
    return [("Email/copy", answer), *(email_set(replace(source, args={"destroy": implicit})) if implicit else [])]


@method("EmailSubmission/set", *SET, "onSuccessUpdateEmail", "onSuccessDestroyEmail", capability=SUBMIT)
def submission_set(call: Call) -> Answers:
    account = call.account
    email_of = {key: submission["emailId"] for key, submission in account.submissions.items()}

    def create(value: Args) -> Args:
        email = account.emails.get(call.real(value.get("emailId")))
        identity = identities(account).get(call.real(value.get("identityId")))
        if email is None or identity is None:
            raise Refused("invalidProperties", properties=["emailId" if email is None else "identityId"])
        envelope = value.get("envelope") or envelope_of(email.message)
        submit(call, email.message, account.user.address, envelope)
        status = {"smtpReply": "250 2.1.5 OK", "delivered": "yes", "displayed": "unknown"}
        made = {"id": account.new_id("s"), "threadId": email.thread_id, "sendAt": now(), "undoStatus": "final"}
        made |= {
            "deliveryStatus": {one["email"]: status for one in envelope["rcptTo"]},
            "dsnBlobIds": [],
            "mdnBlobIds": [],
        }
        email_of[made["id"]] = email.id
        given = {"emailId": email.id, "identityId": identity["id"], "envelope": envelope}
        account.submissions[made["id"]] = made | given
        account.changed(SUBMISSION, [made["id"]], CREATED)
        return made | ({} if value.get("envelope") else {"envelope": envelope})

    def update(_: Args, patch: Args) -> None:
        raise Refused("cannotUnsend" if patch.get("undoStatus") == "canceled" else "invalidProperties")

    def destroy(submission: Args) -> None:
        del account.submissions[submission["id"]]
        account.changed(SUBMISSION, [submission["id"]], DESTROYED)

    answer = answer_set(call, SUBMISSION, account.submissions, create, update, destroy)
    done = {made["id"] for made in (answer["created"] or {}).values()} | set(answer["destroyed"] or ())
    patches = {call.real(key): patch for key, patch in (call.args.get("onSuccessUpdateEmail") or {}).items()}
    patches = {email_of[key]: patch for key, patch in patches.items() if key in done}
    gone = [email_of[key] for key in map(call.real, call.args.get("onSuccessDestroyEmail") or ()) if key in done]
    implicit = replace(call, args={"update": patches, "destroy": gone})
    return [("EmailSubmission/set", answer), *(email_set(implicit) if patches or gone else [])]


def envelope_of(message: Message) -> Args:
    senders = header_value(message.root, "sender") or header_value(message.root, "from") or [{"email": ""}]
    people = [one["email"] for name in ("to", "cc", "bcc") for one in header_value(message.root, name) or ()]
    return {"mailFrom": {"email": senders[0]["email"]}, "rcptTo": [{"email": one} for one in dict.fromkeys(people)]}


def submit(call: Call, message: Message, own: str, envelope: Any) -> None:
    """Deliver to all recipients, or raise the SetError of RFC 8621 section 7.5."""
    try:
        sender, *recipients = [envelope["mailFrom"]["email"], *(one["email"] for one in envelope["rcptTo"])]
    except (KeyError, TypeError):
        raise Refused("invalidProperties", properties=["envelope"]) from None
    if sender != own:
        raise Refused("forbiddenMailFrom")
    if [one["email"] for one in header_value(message.root, "from") or ()] != [own]:
        raise Refused("forbiddenFrom")
    if not recipients:
        raise Refused("noRecipients")
    targets = {one: call.site.account_of(one) for one in recipients if ADDRESS.fullmatch(one)}
    invalid = [one for one in recipients if targets.get(one) is None]
    if invalid and not call.site.switches.accepts_unknown:
        raise Refused("invalidRecipients", invalidRecipients=invalid)
    head, gap, body = message.raw.partition(b"\r\n\r\n")
    head = re.sub(rb"(?im)^bcc:.*\r\n(?:[ \t].*\r\n)*", b"", head + b"\r\n")
    sent = Message(
        b"Received: by jmap-peer; %s\r\n" % format_datetime(datetime.now(UTC)).encode() + head + gap[2:] + body
    )
    for account in {target.id: target for target in targets.values() if target is not None}.values():
        account.deliver(sent)
