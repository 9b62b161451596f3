"""The JMAP peer, by the examples and the sentences of RFC 8620 and RFC 8621."""

import asyncio
import base64
import http.client
import json
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jmap_peer import Limits, Peer, Switches, User, jmap_peer
from jmap_peer.child import peer_process
from jmap_peer.server import unchanged
from jmap_requests import USING, JmapConnection
from patience import PATIENCE_S

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


def test_the_session_is_found_from_its_well_known_address() -> None:
    def check(client: Client) -> None:
        assert client.exchange("GET", "/.well-known/jmap")[0] == 301
        status, body = client.exchange("GET", client.location)
        session = json.loads(body)
        assert status == 200 and session["username"] == "anna"
        assert session["capabilities"]["urn:ietf:params:jmap:core"]["maxCallsInRequest"] == 16
        assert list(session["accounts"]) == [account.id for account in client.peer.usable["anna"]]
        assert session["primaryAccounts"]["urn:ietf:params:jmap:mail"] == client.account
        assert session["apiUrl"] == f"{client.peer.base}/api/"
        assert client.exchange("GET", "/session", Authorization="Basic eDp5")[0] == 401
        assert client.exchange("GET", "/session", Authorization=f"Bearer {ANNA.token}")[0] == 200
        assert client.exchange("GET", "/session", Authorization="Bearer x")[0] == 401

    with_peer(check)


@pytest.mark.parametrize(
    ("request_body", "error"),
    [
        (b"{", "notJSON"),
        (b'{"using": [], "using": [], "methodCalls": []}', "notJSON"),
        (b'{"using": []}', "notRequest"),
        (b'{"using": [], "methodCalls": [["Core/echo", {}]]}', "notRequest"),
        (b'{"using": ["https://example.com/apis/foobar"], "methodCalls": []}', "unknownCapability"),
    ],
)
def test_request_errors_are_problem_documents(request_body: bytes, error: str) -> None:
    def check(client: Client) -> None:
        status, body = client.exchange("POST", "/api/", request_body)
        assert (status, json.loads(body)["type"]) == (400, f"urn:ietf:params:jmap:error:{error}")

    with_peer(check)


def test_method_errors_leave_the_other_calls_alone() -> None:
    def check(client: Client) -> None:
        unknown, wrong, foreign, missing, echo = client.calls(
            ("Foo/get", {}),
            ("Email/get", {"ids": "x"}),
            ("Email/get", {"accountId": "other"}),
            ("Email/changes", {}),
            ("Core/echo", {"hello": True}),
        )
        errors = [each["type"] for each in (unknown, wrong, foreign, missing)]
        assert errors == ["unknownMethod", "invalidArguments", "accountNotFound", "invalidArguments"]
        assert echo["hello"] is True
        calls = [["Email/get", {"accountId": client.account}, "c"]]
        answer = client.post({"using": USING[:1], "methodCalls": calls})[1]
        assert answer["methodResponses"] == [["error", {"type": "unknownMethod"}, "c"]]

    with_peer(check)


def test_result_references_reach_into_arrays() -> None:
    def check(client: Client) -> None:
        emails = [client.add(RAW + str(number).encode()) for number in range(2)]
        query = ("Email/query", {"sort": [{"property": "receivedAt"}]})
        get = (
            "Email/get",
            {"#ids": {"resultOf": "c0", "name": "Email/query", "path": "/ids"}, "properties": ["threadId"]},
        )
        path = "/list/*/threadId"
        threads = ("Thread/get", {"#ids": {"resultOf": "c1", "name": "Email/get", "path": path}})
        assert client.calls(query, get, threads)[2]["list"] == [
            {"id": client.get(emails[0])["threadId"], "emailIds": emails}
        ]
        for reference in (
            {"resultOf": "c9", "name": "Email/query", "path": "/ids"},
            {"resultOf": "c0", "name": "x", "path": "/ids"},
        ):
            assert client.calls(query, ("Email/get", {"#ids": reference}))[1]["type"] == "invalidResultReference"
        assert client.calls(query, (get[0], get[1] | {"ids": []}))[1]["type"] == "invalidArguments"

    with_peer(check)


def test_limits_are_enforced() -> None:
    limits = Limits(maxCallsInRequest=2, maxObjectsInGet=2, maxObjectsInSet=2, maxSizeRequest=2000, maxSizeUpload=2000)

    def check(client: Client) -> None:
        assert client.one("Email/get", ids=["a", "b", "c"])["type"] == "requestTooLarge"
        assert client.set(destroy=["a", "b", "c"])["type"] == "requestTooLarge"
        calls = [["Core/echo", {}, "c"]] * 3
        assert client.post({"using": USING, "methodCalls": calls})[1]["limit"] == "maxCallsInRequest"
        assert client.post({"using": USING, "methodCalls": [], "x": "x" * 2000})[1]["limit"] == "maxSizeRequest"
        status, body = client.exchange("POST", f"/upload/{client.account}/", b"x" * 2001)
        assert (status, json.loads(body)["limit"]) == (400, "maxSizeUpload")

    with_peer(check, limits=limits)


def test_requests_at_the_same_time_are_limited() -> None:
    def check(client: Client) -> None:
        waiting = [client.another() for _ in range(4)]
        for each in waiting:
            each.http.putrequest("POST", "/api/")
            for name, value in (each.headers | {"Content-Length": "2"}).items():
                each.http.putheader(name, value)
            each.http.endheaders(b"{")
        # Each of the four holds a request's place once the server has read its head.
        while sum(client.peer._running.values()) < 4:
            client.another().exchange("GET", "/session")
        assert client.post({"using": USING, "methodCalls": []})[1]["limit"] == "maxConcurrentRequests"
        for each in waiting:
            each.http.send(b"}")
            assert json.loads(each.http.getresponse().read())["type"].endswith("notRequest")
        assert client.one("Core/echo") == {"accountId": client.account}

    with_peer(check)


def test_an_email_shows_its_message() -> None:
    def check(client: Client) -> None:
        email = client.get(client.add(RAW, receivedAt="2026-11-30T09:00:01Z", keywords={"$Seen": True}))
        assert email["receivedAt"] == "2026-11-30T09:00:01Z" and email["keywords"] == {"$seen": True}
        assert email["size"] == len(RAW) and email["mailboxIds"] == {client.role("inbox"): True}
        assert email["from"] == [{"name": "Jürgen", "email": "jo@example.test"}]
        assert (email["subject"], email["sentAt"]) == ("a long subject", "2026-11-30T10:00:00+01:00")
        assert (email["messageId"], email["hasAttachment"], email["preview"]) == (
            ["one@example.test"],
            True,
            "Schön, a needle",
        )
        assert email["bodyValues"] == {}
        assert [part["name"] for part in email["attachments"]] == ["a.pdf"]
        assert client.exchange("GET", f"/download/{client.account}/{email['blobId']}/m")[1] == RAW
        attachment = email["attachments"][0]
        assert client.exchange("GET", f"/download/{client.account}/{attachment['blobId']}/a.pdf")[1] == b"PDF"
        assert attachment["size"] == 3
        assert client.exchange("GET", f"/download/{client.account}/{attachment['blobId']}9/a.pdf")[0] == 404

    with_peer(check)


def test_headers_have_the_forms_that_were_asked_for() -> None:
    def check(client: Client) -> None:
        names = [
            "header:X-LoadSim:asText",
            "header:x-loadsim",
            "header:Subject:asRaw",
            "header:To:asAddresses:all",
            "header:No",
        ]
        email = client.get(client.add(RAW), *names)
        assert [email[name] for name in names[:3]] == ["run=r; sender=1", " run=r; sender=1", "  a long\r\n subject"]
        assert email[names[3]] == [
            [
                {"name": "James Smythe", "email": "james@example.test"},
                {"name": None, "email": "jane@example.test"},
                {"name": "John Smîth", "email": "john@example.test"},
            ]
        ]
        assert email[names[4]] is None
        for forbidden in ("header:From:asDate", "header:Subject:asAddresses", "nonsense"):
            assert client.one("Email/get", ids=[email["id"]], properties=[forbidden])["type"] == "invalidArguments"

    with_peer(check)


def test_bodies_come_with_the_email() -> None:
    def check(client: Client) -> None:
        email = client.add(RAW)
        got = client.get(email, "textBody", "bodyValues", fetchTextBodyValues=True, maxBodyValueBytes=5)
        assert got["bodyValues"] == {"1": {"value": "Schö", "isEncodingProblem": False, "isTruncated": True}}
        structure = client.get(email, "bodyStructure", bodyProperties=["partId", "type"])["bodyStructure"]
        assert structure == {
            "partId": None,
            "type": "multipart/mixed",
            "subParts": [
                {"partId": "1", "type": "text/plain", "subParts": None},
                {"partId": "2", "type": "application/pdf", "subParts": None},
            ],
        }

    with_peer(check)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"text": "needle"}, True),
        ({"text": "haystack"}, False),
        ({"from": "jürgen"}, True),
        ({"subject": '"long subject"'}, True),
        ({"subject": '"subject long"'}, False),
        ({"body": "schön"}, True),
        ({"header": ["X-LoadSim"]}, True),
        ({"header": ["X-LoadSim", "sender=2"]}, False),
        ({"hasKeyword": "$seen"}, True),
        ({"notKeyword": "$seen"}, False),
        ({"before": "2026-11-30T09:00:01Z"}, False),
        ({"after": "2026-11-30T09:00:01Z"}, True),
        ({"operator": "NOT", "conditions": [{"text": "needle"}, {"text": "haystack"}]}, False),
        ({"operator": "OR", "conditions": [{"text": "needle"}, {"text": "haystack"}]}, True),
        ({"operator": "AND", "conditions": [{"text": "needle"}, {"text": "haystack"}]}, False),
    ],
)
def test_filters_find_emails(condition: dict[str, Any], found: bool) -> None:
    def check(client: Client) -> None:
        email = client.add(RAW, receivedAt="2026-11-30T09:00:01Z", keywords={"$seen": True})
        assert client.one("Email/query", filter=condition)["ids"] == [email] * found

    with_peer(check)


def test_queries_have_order_and_window() -> None:
    def check(client: Client) -> None:
        emails = [client.add(RAW + bytes([65 + at]), receivedAt=f"2026-11-30T09:00:0{at}Z") for at in (2, 0, 1)]
        newest = [emails[0], emails[2], emails[1]]
        sort = [{"property": "receivedAt", "isAscending": False}]

        def window(**args: Any) -> Any:
            return client.one("Email/query", filter={"inMailbox": client.role("inbox")}, sort=sort, **args)

        assert window()["ids"] == newest and "total" not in window()
        assert (window(limit=2, calculateTotal=True)["ids"], window(limit=2, calculateTotal=True)["total"]) == (
            newest[:2],
            3,
        )
        assert window(position=-1)["ids"] == newest[2:] and window(position=-1)["position"] == 2
        assert window(anchor=newest[1], anchorOffset=-1, limit=1)["ids"] == newest[:1]
        assert window(collapseThreads=True)["ids"] == newest[:1]
        assert window(anchor="x")["type"] == "anchorNotFound"
        assert client.one("Email/query", sort=[{"property": "x"}])["type"] == "unsupportedSort"
        assert client.one("Email/query", filter={"x": 1})["type"] == "unsupportedFilter"

    with_peer(check)


def test_changes_are_net_and_come_in_portions() -> None:
    def check(client: Client) -> None:
        start = client.state()
        first, second, third = (client.add(RAW + bytes([65 + at])) for at in range(3))
        middle = client.state()
        client.set(update={first: {"keywords/$seen": True}}, destroy=[second])

        def since(state: str, **args: Any) -> Any:
            return client.one("Email/changes", sinceState=state, **args)

        def kinds(answer: Any) -> tuple[Any, ...]:
            return answer["created"], answer["updated"], answer["destroyed"], answer["hasMoreChanges"]

        assert kinds(since(start)) == ([first, third], [], [], False)
        assert kinds(since(middle)) == ([], [first], [second], False)
        portion = since(start, maxChanges=1)
        assert kinds(portion) == ([first], [], [], True)
        seen, state = [first], portion["newState"]
        while portion["hasMoreChanges"]:
            portion = since(state, maxChanges=1)
            seen, state = [*seen, *portion["created"]], portion["newState"]
        assert (seen, state) == ([first, second, third], client.state())
        assert since("nonsense")["type"] == "cannotCalculateChanges"
        assert since(start, maxChanges=0)["type"] == "invalidArguments"
        before = client.state()
        client.set(update={first: {"keywords/$seen": True}})
        assert client.state() == before

    with_peer(check)


def test_patches_change_keywords_and_mailboxes() -> None:
    def check(client: Client) -> None:
        email, inbox, trash = client.add(RAW), client.role("inbox"), client.role("trash")
        client.set(update={email: {"keywords/$seen": True, f"mailboxIds/{trash}": True, f"mailboxIds/{inbox}": None}})
        assert client.get(email, "keywords", "mailboxIds") == {
            "id": email,
            "keywords": {"$seen": True},
            "mailboxIds": {trash: True},
        }
        refused = [
            ({f"mailboxIds/{trash}": None}, "invalidProperties"),
            ({"mailboxIds": {"other": True}}, "invalidProperties"),
            ({"subject": "x"}, "invalidProperties"),
            ({"keywords": {}, "keywords/a": True}, "invalidPatch"),
            ({"keywords/a b": True}, "invalidProperties"),
        ]
        for patch, error in refused:
            assert client.set(update={email: patch})["notUpdated"][email]["type"] == error
        assert client.set(update={"x": {}}, destroy=["y"]) | {"oldState": 0, "newState": 0} == {
            "accountId": client.account,
            "oldState": 0,
            "newState": 0,
            "created": None,
            "updated": None,
            "destroyed": None,
            "notCreated": None,
            "notUpdated": {"x": {"type": "notFound"}},
            "notDestroyed": {"y": {"type": "notFound"}},
        }
        assert client.set(ifInState="old", destroy=[email])["type"] == "stateMismatch"
        assert client.set(ifInState=client.state(), destroy=[email])["destroyed"] == [email]

    with_peer(check)


def test_mailboxes_count_their_emails() -> None:
    def check(client: Client) -> None:
        before = client.one("Mailbox/get", ids=[])["state"]
        client.add(RAW), client.add(RAW + b"x", keywords={"$seen": True})
        inbox = client.one("Mailbox/get", ids=[client.role("inbox")])["list"][0]
        counts = [inbox[name] for name in ("totalEmails", "unreadEmails", "totalThreads", "unreadThreads")]
        assert counts == [2, 1, 1, 1]
        assert client.one("Mailbox/changes", sinceState=before)["updated"] == [inbox["id"]]
        assert client.one("Mailbox/query", filter={"role": "sent"})["ids"] == [client.role("sent")]

    with_peer(check)


def test_mailboxes_can_be_made_and_removed() -> None:
    def check(client: Client) -> None:
        create = {
            "a": {"name": "Project"},
            "b": {"name": "Sub", "parentId": "#a"},
            "c": {"name": "Inbox", "parentId": None},
        }
        answer = client.one("Mailbox/set", create=create | {"d": {"name": "Bin", "role": "trash"}})
        errors = {key: error["properties"] for key, error in answer["notCreated"].items()}
        assert errors == {"c": ["name"], "d": ["role"]}
        project, sub = (answer["created"][key]["id"] for key in "ab")
        email = client.one("Email/import", emails={"k": {"blobId": client.upload(RAW), "mailboxIds": {sub: True}}})[
            "created"
        ]["k"]["id"]
        first = client.one("Mailbox/set", destroy=[project, sub])["notDestroyed"]
        assert {key: error["type"] for key, error in first.items()} == {
            project: "mailboxHasChild",
            sub: "mailboxHasEmail",
        }
        looped = client.one("Mailbox/set", update={project: {"parentId": sub}})["notUpdated"][project]
        assert looped["properties"] == ["parentId"]
        assert client.one("Mailbox/set", destroy=[sub], onDestroyRemoveEmails=True)["destroyed"] == [sub]
        assert client.one("Email/get", ids=[email])["notFound"] == [email]

    with_peer(check)


def test_a_submission_delivers_and_files_the_sent_mail() -> None:
    def check(client: Client) -> None:
        drafts, sent, identity = client.role("drafts"), client.role("sent"), client.one("Identity/get")["list"][0]
        patch = {f"mailboxIds/{drafts}": None, f"mailboxIds/{sent}": True, "keywords/$draft": None}
        created, submitted, implicit = client.calls(
            ("Email/set", {"create": {"d": draft(client)}}),
            (
                "EmailSubmission/set",
                {
                    "create": {"s": {"emailId": "#d", "identityId": identity["id"]}},
                    "onSuccessUpdateEmail": {"#s": patch},
                },
            ),
        )
        email = created["created"]["d"]["id"]
        assert implicit["updated"] == {email: None}
        own = client.get(email, "mailboxIds", "keywords", "header:X-LoadSim:asText", "bcc", "subject")
        assert (own["mailboxIds"], own["keywords"]) == ({sent: True}, {"$seen": True})
        assert (own["header:X-LoadSim:asText"], own["subject"], len(own["bcc"])) == ("run=r", "Grüße", 1)
        submission = submitted["created"]["s"]
        assert list(submission["deliveryStatus"]) == [BERT.address, ANNA.address]
        assert client.one("EmailSubmission/get", ids=[submission["id"]])["list"][0]["undoStatus"] == "final"
        there = client.another(BERT)
        arrived = there.one("Email/query", filter={"inMailbox": there.role("inbox")})["ids"]
        got = there.get(arrived[0], "from", "bcc", "bodyValues", "textBody", fetchTextBodyValues=True)
        assert (got["from"], got["bcc"]) == ([{"name": "Änna", "email": ANNA.address}], None)
        assert next(iter(got["bodyValues"].values()))["value"].rstrip("\n") == "first\nsecond ü"

    with_peer(check)


@pytest.mark.parametrize(
    ("changes", "envelope", "error"),
    [
        ({}, {"mailFrom": {"email": ANNA.address}, "rcptTo": [{"email": "no@example.test"}]}, "invalidRecipients"),
        ({}, {"mailFrom": {"email": ANNA.address}, "rcptTo": []}, "noRecipients"),
        ({}, {"mailFrom": {"email": BERT.address}, "rcptTo": [{"email": BERT.address}]}, "forbiddenMailFrom"),
        ({"from": [{"email": BERT.address}], "sender": [{"email": ANNA.address}]}, None, "forbiddenFrom"),
        ({}, {"mailFrom": None}, "invalidProperties"),
    ],
)
def test_a_refused_submission_sends_nothing(changes: dict[str, Any], envelope: Any, error: str) -> None:
    def check(client: Client) -> None:
        submission = {"emailId": "#d", "identityId": "i1", "envelope": envelope}
        email_set = ("Email/set", {"create": {"d": draft(client, **changes)}})
        args = {"create": {"s": submission}, "onSuccessDestroyEmail": ["#s"]}
        answers = client.calls(email_set, ("EmailSubmission/set", args))
        assert [len(answers), answers[1]["notCreated"]["s"]["type"]] == [2, error]
        if error == "invalidRecipients":
            assert answers[1]["notCreated"]["s"]["invalidRecipients"] == ["no@example.test"]
        assert client.another(BERT).one("Email/query")["ids"] == []

    with_peer(check)


def test_a_submission_may_destroy_its_draft() -> None:
    def check(client: Client) -> None:
        submission = {"create": {"s": {"emailId": "#d", "identityId": "i1"}}, "onSuccessDestroyEmail": ["#s"]}
        answers = client.calls(("Email/set", {"create": {"d": draft(client)}}), ("EmailSubmission/set", submission))
        assert answers[2]["destroyed"] == [answers[0]["created"]["d"]["id"]]

    with_peer(check)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"mailboxIds": {}}, "invalidProperties"),
        ({"header:Subject": "again"}, "invalidProperties"),
        ({"header:Content-Type": "x"}, "invalidProperties"),
        ({"header:To:asDate": "x"}, "invalidProperties"),
        ({"headers": []}, "invalidProperties"),
        ({"textBody": [{"partId": "u"}]}, "invalidProperties"),
        ({"attachments": [{"blobId": "Bx"}]}, "blobNotFound"),
    ],
)
def test_an_ambiguous_email_is_refused(change: dict[str, Any], error: str) -> None:
    def check(client: Client) -> None:
        assert client.set(create={"d": draft(client, **change)})["notCreated"]["d"]["type"] == error

    with_peer(check)


def test_an_email_has_the_attachments_that_were_uploaded() -> None:
    def check(client: Client) -> None:
        part = {"blobId": client.upload(b"PDF"), "type": "application/pdf", "name": "a.pdf"}
        html = {"bodyValues": {"t": {"value": "plain"}, "h": {"value": "<b>rich</b>"}}, "htmlBody": [{"partId": "h"}]}
        made = client.set(create={"d": draft(client, attachments=[part], **html)})["created"]["d"]
        email = client.get(made["id"], fetchAllBodyValues=True)
        assert [value["value"].strip() for value in email["bodyValues"].values()] == ["plain", "<b>rich</b>"]
        assert [(part["type"], part["name"], part["size"]) for part in email["attachments"]] == [
            ("application/pdf", "a.pdf", 3)
        ]
        assert [part["type"] for part in email["htmlBody"]] == ["text/html"]

    with_peer(check)


def test_imports_answer_each_message() -> None:
    def check(client: Client) -> None:
        inbox, blob = client.role("inbox"), client.upload(RAW)
        answer = client.one(
            "Email/import",
            emails={
                "good": {"blobId": blob, "mailboxIds": {inbox: True}},
                "blob": {"blobId": "Bx", "mailboxIds": {inbox: True}},
                "place": {"blobId": blob, "mailboxIds": {"x": True}},
                "date": {"blobId": blob, "mailboxIds": {inbox: True}, "receivedAt": "yesterday"},
            },
        )
        assert set(answer["created"]["good"]) == {"id", "blobId", "threadId", "size"}
        assert {key: error["properties"] for key, error in answer["notCreated"].items()} == {
            "blob": ["blobId"],
            "place": ["mailboxIds"],
            "date": ["receivedAt"],
        }

    with_peer(check)


def test_an_email_is_copied_to_another_account() -> None:
    def check(client: Client) -> None:
        email, there = client.add(RAW, keywords={"a": True}), client.another(BERT)
        args = {"fromAccountId": client.account, "onSuccessDestroyOriginal": True}
        create = {"k": {"id": email, "mailboxIds": {there.role("inbox"): True}}}
        copied, destroyed = client.calls(("Email/copy", args | {"accountId": there.account, "create": create}))
        assert there.get(copied["created"]["k"]["id"])["keywords"] == {"a": True}
        assert destroyed["destroyed"] == [email]
        assert client.one("Email/copy", fromAccountId=client.account)["type"] == "invalidArguments"
        assert there.one("Email/copy", fromAccountId=client.account)["type"] == "fromAccountNotFound"

    with_peer(check)


def test_creation_ids_travel_with_a_request() -> None:
    def check(client: Client) -> None:
        email = client.add(RAW)
        calls = [["Email/set", {"accountId": client.account, "update": {"#k": {"keywords/a": True}}}, "c"]]
        answer = client.post({"using": USING, "methodCalls": calls, "createdIds": {"k": email}})[1]
        assert answer["createdIds"] == {"k": email}
        assert answer["methodResponses"][0][1]["updated"] == {email: None}

    with_peer(check)


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


def test_each_change_is_an_event() -> None:
    def check(client: Client) -> None:
        everything, mail = Events(client), Events(client, "Email,EmailDelivery")
        email = client.add(RAW)
        assert set(everything.changed(client)) == {"Email", "Mailbox", "Thread"}
        assert mail.changed(client) == {"Email": client.state()}
        args = {"create": {"s": {"emailId": "#d", "identityId": "i1"}}, "onSuccessDestroyEmail": ["#s"]}
        there = client.another(BERT)
        there.calls(
            (
                "Email/set",
                {"create": {"d": draft(there, ANNA.address, **{"from": [{"email": BERT.address}], "bcc": None})}},
            ),
            ("EmailSubmission/set", args),
        )
        pushed = mail.changed(client)
        assert pushed == {"Email": client.state(), "EmailDelivery": pushed["EmailDelivery"]}
        client.set(destroy=[email])
        again = Events(client, "Email", last=mail.last)
        assert again.changed(client) == {"Email": client.state()}

    with_peer(check)


def test_an_event_source_closes_or_pings_as_asked() -> None:
    def check(client: Client) -> None:
        events, pinged = Events(client, closeafter="state"), Events(client, ping=1)
        assert pinged.next() == {"event": "ping", "data": '{"interval": 1}'}
        client.add(RAW)
        assert events.next()["event"] == "state"
        assert events.next() == {}

    with_peer(check)


def test_switches_of_the_session() -> None:
    def check(client: Client) -> None:
        assert client.exchange("GET", "/session") == (401, b"")
        accept = "application/json; jmapVersion=rfc-8621"
        status, body = client.exchange("GET", "/session", Accept=accept)
        assert (status, json.loads(body)["apiUrl"]) == (200, "/api/")
        assert client.exchange("GET", "/events/", Accept=accept)[0] == 204

    with_peer(check, Switches(relative_urls=True, needs_version=True, push=False))


def test_switches_of_reading() -> None:
    def check(client: Client) -> None:
        emails = [client.add(RAW + str(at).encode(), keywords={"a": True}) for at in range(3)]
        assert [each["id"] for each in client.one("Email/get", ids=emails[::-1])["list"]] == emails
        answer = client.one("Email/query", calculateTotal=True, limit=3)
        assert (len(answer["ids"]), answer["limit"], "total" in answer) == (2, 2, False)
        before = client.state()
        client.set(update={emails[0]: {"mailboxIds": {client.role("trash"): True}}}, ifInState="ignored")
        assert client.one("Email/changes", sinceState=before)["created"] == [emails[0]]
        client.set(destroy=emails[:1])
        assert client.one("Email/changes", sinceState=before)["destroyed"] == [emails[0]]

    with_peer(
        check, Switches(other_order=True, query_limit=2, no_total=True, moved_is_created=True, ignores_if_in_state=True)
    )


def test_switches_of_imports() -> None:
    def check(client: Client) -> None:
        email = {"blobId": client.upload(RAW), "mailboxIds": {client.role("inbox"): True}}
        refused = client.one("Email/import", emails={"k": email})["notCreated"]["k"]
        assert refused["properties"] == ["keywords"]
        imported, submitted = client.calls(
            ("Email/import", {"emails": {"k": email | {"keywords": {"a": True}}}}),
            ("EmailSubmission/set", {"create": {"s": {"emailId": "#k", "identityId": "i1"}}}),
        )
        assert submitted["notCreated"]["s"]["properties"] == ["emailId"]
        again = client.one("Email/import", emails={"k": email | {"keywords": {"b": True}}})["notCreated"]["k"]
        assert again == {"type": "alreadyExists", "existingId": imported["created"]["k"]["id"]}

    with_peer(check, Switches(no_unread_import=True, unresolved_imports=True, content_ids=True))


def test_switches_of_answers() -> None:
    switches = Switches(
        omits_nulls=True, accepts_unknown=True, identity_without_address=True, import_without_states=True
    )

    def check(client: Client) -> None:
        email = {"blobId": client.upload(RAW), "mailboxIds": {client.role("inbox"): True}}
        assert set(client.one("Email/import", emails={"k": email})) == {"accountId", "created"}
        assert client.one("Identity/get")["list"][0]["email"] == ""
        created, submitted = client.calls(
            ("Email/set", {"create": {"d": draft(client, "no@example.test", bcc=None)}}),
            ("EmailSubmission/set", {"create": {"s": {"emailId": "#d", "identityId": "i1"}}}),
        )
        assert set(submitted["created"]) == {"s"}
        made = created["created"]["d"]["id"]
        assert client.get(made, "to", "cc") == {"id": made, "to": [{"email": "no@example.test"}]}
        assert client.set(update={made: {"keywords/a": True}})["updated"] == {made: None}

    with_peer(check, switches)


def test_faults_are_those_that_state_checks_look_for() -> None:
    def check(client: Client) -> None:
        emails, before = [client.add(RAW + str(at).encode()) for at in range(2)], client.state()

        def fault(**switches: bool) -> None:
            client.peer.switches = replace(Switches(), **switches)

        fault(keeps_state=True)
        client.set(update={emails[0]: {"keywords/$seen": True}})
        assert client.get(emails[0])["keywords"] == {"$seen": True} and client.state() == before
        fault(changes_omit=True)
        client.set(update={each: {"keywords/b": True} for each in emails})
        assert client.one("Email/changes", sinceState=before)["updated"] == emails[:1]
        fault(changes_invent=True)
        assert client.one("Email/changes", sinceState=before)["created"] == ["invented"]
        fault(listed_not_found=True)
        assert client.one("Email/get", ids=emails)["notFound"] == emails[:1]
        fault(pushes_old_state=True)
        events, old = Events(client, "Email"), client.state()
        client.set(update={emails[0]: {"keywords/c": True}})
        assert events.changed(client) == {"Email": old}

    with_peer(check)


def test_a_response_can_be_replaced() -> None:
    async def cut(request: Any, response: Any) -> Any:
        whole = await unchanged(request, response)
        return whole.encode()[:-1] if request.path == "/api/" else whole

    def check(client: Client) -> None:
        with pytest.raises(http.client.IncompleteRead):
            client.exchange("POST", "/api/", b"{}")

    with_peer(check, replace=cut)


def test_the_peer_runs_as_a_process(tmp_path: Path) -> None:
    with peer_process(tmp_path, [ANNA], "relative_urls=true", "maxCallsInRequest=3") as port:
        secret = base64.b64encode(f"{ANNA.name}:{ANNA.password}".encode()).decode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/.well-known/jmap")
        request.add_header("Authorization", f"Basic {secret}")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            session = json.load(response)
    assert session["apiUrl"] == "/api/"
    assert session["capabilities"]["urn:ietf:params:jmap:core"]["maxCallsInRequest"] == 3
