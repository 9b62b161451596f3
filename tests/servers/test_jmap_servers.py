"""JMAP on Cyrus and James: the JMAP peer answers as they do, and Cyrus takes tokens over TLS."""

import asyncio
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from imap_script import Ear, certificate
from jmap_peer import User, jmap_peer
from jmap_requests import USING, JmapConnection
from mailservers import short_directory
from other_servers.cyrus import start_cyrus
from other_servers.james import start_james
from patience import PATIENCE_S

from loadsim.errors import ServerRefused
from loadsim.model.ports import INBOX, Account, Services
from loadsim.protocols.registry import open_driver
from loadsim.servers.private import LOOPBACK, free_port

DOMAIN = "example.test"
RAW = b"""From: Anna <anna@example.test>\r
To: =?utf-8?q?J=C3=BCrgen?= <bert@example.test>\r
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r
Message-ID: <one@example.test>\r
Date: Mon, 30 Nov 2026 09:00:00 +0000\r
X-LoadSim: run=r; sender=1\r
\r
Come at noon.\r
"""
MAILBOXES = {name: {"name": name.title(), "role": name} for name in ("drafts", "sent", "trash")}
PROPERTIES = ["subject", "from", "messageId", "receivedAt", "keywords", "size"]
PROPERTIES += ["header:X-LoadSim:asText", "textBody", "bodyValues"]


def addresses(found: Any) -> Any:
    """Return addresses without their names: James leaves out null."""
    return [each["email"] for each in found]


def eventually(look: Callable[[], Any]) -> Any:
    """Return the first answer that is not empty."""
    end_s = time.monotonic() + PATIENCE_S
    while not (found := look()) and time.monotonic() < end_s:
        pass
    return found


def dialogue(anna: JmapConnection, bert: JmapConnection) -> dict[str, Any]:
    """Import, list, read, flag, move, submit and destroy; return the facts on which servers agree."""
    for connection in (anna, bert):
        connection.log_on()
    if "drafts" not in anna.roles():  # Cyrus creates the Inbox only
        assert set(anna.one("Mailbox/set", create=MAILBOXES)["created"]) == set(MAILBOXES)
    places, facts = anna.roles(), {}
    email = anna.add(RAW, keywords={"$seen": True}, receivedAt="2026-11-30T09:00:01Z")
    state = anna.state()

    # Read
    sort = [{"property": "receivedAt", "isAscending": False}]
    query = ("Email/query", {"filter": {"inMailbox": places["inbox"]}, "sort": sort, "limit": 50})
    reference = {"resultOf": "c0", "name": "Email/query", "path": "/ids"}
    get = ("Email/get", {"#ids": reference, "properties": PROPERTIES, "fetchTextBodyValues": True})
    got = anna.calls(query, get)[1]["list"][0]
    part = got.pop("textBody")[0]
    facts["text"] = got.pop("bodyValues")[part["partId"]]["value"].replace("\r\n", "\n")
    facts["from"] = addresses(got.pop("from"))
    facts["read"] = {name: got[name] for name in got if name != "id"}
    facts["missing"] = anna.one("Email/get", ids=[email, "none"])["notFound"]
    facts["blob"] = anna.exchange(
        "GET", anna.path("downloadUrl", blobId=anna.get(email)["blobId"], name="m", type="a/b")
    )

    # Change
    facts["flagged"] = anna.set(update={email: {"keywords/$flagged": True}})["updated"] == {email: None}
    move = {f"mailboxIds/{places['inbox']}": None, f"mailboxIds/{places['trash']}": True}
    facts["moved"] = anna.set(update={email: move})["updated"] == {email: None}
    now = anna.get(email, "keywords", "mailboxIds")
    facts["now"] = sorted(now["keywords"]), now["mailboxIds"] == {places["trash"]: True}
    changes = anna.one("Email/changes", sinceState=state)
    facts["changes"] = changes["updated"] == [email], changes["destroyed"], changes["hasMoreChanges"]
    facts["state"] = changes["newState"] == anna.state()
    facts["destroyed"] = anna.set(destroy=[email])["destroyed"] == [email]
    facts["gone"] = anna.one("Email/get", ids=[email])["notFound"] == [email]

    # Submit
    raw = RAW.replace(b"<one@", b"<two@")
    own = anna.add(raw, "drafts", keywords={"$draft": True}, receivedAt="2026-11-30T09:00:02Z")
    envelope = {"mailFrom": {"email": f"anna@{DOMAIN}"}, "rcptTo": [{"email": f"bert@{DOMAIN}"}]}
    identity = anna.one("Identity/get", ids=None)["list"][0]["id"]
    submission = {"emailId": own, "identityId": identity, "envelope": envelope}
    filed = {f"mailboxIds/{places['drafts']}": None, f"mailboxIds/{places['sent']}": True, "keywords/$draft": None}
    args = {"create": {"s": submission}, "onSuccessUpdateEmail": {"#s": filed}}
    sent, implicit = anna.calls(("EmailSubmission/set", args))
    facts["submitted"] = set(sent["created"]), list(implicit["updated"]) == [own]
    now = anna.get(own, "mailboxIds", "keywords", "header:X-LoadSim:asText")
    facts["filed"] = now["mailboxIds"] == {places["sent"]: True}, now["keywords"], now["header:X-LoadSim:asText"]
    arrived = eventually(lambda: bert.one("Email/query", filter={"inMailbox": bert.role("inbox")})["ids"])
    facts["arrived"] = [bert.get(each, "subject", "keywords")["subject"] for each in arrived]
    return facts | errors(anna)


def errors(anna: JmapConnection) -> dict[str, Any]:
    calls = [("Foo/get", {}), ("Email/get", {"accountId": "other", "ids": []}), ("Email/get", {"ids": "x"})]
    types: list[Any] = [answer["type"] for answer in anna.calls(*calls)]
    for body in (b"{", b'{"using": []}', b'{"using": ["x"], "methodCalls": []}'):
        status, answer = anna.exchange("POST", anna.path("apiUrl"), body)
        types.append((status, json.loads(answer)["type"]))
    return {"errors": types, "capabilities": set(USING) <= set(anna.session["capabilities"])}


def facts_of(base: str, logins: Mapping[str, str]) -> dict[str, Any]:
    with ExitStack() as stack:
        return dialogue(*(JmapConnection(base, login, f"secret-of-{name}", stack) for name, login in logins.items()))


async def facts_of_peer() -> dict[str, Any]:
    users = [User(name, f"{name}@{DOMAIN}", f"secret-of-{name}") for name in ("anna", "bert")]
    async with jmap_peer(users) as peer:
        return await asyncio.to_thread(facts_of, peer.base, {user.name: user.name for user in users})


@pytest.mark.nightly(part="servers")
@pytest.mark.parametrize("start", [start_cyrus, start_james])
def test_the_peer_answers_as_real_servers_do(start: Callable[..., Any]) -> None:
    # James has identities for log-on names that are addresses only, Cyrus mailboxes for local parts only.
    logins = {name: f"{name}@{DOMAIN}" if start is start_james else name for name in ("anna", "bert")}
    accounts = [
        Account(at, login, f"{name}@{DOMAIN}", f"secret-of-{name}")
        for at, (name, login) in enumerate(logins.items(), 1)
    ]
    port = free_port()
    with short_directory() as place, start(accounts, {}, place, jmap_port=port):
        assert facts_of(f"http://{LOOPBACK}:{port}", logins) == asyncio.run(facts_of_peer())


@pytest.mark.nightly(part="servers")
async def test_cyrus_takes_tokens_over_tls(tmp_path: Path) -> None:
    """A user's JSON Web Token logs on; one signed with another key is refused, and no error shows it."""
    port, token = free_port(), tmp_path / "token"
    with_password = Account(1, "anna", f"anna@{DOMAIN}", "secret-of-anna")
    own = replace(with_password, password="", token_file=str(token))
    file, _ = certificate(tmp_path, f"IP:{LOOPBACK}")
    with (
        short_directory() as place,
        start_cyrus([with_password], {}, place, jmap_port=port, certificate=file, token_key="own") as server,
    ):
        endpoint = replace(server.services.endpoint("jmap"), methods=("bearer",))
        mailbox = open_driver("jmap", Services(jmap=endpoint)).session(own, Ear()).mailbox
        token.write_text(forged := web_token("anna", b"foreign"))
        with pytest.raises(ServerRefused) as refused:
            await mailbox.log_on()
        assert forged not in str(refused.value)
        token.write_text(web_token("anna", b"own"))
        await mailbox.log_on()
        assert INBOX in await mailbox.folders()
        await mailbox.log_off()


def web_token(login: str, key: bytes) -> str:
    """A JSON Web Token of a user (RFC 7519), signed with HMAC and SHA-256."""
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": login})]
    signed = b".".join(map(base64url, parts))
    return (signed + b"." + base64url(hmac.digest(key, signed, "sha256"))).decode()


def base64url(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
