"""Two users of the JMAP peer, with their connections."""

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from jmap_peer import Peer, Switches, User, jmap_peer
from jmap_requests import JmapConnection

ANNA = User("anna", "anna@example.test", "secret-1")
BERT = User("bert", "bert@example.test", "secret-2")
PLAIN = Switches()
RAW = b"""From: =?utf-8?q?J=C3=BCrgen?= <anna@example.test>
To: "  James Smythe" <james@example.test>, Friends: jane@example.test, =?UTF-8?Q?John_Sm=C3=AEth?= <john@example.test>;
Subject:  a long
 subject
Message-ID: <one@example.test>
Date: Mon, 30 Nov 2026 10:00:00 +0100
X-LoadSim: run=r; sender=1
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: text/plain; charset=iso-8859-1

Sch\xf6n, a needle
--b
Content-Type: application/pdf; name=a.pdf
Content-Disposition: attachment; filename=a.pdf
Content-Transfer-Encoding: base64

UERG
--b--
""".replace(b"\n", b"\r\n")


class Client(JmapConnection):
    """A user's connection to the peer."""

    def __init__(self, peer: Peer, stack: ExitStack, user: User = ANNA) -> None:
        super().__init__(peer.base, user.name, user.password, stack)
        self.peer = peer

    def another(self, user: User = ANNA) -> "Client":
        client = Client(self.peer, self.stack, user)
        client.log_on()
        return client


def with_peer(check: Callable[[Client], None], switches: Switches = PLAIN, **options: Any) -> None:
    def logged_on(client: Client) -> None:
        if not switches.needs_version:
            client.log_on()
        check(client)

    async def serve() -> None:
        async with jmap_peer([ANNA, BERT], switches, **options) as peer:
            with ExitStack() as stack:
                await asyncio.to_thread(logged_on, Client(peer, stack))

    asyncio.run(serve())


def sent(client: Client, raw: bytes, *recipients: str, **patch: Any) -> list[Any]:
    """Import a draft, and submit it. Return the draft's id and the answers."""
    draft = client.add(raw, "drafts", keywords={"$draft": True})
    people = [{"email": recipient} for recipient in recipients]
    envelope = {"mailFrom": {"email": ANNA.address}, "rcptTo": people}
    submission = {"emailId": draft, "identityId": "i1", "envelope": envelope}
    args = {"create": {"s": submission}, "onSuccessUpdateEmail": {"#s": patch}}
    return [draft, *client.calls(("EmailSubmission/set", args))]


class Events:
    """A user's event source."""

    def __init__(self, client: Client, user: User = ANNA) -> None:
        self.http = client.another(user)
        at = self.http.path("eventSourceUrl", types="*", closeafter="no", ping="0")
        self.http.http.request("GET", at, headers=self.http.headers)
        self.response = client.stack.enter_context(self.http.http.getresponse())

    def changed(self) -> Any:
        """Return the states in the next event."""
        lines = []
        while line := self.response.readline().decode().rstrip("\n"):
            lines.append(line.partition(": "))
        event = {name: value for name, _, value in lines}
        assert event["event"] == "state"
        return json.loads(event["data"])["changed"][self.http.account]
