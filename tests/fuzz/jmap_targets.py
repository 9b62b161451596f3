"""Targets without I/O: what a server of JMAP answers and pushes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from loadsim.errors import ServerRefused, TaskFailed
from loadsim.model.ports import Endpoint
from loadsim.protocols.http.responses import ResponseParser
from loadsim.protocols.jmap.calls import Call, check_set, read_answers
from loadsim.protocols.jmap.events import EventParser, email_state
from loadsim.protocols.jmap.mail import header_of, stored_of, structure_of
from loadsim.protocols.jmap.resource import CORE, MAIL, read_resource

from .mail_targets import whole_and_cut
from .mutate import mutated
from .target import Target, pieces

_LIMITS = {"maxSizeUpload": 10**7, "maxObjectsInGet": 500, "maxObjectsInSet": 20}
RESOURCE = {
    "capabilities": {CORE: _LIMITS, MAIL: {}},
    "primaryAccounts": {MAIL: "a1"},
    "apiUrl": "/jmap/",
    "uploadUrl": "/upload/{accountId}/",
    "downloadUrl": "http://127.0.0.1:8080/download/{accountId}/{blobId}/{name}?accept={type}",
    "eventSourceUrl": "/events?types={types}&closeafter={closeafter}&ping={ping}",
}
EMAIL = {
    "id": "M1",
    "mailboxIds": {"b1": True},
    "keywords": {"$seen": True},
    "size": 1234,
    "from": [{"name": None, "email": "one@sim.test"}],
    "to": [{"email": "two@sim.test"}],
    "subject": "hello",
    "messageId": ["n1.1@sim.test"],
    "inReplyTo": None,
    "header:X-LoadSim:asText": "run=r; from=1; id=n1.1; kind=ups1K; sent=1",
    "textBody": [{"partId": "1", "blobId": "B1", "type": "text/plain", "size": 9}],
    "bodyValues": {"1": {"value": "text\r\n"}},
    "attachments": [{"partId": "2", "blobId": "B2", "type": "application/x", "size": 9, "name": "a.bin"}],
}
CALLS = (Call("Email/get", {}), Call("Email/set", {}))
_SET = {"oldState": "s1", "newState": "s2", "updated": {"M1": None}, "notUpdated": {"M2": {"type": "notFound"}}}
ANSWERS = {
    "methodResponses": [["Email/get", {"state": "s1", "list": [EMAIL], "notFound": []}, "0"], ["Email/set", _SET, "1"]],
    "sessionState": "x",
}
CHANGE = {"@type": "StateChange", "changed": {"a1": {"Email": "s2", "Mailbox": "s9"}}}
EVENTS = (
    b'event: state\r\nid: 1\r\ndata: %b\r\n\r\n: comment\n\nevent: ping\ndata: {"interval": 2}\n\n'
    % json.dumps(CHANGE).encode()
)
HTTP = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 503 busy\r\nRetry-After: 5\r\nConnection: close\r\n\r\nlater",
)
JSON_WORDS = (
    *(b"null", b"true", b"[]", b"{}", b'""', b"-1", b"1e400", b"NaN", b'"\\ud800"', b'"\\u0000"', b"9" * 30),
    *(b"[" * 500, b'{"a":' * 500, b'"M1"', b'"error"', b'"id"', b",", b":", b'"' + b"x" * 400 + b'"'),
)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def _resource(data: bytes) -> None:
    found = read_resource(data, Endpoint("127.0.0.1", 8080), "/.well-known/jmap")
    for target in (found.api, found.upload, found.download):
        assert target.startswith("/") and target.isascii() and " " not in target


def _answers(data: bytes) -> None:
    """Read all that a driver takes from these answers."""
    answers = read_answers(data, CALLS)
    with suppress(TaskFailed):
        check_set(answers[1], "Email/set", updated=["M1", "M2"])
    for email in answers[0].objects("list"):
        header, stored = header_of("INBOX", email, "sim.test"), stored_of("INBOX", email)
        for text in (header.sender, header.subject, header.message_id, *header.to, stored.in_reply_to):
            assert len(text.encode().splitlines()) < 2
        structure, found = structure_of(email)
        assert {part.name for part in structure.attachments} <= found.keys()


def _events(data: bytes) -> None:
    for event in whole_and_cut(lambda: EventParser().feed, data):
        if not isinstance(event, TaskFailed):
            with suppress(TaskFailed):
                email_state(event, "a1")


def _http(data: bytes) -> None:
    parser = ResponseParser()
    for piece in pieces(data):
        parser.feed(piece)
    parser.end()
    assert parser.response is not None and 200 <= parser.response.status < 600


_FAILURES = (TaskFailed,)
_OF_HTTP = (b"\r\n", b"\r\n\r\n", b"HTTP/1.1 200\r\n", b"Content-Length: 99\r\n", b"ffffffff\r\n", b"0\r\n\r\n", b":")

TARGETS = (
    Target("jmap-resource", mutated((_encoded(RESOURCE),), JSON_WORDS), _resource, (*_FAILURES, ServerRefused)),
    Target("jmap-answers", mutated((_encoded(ANSWERS),), JSON_WORDS), _answers, _FAILURES, 2),
    Target("jmap-events", mutated((EVENTS,), (*JSON_WORDS, b"data:", b"\r", b"\n\n", b"event: state\n")), _events),
    Target("http-response", mutated(HTTP, _OF_HTTP), _http, _FAILURES),
)
