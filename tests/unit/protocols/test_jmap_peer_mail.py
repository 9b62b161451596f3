"""The mail of the JMAP peer, by the sentences of RFC 8621."""

from typing import Any

import pytest
from peer_connections import ANNA, BERT, RAW, Client, sent, with_peer


def test_an_email_shows_its_message() -> None:
    def check(client: Client) -> None:
        email = client.get(client.add(RAW, receivedAt="2026-11-30T09:00:01Z", keywords={"$Seen": True}))
        assert email["receivedAt"] == "2026-11-30T09:00:01Z" and email["keywords"] == {"$seen": True}
        assert email["size"] == len(RAW) and email["mailboxIds"] == {client.role("inbox"): True}
        assert email["from"] == [{"name": "Jürgen", "email": ANNA.address}]
        assert (email["subject"], email["messageId"]) == ("a long subject", ["one@example.test"])
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
        names = ["header:X-LoadSim:asText", "to", "header:X-No:asText"]
        email = client.get(client.add(RAW), *names)
        people = [("James Smythe", "james"), (None, "jane"), ("John Smîth", "john")]
        addresses = [{"name": name, "email": f"{local}@example.test"} for name, local in people]
        assert [email[name] for name in names] == ["run=r; sender=1", addresses, None]
        for unknown in ("header:X-LoadSim:asAddresses", "header:From", "nonsense"):
            assert client.one("Email/get", ids=[email["id"]], properties=[unknown])["type"] == "invalidArguments"

    with_peer(check)


def test_bodies_come_with_the_email() -> None:
    def check(client: Client) -> None:
        properties = ("textBody", "bodyValues")
        got = client.get(client.add(RAW), *properties, fetchTextBodyValues=True, bodyProperties=["partId", "type"])
        assert got["textBody"] == [{"partId": "1", "type": "text/plain"}]
        assert got["bodyValues"]["1"] == {"value": "Schön, a needle", "isEncodingProblem": False, "isTruncated": False}

    with_peer(check)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"text": "needle"}, True),
        ({"text": "haystack"}, False),
        ({"from": "jürgen"}, True),
        ({"subject": "subject long"}, True),
        ({"subject": "needle"}, False),
        ({"from": "jürgen", "text": "haystack"}, False),
    ],
)
def test_filters_find_emails(condition: dict[str, Any], found: bool) -> None:
    def check(client: Client) -> None:
        email = client.add(RAW)
        assert client.one("Email/query", filter=condition)["ids"] == [email] * found

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
            ({"keywords": {}}, "invalidProperties"),
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
        client.add(RAW), client.add(RAW + b"x", keywords={"$seen": True})
        inbox = client.one("Mailbox/get", ids=[client.role("inbox")])["list"][0]
        assert (inbox["totalEmails"], inbox["unreadEmails"]) == (2, 1)

    with_peer(check)


def test_mailboxes_can_be_made_and_removed() -> None:
    def check(client: Client) -> None:
        create = {"a": {"name": "Project"}, "c": {"name": "Inbox", "parentId": None}}
        answer = client.one("Mailbox/set", create=create | {"d": {"name": "Bin", "role": "trash"}})
        errors = {key: error["properties"] for key, error in answer["notCreated"].items()}
        assert errors == {"c": ["name"], "d": ["role"]}
        project = answer["created"]["a"]["id"]
        within = {"b": {"name": "Sub", "parentId": project}, "e": {"name": "E", "parentId": "x"}}
        lower = client.one("Mailbox/set", create=within)
        assert lower["notCreated"]["e"]["properties"] == ["parentId"]
        sub = lower["created"]["b"]["id"]
        new = {"k": {"blobId": client.upload(RAW), "mailboxIds": {sub: True}}}
        email = client.one("Email/import", emails=new)["created"]["k"]["id"]
        first = client.one("Mailbox/set", destroy=[project, sub])["notDestroyed"]
        assert [first[each]["type"] for each in (project, sub)] == ["mailboxHasChild", "mailboxHasEmail"]
        assert client.one("Mailbox/set", destroy=[sub], onDestroyRemoveEmails=True)["destroyed"] == [sub]
        assert client.one("Email/get", ids=[email])["notFound"] == [email]

    with_peer(check)


def test_a_submission_delivers_and_files_the_sent_mail() -> None:
    def check(client: Client) -> None:
        drafts, sent_items = client.role("drafts"), client.role("sent")
        patch = {f"mailboxIds/{drafts}": None, f"mailboxIds/{sent_items}": True, "keywords/$draft": None}
        draft, submitted, implicit = sent(client, RAW, BERT.address, **patch)
        assert set(submitted["created"]) == {"s"} and implicit["updated"] == {draft: None}
        own = client.get(draft, "mailboxIds", "keywords")
        assert (own["mailboxIds"], own["keywords"]) == ({sent_items: True}, {})
        there = client.another(BERT)
        (arrived,) = there.one("Email/query", filter={"inMailbox": there.role("inbox")})["ids"]
        at = there.path("downloadUrl", blobId=there.get(arrived)["blobId"], name="m", type="a/b")
        raw = there.exchange("GET", at)[1]
        assert raw.startswith(b"Received: ") and raw.endswith(RAW)

    with_peer(check)


@pytest.mark.parametrize(
    ("raw", "recipients", "error"),
    [
        (RAW, ["no@example.test"], "invalidRecipients"),
        (RAW, [], "noRecipients"),
        (RAW.replace(b"anna@", b"bert@"), [BERT.address], "forbiddenFrom"),
    ],
)
def test_a_refused_submission_sends_nothing(raw: bytes, recipients: list[str], error: str) -> None:
    def check(client: Client) -> None:
        _, *answers = sent(client, raw, *recipients, **{"keywords/$draft": None})
        assert [len(answers), answers[0]["notCreated"]["s"]["type"]] == [1, error]
        assert client.another(BERT).one("Email/query")["ids"] == []

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
