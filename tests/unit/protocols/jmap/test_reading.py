"""Reading of JMAP: the session resource, responses, events, folders and Emails are values, or an error."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.errors import GeneratorFailed, MailMissing, ProtocolError, ServerRefused
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import DELETED_ITEMS, INBOX, SENT_ITEMS, Endpoint, Flag, FolderSettings
from loadsim.protocols.http.responses import Response
from loadsim.protocols.jmap.calls import Call, check_set, problem_of, read_answers, request_body
from loadsim.protocols.jmap.events import LONGEST_EVENT_BYTES, EventParser, StreamEvent, email_state
from loadsim.protocols.jmap.folders import read_folders
from loadsim.protocols.jmap.mail import TAG, header_of, stored_of, structure_of
from loadsim.protocols.jmap.resource import CORE, MAIL, SUBMISSION, expanded, read_resource, target
from loadsim.protocols.jmap.values import Members, parse

ENDPOINT = Endpoint("127.0.0.1", 8080)
LIMITS = {"maxSizeUpload": 5000, "maxObjectsInGet": 20, "maxObjectsInSet": 10}


def resource(**changes: Any) -> bytes:
    """A session resource with Cyrus's relative URLs (RFC 8620 section 2)."""
    document = {
        "capabilities": {CORE: LIMITS, MAIL: {}, SUBMISSION: {}},
        "primaryAccounts": {MAIL: "a1"},
        "apiUrl": "/jmap/",
        "uploadUrl": "/jmap/upload/{accountId}/",
        "downloadUrl": "/jmap/download/{accountId}/{blobId}/{name}?accept={type}",
        "eventSourceUrl": "eventsource/?types={types}&closeafter={closeafter}&ping={ping}",
        **changes,
    }
    return json.dumps(document).encode()


def test_relative_urls_are_resolved_against_the_resource() -> None:
    found = read_resource(resource(), ENDPOINT, "/jmap/session")
    assert (found.account_id, found.api, found.objects_in_get) == ("a1", "/jmap/", 20)
    at = expanded(found.events, types="*", closeafter="no", ping="60")
    assert at == "/jmap/eventsource/?types=%2A&closeafter=no&ping=60"
    blob = expanded(found.download, accountId="a1", blobId="a/b c", name="x", type="text/plain")
    assert blob == "/jmap/download/a1/a%2Fb%20c/x?accept=text%2Fplain"


@pytest.mark.parametrize(
    ("url", "at"),
    [("http://127.0.0.1:8080/jmap", "/jmap"), ("http://localhost:8080?a=b", "/?a=b"), ("//127.0.0.1:8080/x", "/x")],
)
def test_a_url_of_the_same_server_may_be_absolute(url: str, at: str) -> None:
    assert target(url, ENDPOINT, "/.well-known/jmap") == at


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:8080/", "http://127.0.0.1/", "https://127.0.0.1:8080/", "http://a@127.0.0.1:81/"]
)
def test_a_url_of_another_server_is_refused(url: str) -> None:
    """Only the scenario decides where load goes."""
    with pytest.raises(ServerRefused, match="URL of another server"):
        read_resource(resource(apiUrl=url), ENDPOINT, "/")


@pytest.mark.parametrize(
    "change",
    [
        {"apiUrl": "/a b"},
        {"apiUrl": "/a\r\nHost: other"},
        {"apiUrl": 1},
        {"apiUrl": "/" + "a" * 3000},
        {"uploadUrl": None},
        {"apiUrl": "http://[::1"},
        {"primaryAccounts": {MAIL: "../x"}},
        {"capabilities": {CORE: LIMITS | {"maxObjectsInGet": -1}, MAIL: {}}},
        {"capabilities": [CORE]},
    ],
)
def test_a_malformed_resource_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="expected"):
        read_resource(resource(**change), ENDPOINT, "/")


def test_an_account_without_mail_is_refused() -> None:
    with pytest.raises(ServerRefused, match="no mail account"):
        read_resource(resource(primaryAccounts={}), ENDPOINT, "/")


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 100_000, b'{"a":NaN}', b"{", b"\xff", b"[]", b"1" * 5000])
def test_json_that_is_too_deep_or_is_none_is_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(body, "Response").list("methodResponses")


def answers(*responses: Any, calls: int = 1) -> Any:
    body = json.dumps({"methodResponses": responses, "sessionState": "s"}).encode()
    return read_answers(body, [Call("Email/get", {})] * calls)


def test_responses_belong_to_calls_by_id_in_any_number() -> None:
    """A call may imply others, which are answered under its id (RFC 8620 section 3.4)."""
    found = answers(["Email/set", {"newState": "2"}, "0"], ["Email/get", {"state": "1"}, "0"])
    assert (found[0].text("state"), found.of(0, "Email/set").text("newState")) == ("1", "2")


@pytest.mark.parametrize(
    ("responses", "failure"),
    [
        ((["error", {"type": "unknownMethod"}, "0"],), ServerRefused),
        ((), ProtocolError),
        ((["Email/get", {}, "1"],), ProtocolError),
        ((["Email/get", {}, "99999999999"],), ProtocolError),
        ((["Email/get", [], "0"],), ProtocolError),
        ((["Email/get", {}],), ProtocolError),
        ((3,), ProtocolError),
    ],
)
def test_a_missing_or_malformed_response_is_an_error(responses: tuple[Any, ...], failure: type[Exception]) -> None:
    with pytest.raises(failure):
        answers(*responses)[0]


def test_a_method_error_is_named_by_type_and_method_and_nothing_else_of_it() -> None:
    with pytest.raises(ServerRefused) as caught:
        answers(["error", {"type": "a b\r\nc", "description": "why"}, "0"])[0]
    assert caught.value.kind == "malformed Email/get"


SET = {
    "updated": {"a": None},
    "destroyed": ["d"],
    "notUpdated": {"b": {"type": "notFound"}, "c": {"type": "forbidden", "description": "no"}},
    "notCreated": {"k": {"type": "alreadyExists", "existingId": "x"}},
}


@pytest.mark.parametrize(
    ("asked", "failure", "kind"),
    [
        ({"updated": ["a"], "destroyed": ["d"]}, None, ""),
        ({"updated": ["a", "b"]}, MailMissing, "notFound Email/set"),
        ({"updated": ["c"]}, ServerRefused, "forbidden Email/set"),
        ({"created": ["k"]}, GeneratorFailed, "alreadyExists Email/set"),
        ({"updated": ["neither"]}, MailMissing, "Email/set without effect"),
        ({"destroyed": ["a"]}, MailMissing, "Email/set without effect"),
    ],
)
def test_each_object_of_a_set_must_be_done(
    asked: dict[str, list[str]], failure: type[Exception] | None, kind: str
) -> None:
    if failure is None:
        check_set(Members(SET, "Email/set"), "Email/set", **asked)
        return
    with pytest.raises(failure) as caught:
        check_set(Members(SET, "Email/set"), "Email/set", **asked)
    assert getattr(caught.value, "kind", "") == kind


def test_a_request_names_only_the_capabilities_that_it_uses() -> None:
    """A server without submission rejects a request that names it (RFC 8620 section 3.6.1)."""
    reading = json.loads(request_body([Call("Email/get", {"ids": []})], "a1"))
    assert reading == {"using": [CORE, MAIL], "methodCalls": [["Email/get", {"accountId": "a1", "ids": []}, "0"]]}
    assert SUBMISSION in json.loads(request_body([Call("Identity/get", {})], "a1"))["using"]


@pytest.mark.parametrize(
    ("response", "kind", "line"),
    [
        (Response(503, "Busy", {"retry-after": "7"}, {}, b""), "503 Email/get", "Busy; Retry-After: 7"),
        (
            Response(
                400,
                "",
                {"content-type": "application/problem+json"},
                {},
                b'{"type":"urn:ietf:params:jmap:error:limit","limit":"maxObjectsInGet","detail":"too many"}',
            ),
            "400 limit maxObjectsInGet Email/get",
            "too many",
        ),
        (Response(400, "Bad", {"content-type": "application/json"}, {}, b'{"type":4}'), "400 Email/get", "Bad"),
        (Response(400, "Bad", {"content-type": "application/json"}, {}, b"<"), "400 Email/get", "Bad"),
    ],
)
def test_a_status_is_a_kind_of_failure_and_a_line(response: Response, kind: str, line: str) -> None:
    assert problem_of(response, "Email/get") == (kind, line)


STREAM = b": hello\r\nevent: ping\ndata: {}\n\nevent: state\rdata: a\rdata: b\r\rdata:last\n\n"
EVENTS = [StreamEvent("ping", "{}"), StreamEvent("state", "a\nb"), StreamEvent("message", "last")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_are_the_same_in_any_pieces(cuts: list[int]) -> None:
    """Lines end with CR, LF or CRLF (the HTML standard, section 9.2.6)."""
    places, parser = sorted({0, len(STREAM), *cuts}), EventParser()
    found = [event for at, end in itertools.pairwise(places) for event in parser.feed(STREAM[at:end])]
    assert found == EVENTS


@pytest.mark.parametrize("piece", [b"data: " + b"a" * LONGEST_EVENT_BYTES, b":\n" * LONGEST_EVENT_BYTES])
def test_an_endless_event_is_an_error(piece: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(EventParser().feed(piece))


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (StreamEvent("state", '{"@type":"StateChange","changed":{"a1":{"Email":"7","Mailbox":"8"}}}'), "7"),
        (StreamEvent("state", '{"changed":{"a1":{"Mailbox":"8"}}}'), None),
        (StreamEvent("state", '{"changed":{"a2":{"Email":"8"}}}'), None),
        (StreamEvent("ping", '{"interval":2}'), None),
    ],
)
def test_a_state_change_has_the_state_of_the_accounts_emails(event: StreamEvent, state: str | None) -> None:
    assert email_state(event, "a1") == state


def mailbox(its_id: str, name: str, parent: str | None = None, role: str | None = None, total: int = 0) -> Members:
    return Members({"id": its_id, "name": name, "parentId": parent, "role": role, "totalEmails": total}, "Mailbox")


def test_folders_have_the_names_of_their_roles_and_paths() -> None:
    found = read_folders(
        [
            mailbox("i", "Inbox", role="inbox", total=3),
            mailbox("s", "Gesendet", role="sent"),
            mailbox("t", "Trash", role="trash"),
            mailbox("p", "A/B"),
            mailbox("c", "C%", "p"),
            mailbox("o", "orphan", "missing"),
            mailbox("x", "loop", "y"),
            mailbox("y", "loop", "x"),
        ],
        FolderSettings(trash="A%2FB/C%25"),
    )
    assert found.ids == {INBOX: "i", SENT_ITEMS: "s", "Trash": "t", "A%2FB": "p", DELETED_ITEMS: "c"}
    assert found.messages[INBOX] == 3
    assert found.names.path(DELETED_ITEMS) == "A%2FB/C%25"


def test_a_header_has_the_ports_values() -> None:
    email = {
        "id": "e1",
        "mailboxIds": {"i": True},
        "keywords": {"$seen": True, "$forwarded": True, "x": True},
        "size": 900,
        "from": [{"name": None, "email": "user2@example.test"}],
        "to": [{"email": "a@b"}, {"name": "x", "email": "c@d"}],
        "subject": None,
        "messageId": ["1@example.test"],
        "header:X-LoadSim:asText": None,
    }
    header = header_of(INBOX, Members(email, "Email"), "example.test")
    assert header.flags == {Flag.SEEN, Flag.FORWARDED}
    assert (header.sender, header.to, header.subject) == ("user2@example.test", ("a@b", "c@d"), "")
    assert (header.message_id, header.tag, header.size_bytes) == ("<1@example.test>", None, 900)


@pytest.mark.parametrize(
    ("received", "sent_us", "misdated"),
    [
        ("2025-11-01T00:13:00Z", 1_761_955_980_277_661, False),
        ("2025-11-01T01:13:00+01:00", 1_761_955_980_277_661, False),
        ("2025-11-01T00:13:01Z", 1_761_955_980_277_661, True),
        ("2025-11-01T00:13:00Z", 2**63 - 1, True),
        ("yesterday", 1_761_955_980_277_661, True),
        ("9999-12-31T23:59:59-23:59", 1_761_955_980_277_661, True),
    ],
)
def test_a_stored_message_is_misdated_unless_received_when_sent(received: str, sent_us: int, misdated: bool) -> None:
    tag = MessageTag("initial", 2, "i1", "ups1K", sent_us, "0" * 16)
    email = {"id": "e1", "keywords": {}, "receivedAt": received, TAG: f" {tag.header()}"}
    stored = stored_of(INBOX, Members(email, "Email"))
    assert (stored.tag, stored.misdated) == (tag, misdated)


def test_a_structure_has_the_text_and_every_other_part() -> None:
    email = {
        "textBody": [{"partId": "1", "blobId": "b1", "size": 4, "type": "text/plain"}],
        "bodyValues": {"1": {"value": "a\nb"}},
        "attachments": [
            {"partId": "2", "blobId": "b2", "size": 57, "name": "f\r\n.doc", "type": "Application/msword"},
            {"partId": "3", "blobId": "b3", "size": 9, "type": "message/delivery-status"},
        ],
    }
    structure, parts = structure_of(Members(email, "Email"))
    assert structure.text is not None and structure.text.name == "1" and parts["1"].text == "a\nb"
    assert [(part.filename, part.size_bytes, part.encoding) for part in structure.attachments] == [
        ("f .doc", 76, "base64"),
        (None, 9, "7bit"),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "type", "1"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["id", "keywords", "size", "from", "to", "subject", "messageId", "textBody", "bodyValues", "attachments"]
FIELDS += ["receivedAt", "inReplyTo", TAG]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_json_as_an_email_is_a_value_or_an_error(email: dict[str, Any]) -> None:
    for read in (lambda of: header_of(INBOX, of, "example.test"), structure_of, partial(stored_of, INBOX)):
        try:
            read(Members(email, "Email"))
        except ProtocolError as error:
            assert error.kind == "JMAP response"


def test_no_text_has_a_lone_surrogate() -> None:
    """An escape may make one, which no later step could encode; raw, it is not UTF-8."""
    found = parse(rb'{"subject": "a\ud800b", "ids": ["\udfff"], "\ud800": 1}', "Email")
    assert (found.text("subject"), found.texts("ids"), found.names()) == ("a?b", ["?"], ["subject", "ids", "?"])
    with pytest.raises(ProtocolError):
        parse(b'{"subject": "a\xed\xa0\x80b"}', "Email")
