"""The JMAP peer with the dialects of servers, and with faults."""

import json
from dataclasses import replace

from jmap_peer import Switches
from peer_connections import RAW, Client, Events, draft, with_peer


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


def test_events_have_the_types_that_the_server_pushes() -> None:
    def check(client: Client) -> None:
        events, never = Events(client), Events(client, "EmailDelivery", ping=1)
        client.add(RAW)
        assert events.changed(client) == {"Email": client.state()}
        assert never.next()["event"] == "ping"

    with_peer(check, Switches(push_types=("Email",)))


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
