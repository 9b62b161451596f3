"""JMAP requests by hand: an oracle that shares no code with loadsim's driver."""

import base64
import http.client
import json
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urljoin, urlsplit

from patience import PATIENCE_S

USING = [f"urn:ietf:params:jmap:{name}" for name in ("core", "mail", "submission")]


class JmapConnection:
    """A user's connection to a server, which the stack closes."""

    def __init__(self, base: str, login: str, password: str, stack: ExitStack) -> None:
        self.base, self.stack = base, stack
        self.http = stack.enter_context(closing(http.client.HTTPConnection(urlsplit(base).netloc, timeout=PATIENCE_S)))
        secret = base64.b64encode(f"{login}:{password}".encode()).decode()
        self.headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/json"}

    def log_on(self) -> None:
        """Read the session, from its well-known address."""
        place = self.base + "/.well-known/jmap"
        while (answer := self.exchange("GET", urlsplit(place).path))[0] in (301, 302, 307, 308):
            place = urljoin(place, self.location)
        self.session = json.loads(answer[1])
        self.account = self.session["primaryAccounts"][USING[1]]

    def path(self, url: str, **values: str) -> str:
        """Return the path of a URL that the session names."""
        parts = urlsplit(urljoin(self.base, self.session[url].format_map({"accountId": self.account, **values})))
        return parts.path + (f"?{parts.query}" if parts.query else "")

    def exchange(self, verb: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        self.http.request(verb, path, body, self.headers | headers)
        response = self.http.getresponse()
        self.location = response.getheader("Location", "")
        return response.status, response.read()

    def post(self, request: Any) -> tuple[int, Any]:
        status, body = self.exchange("POST", self.path("apiUrl"), json.dumps(request).encode())
        return status, json.loads(body)

    def calls(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """Return the answers, without names and call ids, of calls for the user's account."""
        numbered = [[name, {"accountId": self.account, **args}, f"c{at}"] for at, (name, args) in enumerate(calls)]
        status, answer = self.post({"using": USING, "methodCalls": numbered})
        assert status == 200, answer
        return [result for _, result, _ in answer["methodResponses"]]

    def one(self, name: str, **args: Any) -> Any:
        return self.calls((name, args))[0]

    def set(self, **args: Any) -> Any:
        return self.one("Email/set", **args)

    def roles(self) -> dict[str, str]:
        return {each["role"]: each["id"] for each in self.one("Mailbox/get", ids=None)["list"] if each.get("role")}

    def role(self, role: str) -> str:
        return self.roles()[role]

    def upload(self, raw: bytes) -> str:
        status, body = self.exchange("POST", self.path("uploadUrl"), raw, **{"Content-Type": "message/rfc822"})
        assert status == 201 and json.loads(body)["size"] == len(raw)
        return str(json.loads(body)["blobId"])

    def add(self, raw: bytes, role: str = "inbox", **args: Any) -> str:
        """Import a message, and return its Email's id."""
        email = {"blobId": self.upload(raw), "mailboxIds": {self.role(role): True}, **args}
        return str(self.one("Email/import", emails={"k": email})["created"]["k"]["id"])

    def get(self, email: str, *properties: str, **args: Any) -> Any:
        return self.one("Email/get", ids=[email], properties=properties or None, **args)["list"][0]

    def state(self) -> str:
        return str(self.one("Email/get", ids=[])["state"])
