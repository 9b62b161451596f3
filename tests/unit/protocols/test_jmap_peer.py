"""The JMAP peer, by the examples and the sentences of RFC 8620."""

import base64
import http.client
import json
import urllib.request
from typing import Any

import pytest
from jmap_peer import Limits
from jmap_peer.child import peer_process
from jmap_peer.server import unchanged
from jmap_requests import USING
from patience import PATIENCE_S
from peer_connections import ANNA, BERT, RAW, Client, Events, sent, with_peer


def test_the_session_is_found_from_its_well_known_address() -> None:
    def check(client: Client) -> None:
        assert client.exchange("GET", "/.well-known/jmap")[0] == 301
        status, body = client.exchange("GET", client.location)
        session = json.loads(body)
        assert status == 200 and session["username"] == "anna"
        assert session["capabilities"]["urn:ietf:params:jmap:core"]["maxCallsInRequest"] == 16
        assert list(session["accounts"]) == [client.account]
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
        (b'{"using": [], "methodCalls": [["Email/get", {}]]}', "notRequest"),
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
        unknown, wrong, foreign, missing, right = client.calls(
            ("Foo/get", {}),
            ("Email/get", {"ids": "x"}),
            ("Email/get", {"accountId": "other"}),
            ("Email/changes", {}),
            ("Email/get", {"ids": []}),
        )
        errors = [each["type"] for each in (unknown, wrong, foreign, missing)]
        assert errors == ["unknownMethod", "invalidArguments", "accountNotFound", "invalidArguments"]
        assert right["list"] == []
        calls = [["Email/get", {"accountId": client.account}, "c"]]
        answer = client.post({"using": USING[:1], "methodCalls": calls})[1]
        assert answer["methodResponses"] == [["error", {"type": "unknownMethod"}, "c"]]

    with_peer(check)


def test_result_references_name_earlier_answers() -> None:
    def check(client: Client) -> None:
        emails = [client.add(RAW + str(number).encode()) for number in range(2)]
        query = ("Email/query", {"sort": [{"property": "receivedAt"}]})
        reference = {"resultOf": "c0", "name": "Email/query", "path": "/ids"}
        got = client.calls(query, ("Email/get", {"#ids": reference, "properties": ["threadId"]}))[1]["list"]
        assert [each["id"] for each in got] == emails
        for wrong in (reference | {"resultOf": "c9"}, reference | {"name": "x"}):
            assert client.calls(query, ("Email/get", {"#ids": wrong}))[1]["type"] == "invalidResultReference"
        assert client.calls(query, ("Email/get", {"#ids": reference, "ids": []}))[1]["type"] == "invalidArguments"

    with_peer(check)


def test_limits_are_enforced() -> None:
    limits = Limits(maxCallsInRequest=2, maxObjectsInGet=2, maxObjectsInSet=2, maxSizeRequest=2000, maxSizeUpload=2000)

    def check(client: Client) -> None:
        assert client.one("Email/get", ids=["a", "b", "c"])["type"] == "requestTooLarge"
        assert client.set(destroy=["a", "b", "c"])["type"] == "requestTooLarge"
        calls = [["Email/get", {}, "c"]] * 3
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
        assert client.one("Email/get", ids=[])["list"] == []

    with_peer(check)


def test_queries_have_order_and_window() -> None:
    def check(client: Client) -> None:
        emails = [client.add(RAW + bytes([65 + at]), receivedAt=f"2026-11-30T09:00:0{at}Z") for at in (2, 0, 1)]
        newest = [emails[0], emails[2], emails[1]]
        sort = [{"property": "receivedAt", "isAscending": False}]

        def window(**args: Any) -> Any:
            return client.one("Email/query", filter={"inMailbox": client.role("inbox")}, sort=sort, **args)

        assert window()["ids"] == newest and window(limit=2)["ids"] == newest[:2]
        assert window(position=2)["ids"] == newest[2:] and window(position=2)["position"] == 2
        assert window(position=-1)["type"] == "invalidArguments"
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


def test_each_change_is_an_event() -> None:
    def check(client: Client) -> None:
        events, theirs = Events(client), Events(client, BERT)
        client.add(RAW)
        changed = events.changed()
        assert set(changed) == {"Email", "Mailbox"} and changed["Email"] == client.state()
        sent(client, RAW + b"x", BERT.address)
        assert set(theirs.changed()) == {"Email", "Mailbox", "EmailDelivery"}

    with_peer(check)


def test_a_response_can_be_replaced() -> None:
    async def cut(request: Any, response: Any) -> Any:
        whole = await unchanged(request, response)
        return whole.encode()[:-1] if request.path == "/api/" else whole

    def check(client: Client) -> None:
        with pytest.raises(http.client.IncompleteRead):
            client.exchange("POST", "/api/", b"{}")

    with_peer(check, replace=cut)


def test_the_peer_runs_as_a_process() -> None:
    with peer_process([ANNA], "relative_urls=true", "maxCallsInRequest=3") as port:
        secret = base64.b64encode(f"{ANNA.name}:{ANNA.password}".encode()).decode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/.well-known/jmap")
        request.add_header("Authorization", f"Basic {secret}")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            session = json.load(response)
    assert session["apiUrl"] == "/api/"
    assert session["capabilities"]["urn:ietf:params:jmap:core"]["maxCallsInRequest"] == 3
