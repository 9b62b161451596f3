"""The JMAP peer with the dialects of servers, and with faults."""

import json
from dataclasses import replace

from jmap_peer import Switches
from peer_connections import RAW, Client, Events, with_peer


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
        answer = client.one("Email/query", limit=3)
        assert (len(answer["ids"]), answer["limit"]) == (2, 2)
        before = client.state()
        client.set(update={emails[0]: {f"mailboxIds/{client.role('trash')}": True}}, ifInState="ignored")
        assert client.one("Email/changes", sinceState=before)["created"] == [emails[0]]
        client.set(destroy=emails[:1])
        assert client.one("Email/changes", sinceState=before)["destroyed"] == [emails[0]]

    with_peer(check, Switches(other_order=True, query_limit=2, moved_is_created=True, ignores_if_in_state=True))


def test_events_have_the_types_that_the_server_pushes() -> None:
    def check(client: Client) -> None:
        events = Events(client)
        client.add(RAW)
        assert events.changed() == {"Email": client.state()}

    with_peer(check, Switches(push_types=("Email",)))


def test_switches_of_imports() -> None:
    def check(client: Client) -> None:
        email = {"blobId": client.upload(RAW), "mailboxIds": {client.role("inbox"): True}}
        refused = client.one("Email/import", emails={"k": email})["notCreated"]["k"]
        assert refused["properties"] == ["keywords"]
        imported = client.one("Email/import", emails={"k": email | {"keywords": {"a": True}}})
        again = client.one("Email/import", emails={"k": email | {"keywords": {"b": True}}})["notCreated"]["k"]
        assert again == {"type": "alreadyExists", "existingId": imported["created"]["k"]["id"]}

    with_peer(check, Switches(no_unread_import=True, content_ids=True))


def test_switches_of_answers() -> None:
    def check(client: Client) -> None:
        email = {"blobId": client.upload(RAW), "mailboxIds": {client.role("inbox"): True}}
        assert set(client.one("Email/import", emails={"k": email})) == {"accountId", "created", "notCreated"}
        assert client.one("Identity/get")["list"][0]["email"] == ""

    with_peer(check, Switches(identity_without_address=True, import_without_states=True))


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

    with_peer(check)
