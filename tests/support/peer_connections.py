"""Two users of the JMAP peer, with their connections."""

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from jmap_peer import Peer, Switches, User, jmap_peer
from jmap_requests import JmapConnection

ANNA = User("anna", "anna@example.test", "secret-1", shares=("bert",))
BERT = User("bert", "bert@example.test", "secret-2")
PLAIN = Switches()
RAW = b"""From: =?utf-8?q?J=C3=BCrgen?= <jo@example.test>
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


def draft(client: Client, to: str = BERT.address, **changes: Any) -> dict[str, Any]:
    email = {
        "mailboxIds": {client.role("drafts"): True},
        "keywords": {"$draft": True, "$seen": True},
        "from": [{"name": "Änna", "email": ANNA.address}],
        "to": [{"name": None, "email": to}],
        "bcc": [{"name": None, "email": ANNA.address}],
        "subject": "Grüße",
        "header:X-LoadSim:asText": "run=r",
        "bodyValues": {"t": {"value": "first\nsecond ü"}},
        "textBody": [{"partId": "t", "type": "text/plain"}],
    }
    return email | changes


class Events:
    """A user's event source."""

    def __init__(self, client: Client, types: str = "*", closeafter: str = "no", ping: int = 0, last: str = "") -> None:
        self.http = client.another()
        headers = self.http.headers | ({"Last-Event-ID": last} if last else {})
        self.http.http.request("GET", f"/events/?types={types}&closeafter={closeafter}&ping={ping}", headers=headers)
        self.response = client.stack.enter_context(self.http.http.getresponse())

    def next(self) -> dict[str, str]:
        lines = []
        while (line := self.response.readline().decode().rstrip("\n")) or not lines:
            if not line:
                return {}
            lines.append(line.partition(": "))
        return {name: value for name, _, value in lines}

    def changed(self, client: Client) -> dict[str, str]:
        event = self.next()
        assert event["event"] == "state"
        self.last = event["id"]
        return json.loads(event["data"])["changed"][client.account]
