"""The methods that write: set, import and submission (RFC 8620 section 5.3, RFC 8621)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from .calls import SET, SUBMIT, Answers, Args, Call, method
from .messages import Message, header_value
from .reading import email_property, identities
from .store import COUNTS, CREATED, DESTROYED, EMAIL, MAILBOX, SUBMISSION, Email, Mailbox, Refused, now

KEYWORD = re.compile(r"[!#$&'+-\[^-z|}~]{1,255}")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d*[1-9])?Z")


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


def forbid(*_: Any) -> Any:
    raise Refused("forbidden", description="not in this server")


def answer_set(
    call: Call,
    kind: str,
    objects: Mapping[str, Any],
    create: Callable[[Args], Args] = forbid,
    update: Callable[[Any, Args], None] = forbid,
    destroy: Callable[[Any], None] = forbid,
) -> Args:
    """Create, then update, then destroy."""

    def found(key: str) -> Any:
        if key not in objects:
            raise Refused("notFound")
        return objects[key]

    old, args = call.check_state(kind, call.args.get("ifInState")), call.args
    created, not_created = each(args.get("create"), lambda _, value: create(value))
    updated, not_updated = each(args.get("update"), lambda key, patch: update(found(key), patch))
    destroyed, not_destroyed = each(dict.fromkeys(args.get("destroy") or ()), lambda key, _: destroy(found(key)))
    answer: Args = {"accountId": call.account.id, "oldState": old, "newState": call.account.logs[kind].state}
    answer |= {"created": created, "updated": updated, "destroyed": destroyed and [*destroyed]}
    return answer | {"notCreated": not_created, "notUpdated": not_updated, "notDestroyed": not_destroyed}


def checked_places(call: Call, value: Any) -> frozenset[str]:
    places = value if isinstance(value, dict) else {}
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

    def update(email: Email, patch: Args) -> None:
        whole = {name: email_property(email, name, {}) for name in ("mailboxIds", "keywords")}
        for path, value in patch.items():
            name, slash, key = path.partition("/")
            if name not in whole or not slash:
                refuse(path)
            key = key if name == "mailboxIds" else key.replace("~1", "/").replace("~0", "~").lower()
            whole[name].pop(key, None)
            if value is not None:
                whole[name][key] = value
        account.update(email, checked_places(call, whole["mailboxIds"]), checked_keywords(whole["keywords"]))

    return [("Email/set", answer_set(call, EMAIL, account.emails, update=update, destroy=account.destroy))]


@method("Mailbox/set", *SET, "onDestroyRemoveEmails")
def mailbox_set(call: Call) -> Answers:
    account = call.account

    def create(value: Args) -> Args:
        refuse(*(name for name in value if name not in Mailbox.__slots__ or name == "id"))
        mailbox = Mailbox(account.new_id("m"), **value)
        others = account.mailboxes.values()
        if not mailbox.name or (mailbox.name, mailbox.parentId) in [(other.name, other.parentId) for other in others]:
            refuse("name")
        if mailbox.role and mailbox.role in [other.role for other in others]:
            refuse("role")
        if mailbox.parentId not in (None, *account.mailboxes):
            refuse("parentId")
        account.add_mailbox(mailbox)
        return asdict(mailbox) | dict.fromkeys(COUNTS, 0)

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

    return [("Mailbox/set", answer_set(call, MAILBOX, account.mailboxes, create, destroy=destroy))]


@method("Email/import", "accountId", "ifInState", "emails")
def email_import(call: Call) -> Answers:
    def one(_: str, value: Args) -> Args:
        raw = call.account.blob(str(value.get("blobId")))
        if raw is None or (call.site.switches.no_unread_import and not value.get("keywords")):
            raise Refused("invalidProperties", properties=["blobId" if raw is None else "keywords"])
        return add(call, Message(raw), value)

    old = call.check_state(EMAIL, call.args.get("ifInState"))
    created, failed = each(call.args["emails"], one)
    answer = {"accountId": call.account.id}
    if not call.site.switches.import_without_states:
        answer |= {"oldState": old, "newState": call.account.logs[EMAIL].state}
    return [("Email/import", answer | {"created": created, "notCreated": failed})]


@method("EmailSubmission/set", "accountId", "create", "onSuccessUpdateEmail", capability=SUBMIT)
def submission_set(call: Call) -> Answers:
    account = call.account
    sent: dict[str, str] = {}  # Emails by creation id

    def one(key: str, value: Args) -> Args:
        email, identity = account.emails.get(value.get("emailId", "")), value.get("identityId")
        if email is None or identity not in identities(account):
            raise Refused("invalidProperties", properties=["emailId" if email is None else "identityId"])
        submit(call, email.message, account.user.address, value.get("envelope"))
        sent[f"#{key}"] = email.id
        made = {"id": account.new_id("s"), "sendAt": now(), "undoStatus": "final"}
        account.changed(SUBMISSION, [made["id"]], CREATED)
        return made

    old = account.logs[SUBMISSION].state
    created, failed = each(call.args.get("create"), one)
    answer: Args = {"accountId": account.id, "oldState": old, "newState": account.logs[SUBMISSION].state}
    answer |= dict.fromkeys(("updated", "destroyed", "notUpdated", "notDestroyed"))
    answer |= {"created": created, "notCreated": failed}
    patches = (call.args.get("onSuccessUpdateEmail") or {}).items()
    implicit = replace(call, args={"update": {sent[key]: patch for key, patch in patches if key in sent}})
    return [("EmailSubmission/set", answer), *(email_set(implicit) if implicit.args["update"] else [])]


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
    targets = {one: call.site.account_of(one) for one in recipients}
    if invalid := [one for one, target in targets.items() if target is None]:
        raise Refused("invalidRecipients", invalidRecipients=invalid)
    sent = Message(b"Received: by jmap-peer; %s\r\n" % format_datetime(datetime.now(UTC)).encode() + message.raw)
    for account in {target.id: target for target in targets.values()}.values():
        account.deliver(sent)
