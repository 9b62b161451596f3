"""A CalDAV server in memory that schedules (RFC 4791, 6578, 6638), and whose answers a test can change."""

import asyncio
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256

from skipping import turns

from loadsim.model.ports import Account, Endpoint

Change = Callable[[str, str, "Answer"], "Answer | None"]
"""Takes method, path and answer; returns another answer, or None for a closed connection."""


@dataclass
class Answer:
    status: int
    body: str = ""
    fields: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        content = self.body.encode()
        lines = {"Content-Length": str(len(content))} | self.fields
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"HTTP/1.1 {self.status} Reason\r\n{head}\r\n".encode() + content


def multistatus(responses: Iterable[str], token: str = "") -> Answer:
    stated = f"<sync-token>{token}</sync-token>" if token else ""
    names = 'xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"'
    return Answer(207, f"<?xml version='1.0'?><multistatus {names}>{''.join(responses)}{stated}</multistatus>")


def found(href: str, properties: str) -> str:
    known = f"<propstat><prop>{properties}</prop><status>HTTP/1.1 200 OK</status></propstat>"
    return f"<response><href>{href}</href>{known}</response>"


class CalendarPeer:
    """Users are `/LOGIN/`, with the calendars `default` and those that are made, and `inbox`."""

    def __init__(self, accounts: Iterable[Account], schedules: bool = True) -> None:
        self.accounts = {account.login: account for account in accounts}
        self.schedules = schedules
        self.items: dict[str, str] = {}
        self.calendars = {f"/{login}/default/" for login in self.accounts}
        self.log: list[tuple[int, str]] = []  # each change: its number, and the path
        self.writers: list[asyncio.StreamWriter] = []
        self.requests: list[tuple[str, str, str]] = []
        self.change: Change = lambda method, path, answer: answer

    def of(self, login: str, place: str) -> list[str]:
        """The texts in a collection."""
        return [text for path, text in self.items.items() if path.startswith(f"/{login}/{place}/")]

    def answer(self, method: str, path: str, lines: dict[str, str], body: str) -> Answer:
        user, password = b64decode(lines["authorization"].removeprefix("Basic ")).decode().split(":", 1)
        if self.accounts.get(user) is None or self.accounts[user].password != password:
            return Answer(401)
        if path == "/.well-known/caldav":
            return Answer(301, fields={"Location": "/"})
        if method == "PROPFIND":
            return self._properties(user, path, lines["depth"])
        if method == "REPORT":
            return self._changes(path, body) if "sync-collection" in body else self._multiget(body)
        if method == "MKCALENDAR":
            made = path not in self.calendars
            self.calendars.add(path)
            return Answer(201 if made else 405)
        return self._object(user, method, path, lines, body)

    def _properties(self, user: str, path: str, depth: str) -> Answer:
        inbox = f"<C:schedule-inbox-URL><href>/{user}/inbox/</href></C:schedule-inbox-URL>" if self.schedules else ""
        shown = (
            f"<current-user-principal><href>/{user}/</href></current-user-principal>"
            f"<C:calendar-home-set><href>/{user}/</href></C:calendar-home-set>{inbox}<resourcetype><collection/>"
        )
        calendar = "<C:calendar/>" if path in self.calendars else ""
        responses = [found(path, f"{shown}{calendar}</resourcetype>")]
        if depth == "1":
            places = [each for each in self.calendars if each.startswith(path) and each != path]
            responses += [found(place, "<resourcetype><C:calendar/><collection/></resourcetype>") for place in places]
            responses += [
                found(each, "<resourcetype/>") for each in self.items if each.rpartition("/")[0] + "/" == path
            ]
        return multistatus(responses)

    def _object(self, user: str, method: str, path: str, lines: dict[str, str], body: str) -> Answer:
        text = self.items.get(path)
        if method == "GET":
            return Answer(404) if text is None else Answer(200, text, {"ETag": etag(text)})
        wanted = lines.get("if-match", "*")
        if (lines.get("if-none-match") == "*" and text is not None) or (wanted != "*" and wanted != etag(text or "")):
            return Answer(412)
        if method == "PUT":
            if path.rpartition("/")[0] + "/" not in self.calendars:
                return Answer(409)
            self._put(path, body)
            self._invite(user, path, body)
            return Answer(201 if text is None else 204)
        gone = [each for each in self.items if each.startswith(path)]
        for each in gone:
            del self.items[each]
            self.log.append((len(self.log) + 1, each))
        known = path in self.calendars
        self.calendars.discard(path)
        return Answer(204 if gone or known else 404)

    def _put(self, path: str, text: str) -> None:
        self.items[path] = text
        self.log.append((len(self.log) + 1, path))

    def _invite(self, user: str, path: str, text: str) -> None:
        unfolded = text.replace("\r\n ", "")
        attendees = set(re.findall(r"^ATTENDEE.*:mailto:(.*?)\r?$", unfolded, re.MULTILINE)) if self.schedules else ()
        for login, account in self.accounts.items():
            if account.address in attendees and login != user:
                name = path.rpartition("/")[2]
                self._put(f"/{login}/default/{name}", text)
                self._put(f"/{login}/inbox/{len(self.log)}.ics", text)

    def _changes(self, path: str, body: str) -> Answer:
        token = re.search(r"<sync-token>(.*?)</sync-token>", body)
        assert token is not None
        since = int(token[1] or 0) if (token[1] or "0").isdigit() else None
        if since is None:
            return Answer(403, '<error xmlns="DAV:"><valid-sync-token/></error>')
        changed = dict.fromkeys(each for number, each in self.log if number > since and each.startswith(path))
        responses = [
            found(each, "<getetag>&quot;x&quot;</getetag>")
            if each in self.items
            else f"<response><href>{each}</href><status>HTTP/1.1 404 Not Found</status></response>"
            for each in changed
        ]
        return multistatus(responses, str(len(self.log)))

    def _multiget(self, body: str) -> Answer:
        hrefs = re.findall(r"<href>(.*?)</href>", body)
        texts = {href: self.items[href] for href in hrefs if href in self.items}
        return multistatus(
            found(href, f"<getetag>&quot;x&quot;</getetag><C:calendar-data><![CDATA[{text}]]></C:calendar-data>")
            for href, text in texts.items()
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
                method, path, _ = first.split(" ")
                fields = (line.partition(": ")[::2] for line in rest if line)
                lines = {name.lower(): value for name, value in fields}
                body = (await reader.readexactly(int(lines.get("content-length", 0)))).decode()
                self.requests.append((method, path, body))
                answer = self.change(method, path, self.answer(method, path, lines, body))
                if answer is None:
                    break
                writer.write(answer.encode())
        writer.close()


def etag(text: str) -> str:
    return f'"{sha256(text.encode()).hexdigest()[:16]}"'


@asynccontextmanager
async def calendar_peer(
    accounts: Iterable[Account], schedules: bool = True
) -> AsyncIterator[tuple[CalendarPeer, Endpoint]]:
    peer = CalendarPeer(accounts, schedules)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    try:
        yield peer, Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in peer.writers:
            writer.transport.abort()
        await server.wait_closed()
        await turns()
