"""The JMAP peer serves jmapc, a client that others wrote."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from imap_script import certificate
from jmap_peer import Peer, User, jmap_peer
from jmapc import (
    Client,
    Comparator,
    Email,
    EmailAddress,
    EmailBodyPart,
    EmailBodyValue,
    EmailQueryFilterCondition,
    EmailSubmission,
    Mailbox,
    MailboxQueryFilterCondition,
    Ref,
    UndoStatus,
)
from jmapc.client import EventSourceConfig
from jmapc.methods import (
    CoreEcho,
    EmailChanges,
    EmailGet,
    EmailQuery,
    EmailSet,
    EmailSubmissionSet,
    IdentityGet,
    MailboxChanges,
    MailboxGet,
    MailboxQuery,
    MailboxSet,
    ThreadGet,
)

ANNA, BERT = (User(name, f"{name}@example.test", f"secret-of-{name}") for name in ("anna", "bert"))


Check = Callable[[Peer, Client, Client], None]
WithClients = Callable[[Check], None]


@pytest.fixture
def with_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WithClients:
    file, tls = certificate(tmp_path, "IP:127.0.0.1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))

    def checked(peer: Peer, check: Check) -> None:
        host = peer.base.removeprefix("https://")
        settings = EventSourceConfig(types="Email", closeafter="state")
        anna = Client.create_with_password(
            host, ANNA.name, ANNA.password, last_event_id="0.0.0", event_source_config=settings
        )
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
        assert anna.request(CoreEcho(data={"hello": "world"}), raise_errors=True).data == {"hello": "world"}
        before = anna.request(MailboxGet(ids=None), raise_errors=True)
        assert {mailbox.role for mailbox in before.data} == {"inbox", "drafts", "sent", "trash"}
        made = anna.request(
            MailboxSet(create={"a": Mailbox(name="Project", parent_id=before.data[0].id)}), raise_errors=True
        )
        project = made.created["a"].id
        found = anna.request(MailboxQuery(filter=MailboxQueryFilterCondition(name="proj")), raise_errors=True)
        assert found.ids == [project]
        assert anna.request(MailboxChanges(since_state=before.state), raise_errors=True).created == [project]
        assert anna.request(MailboxSet(destroy=[project]), raise_errors=True).destroyed == [project]
        assert bert.request(MailboxGet(ids=[project]), raise_errors=True).not_found == [project]

    with_clients(check)


def test_jmapc_sends_files_and_reads_mail(with_clients: WithClients, tmp_path: Path) -> None:
    def check(peer: Peer, anna: Client, bert: Client) -> None:
        mailboxes = {mailbox.role: mailbox.id for mailbox in anna.request(MailboxGet(ids=None), raise_errors=True).data}
        identity = anna.request(IdentityGet(), raise_errors=True).data[0]
        (tmp_path / "notes.pdf").write_bytes(b"PDF")
        blob = anna.upload_blob(tmp_path / "notes.pdf")
        email = Email(
            mail_from=[EmailAddress(name="Anna", email=identity.email)],
            to=[EmailAddress(email=BERT.address)],
            subject="A word",
            keywords={"$draft": True},
            mailbox_ids={mailboxes["drafts"]: True},
            body_values={"t": EmailBodyValue(value="Come at noon.")},
            text_body=[EmailBodyPart(part_id="t", type="text/plain")],
            attachments=[EmailBodyPart(blob_id=blob.id, type=blob.type, name="notes.pdf")],
        )
        filed = {
            f"mailboxIds/{mailboxes['drafts']}": None,
            f"mailboxIds/{mailboxes['sent']}": True,
            "keywords/$draft": None,
        }
        create = {"s": EmailSubmission(email_id="#d", identity_id=identity.id)}
        answers = anna.request(
            [EmailSet(create={"d": email}), EmailSubmissionSet(create=create, on_success_update_email={"#s": filed})],
            raise_errors=True,
        )
        made = answers[0].response.created["d"].id
        assert answers[1].response.created["s"].undo_status is UndoStatus.FINAL
        assert list(answers[2].response.updated) == [made]
        own = anna.request(EmailGet(ids=[made]), raise_errors=True).data[0]
        assert (own.mailbox_ids, own.keywords) == ({mailboxes["sent"]: True}, {})
        event = next(iter(anna.events))
        assert event.data.changed[anna.account_id].email == anna.request(EmailGet(ids=[]), raise_errors=True).state

        query = EmailQuery(filter=EmailQueryFilterCondition(text="noon"), sort=[Comparator(property="receivedAt")])
        get = EmailGet(ids=Ref("/ids"), fetch_text_body_values=True)
        found = bert.request([query, get, ThreadGet(ids=Ref("/list/*/threadId"))], raise_errors=True)
        arrived = found[1].response.data[0]
        assert (arrived.subject, arrived.mail_from[0].email) == ("A word", ANNA.address)
        assert arrived.body_values[arrived.text_body[0].part_id].value.strip() == "Come at noon."
        assert found[2].response.data[0].email_ids == [arrived.id]
        bert.download_attachment(arrived.attachments[0], tmp_path / "copy.pdf")
        assert (tmp_path / "copy.pdf").read_bytes() == b"PDF"
        read = bert.request(EmailSet(update={arrived.id: {"keywords/$seen": True}}), raise_errors=True)
        since = bert.request(EmailChanges(since_state=read.old_state), raise_errors=True)
        assert (since.updated, since.new_state) == ([arrived.id], read.new_state)

    with_clients(check)
