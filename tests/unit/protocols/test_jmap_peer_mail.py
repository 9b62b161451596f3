"""The mail of the JMAP peer, by the sentences of RFC 8621."""

from typing import Any

import pytest
from peer_connections import ANNA, BERT, RAW, Client, draft, with_peer


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
