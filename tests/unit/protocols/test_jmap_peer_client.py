"""The JMAP peer serves jmapc, a client that others wrote."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from imap_script import certificate
from jmap_peer import Peer, User, jmap_peer
from jmapc import (
    Address,
    Client,
    Comparator,
    EmailQueryFilterCondition,
    EmailSubmission,
    Envelope,
    Mailbox,
    Ref,
    UndoStatus,
)
from jmapc.methods import (
    CustomMethod,
    EmailChanges,
    EmailGet,
    EmailQuery,
    EmailSet,
    EmailSubmissionSet,
    IdentityGet,
    MailboxGet,
    MailboxSet,
)

ANNA, BERT = (User(name, f"{name}@example.test", f"secret-of-{name}") for name in ("anna", "bert"))


RAW = b"""From: Anna <anna@example.test>\r
Subject: A word\r
MIME-Version: 1.0\r
Content-Type: multipart/mixed; boundary=b\r
\r
--b\r
Content-Type: text/plain\r
\r
Come at noon.\r
--b\r
Content-Type: application/pdf; name=notes.pdf\r
Content-Disposition: attachment; filename=notes.pdf\r
\r
PDF\r
--b--\r
"""

Check = Callable[[Peer, Client, Client], None]
WithClients = Callable[[Check], None]


@pytest.fixture
def with_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WithClients:
    file, tls = certificate(tmp_path, "IP:127.0.0.1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))

    def checked(peer: Peer, check: Check) -> None:
        host = peer.base.removeprefix("https://")
        anna = Client.create_with_password(host, ANNA.name, ANNA.password)
        bert = Client.create_with_api_token(host, BERT.token)
        with anna.requests_session, bert.requests_session:
            check(peer, anna, bert)

    def run(check: Check) -> None:
        async def serve() -> None:
            async with jmap_peer([ANNA, BERT], tls=tls) as peer:
                await asyncio.to_thread(checked, peer, check)

        asyncio.run(serve())

    return run


def test_jmapc_reads_mailboxes(with_clients: WithClients) -> None:
    def check(peer: Peer, anna: Client, bert: Client) -> None:
        before = anna.request(MailboxGet(ids=None), raise_errors=True)
        assert {mailbox.role for mailbox in before.data} == {"inbox", "drafts", "sent", "trash"}
        made = anna.request(
            MailboxSet(create={"a": Mailbox(name="Project", parent_id=before.data[0].id)}), raise_errors=True
        )
        project = made.created["a"].id
        assert anna.request(MailboxGet(ids=[project]), raise_errors=True).data[0].name == "Project"
        assert anna.request(MailboxSet(destroy=[project]), raise_errors=True).destroyed == [project]
        assert bert.request(MailboxGet(ids=[project]), raise_errors=True).not_found == [project]

    with_clients(check)


def test_jmapc_submits_and_reads_mail(with_clients: WithClients, tmp_path: Path) -> None:
    def check(peer: Peer, anna: Client, bert: Client) -> None:
        mailboxes = {mailbox.role: mailbox.id for mailbox in anna.request(MailboxGet(ids=None), raise_errors=True).data}
        identity = anna.request(IdentityGet(), raise_errors=True).data[0]
        (tmp_path / "word.eml").write_bytes(RAW)
        blob = anna.upload_blob(tmp_path / "word.eml")
        draft = {"blobId": blob.id, "mailboxIds": {mailboxes["drafts"]: True}, "keywords": {"$draft": True}}
        importing = CustomMethod(data={"accountId": anna.account_id, "emails": {"d": draft}})
        importing.jmap_method, importing.using = "Email/import", {"urn:ietf:params:jmap:mail"}
        made = anna.request(importing, raise_errors=True).data["created"]["d"]["id"]
        filed = {
            f"mailboxIds/{mailboxes['drafts']}": None,
            f"mailboxIds/{mailboxes['sent']}": True,
            "keywords/$draft": None,
        }
        envelope = Envelope(mail_from=Address(email=identity.email), rcpt_to=[Address(email=BERT.address)])
        create = {"s": EmailSubmission(email_id=made, identity_id=identity.id, envelope=envelope)}
        submitting = EmailSubmissionSet(create=create, on_success_update_email={"#s": filed})
        answers = anna.request([submitting], raise_errors=True)
        assert answers[0].response.created["s"].undo_status is UndoStatus.FINAL
        assert list(answers[1].response.updated) == [made]
        own = anna.request(EmailGet(ids=[made], properties=["mailboxIds", "keywords"]), raise_errors=True).data[0]
        assert (own.mailbox_ids, own.keywords) == ({mailboxes["sent"]: True}, {})

        query = EmailQuery(filter=EmailQueryFilterCondition(text="noon"), sort=[Comparator(property="receivedAt")])
        get = EmailGet(ids=Ref("/ids"), fetch_text_body_values=True)
        arrived = bert.request([query, get], raise_errors=True)[1].response.data[0]
        assert (arrived.subject, arrived.mail_from[0].email) == ("A word", ANNA.address)
        assert arrived.body_values[arrived.text_body[0].part_id].value.strip() == "Come at noon."
        bert.download_attachment(arrived.attachments[0], tmp_path / "copy.pdf")
        assert (tmp_path / "copy.pdf").read_bytes() == b"PDF"
        read = bert.request(EmailSet(update={arrived.id: {"keywords/$seen": True}}), raise_errors=True)
        since = bert.request(EmailChanges(since_state=read.old_state), raise_errors=True)
        assert (since.updated, since.new_state) == ([arrived.id], read.new_state)

    with_clients(check)
