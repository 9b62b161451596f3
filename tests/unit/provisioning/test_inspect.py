"""The owner of a message: rules on headers that any sender may have written."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailservers import DOMAIN, StartDovecotPostfix, idling, inbox, numbered_accounts, submit
from provisioning import own_message

from loadsim.errors import ServerRefused
from loadsim.model.message_tag import OUTSIDE_DOMAIN, MessageTag, vouched
from loadsim.model.ports import INBOX, Account, Part, Structure
from loadsim.model.provisioning_ports import Provisioning
from loadsim.provisioning.clean import Cleaned, clean_mailbox
from loadsim.provisioning.inspect import LARGEST_HEADER_BYTES, returned_tag
from loadsim.provisioning.sessions import visit

REPORT = b'Content-Type: multipart/report; boundary="b"; report-type=delivery-status\r\n\r\n'
RETURNED = own_message(1).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
TAG = MessageTag("r1", 2, "n2.1", "ups1K", 1, "0" * 16)


@dataclass
class Memory:
    """A mailbox of one message, by its parts: the header, and what a report returns."""

    head: bytes = REPORT
    returned: bytes = RETURNED
    returned_type: str = "text/rfc822-headers"
    size_bytes: int = 1000
    fetched: list[str] = field(default_factory=list)

    async def structure(self, ref: Any) -> Structure:
        return Structure(
            Part("1", "text/plain", 10),
            (Part("2", "message/delivery-status", 10), Part("3", self.returned_type, self.size_bytes)),
        )

    async def part(self, ref: Any, part: Part) -> bytes:
        self.fetched.append(part.name)
        wanted = "3" if self.returned_type.startswith("text/") or self.returned_type.endswith("headers") else "3.HEADER"
        if part.name not in ("HEADER", wanted):
            raise ServerRefused("FETCH without data")
        return self.head if part.name == "HEADER" else self.returned


def ours(mailbox: Any) -> bool:
    return asyncio.run(returned_tag(mailbox, 1, DOMAIN)) is not None


@pytest.mark.parametrize(
    "content_type",
    [
        b"multipart/report; report-type=delivery-status; boundary=b",
        b'MULTIPART/Report;\r\n\tboundary="b";\r\n report-type="delivery-status"',
        b'multipart/report ; boundary="b;c" ; Report-Type = Delivery-Status ; charset=x',
    ],
)
@pytest.mark.parametrize(
    "returned", ["text/rfc822-headers", "message/rfc822", "message/global", "message/global-headers"]
)
def test_bounces_of_loadsims_mail_are_recognised(content_type: bytes, returned: str) -> None:
    """Any spelling of Content-Type and any returned part will do; of a whole message only the header is read."""
    mailbox = Memory(b"Content-Type: " + content_type + b"\r\n\r\n", returned_type=returned)
    assert ours(mailbox)
    assert mailbox.fetched == ["HEADER", "3" if returned.endswith("headers") else "3.HEADER"]


@pytest.mark.parametrize(
    "content_type",
    [
        b"",
        b"multipart/mixed; report-type=delivery-status",
        b"multipart/report",
        b"multipart/report; report-type=disposition-notification",
        b"multipart/report; report-type=delivery-status-not",
        b"multipart/report; x-report-type=delivery-status",
        b"multipart/report; report-type=delivery-status\r\nContent-Type: multipart/mixed",
        b"multipart/report; report-type=delivery-status; x=" + b"x" * 1000,
    ],
)
def test_other_content_types_are_no_bounce(content_type: bytes) -> None:
    assert not ours(Memory(b"Content-Type: " + content_type + b"\r\n\r\n"))


def test_large_headers_are_not_read() -> None:
    """Neither what says that it is large, nor what is."""
    large = b"X: " + b"x" * LARGEST_HEADER_BYTES + b"\r\n"
    stated = Memory(size_bytes=LARGEST_HEADER_BYTES + 1)
    assert not ours(stated)
    assert "3" not in stated.fetched
    assert not ours(Memory(head=large + REPORT))
    assert not ours(Memory(returned=large + RETURNED))


@given(st.binary(max_size=400), st.integers(0, 400), st.booleans())
def test_any_bytes_are_a_header(noise: bytes, at: int, in_head: bool) -> None:
    head, returned = REPORT, RETURNED
    if in_head:
        head = head[:at] + noise + head[at:]
    else:
        returned = returned[:at] + noise + returned[at:]
    assert ours(Memory(head, returned)) in (True, False)


@given(st.text(max_size=60), st.text(max_size=60))
def test_only_senders_and_ids_of_loadsim_are_its_own(sender: str, message_id: str) -> None:
    """From and Message-ID must both be those of loadsim."""
    right = (f"b@{DOMAIN}", f"<n2.1.r1@{DOMAIN}>")
    assert vouched(TAG, *right, DOMAIN)
    assert vouched(TAG, f"sender1@{OUTSIDE_DOMAIN}", right[1], DOMAIN)
    assert not vouched(TAG, f"sender1@{OUTSIDE_DOMAIN}", f"<n2.1.r1@{OUTSIDE_DOMAIN}>", DOMAIN)
    assert not vouched(TAG, sender, message_id, DOMAIN)
    assert not vouched(TAG, right[0], message_id, DOMAIN)
    assert not vouched(TAG, f"b@sub.{DOMAIN}", right[1], DOMAIN)
    assert not vouched(TAG, f"b@{DOMAIN}.evil.test", right[1], DOMAIN)


@pytest.mark.system
def test_a_bounce_by_postfix_is_recognised(dovecot_postfix: StartDovecotPostfix) -> None:
    """Postfix accepts mail for a mailbox that Dovecot no longer has, and returns it."""
    accounts = numbered_accounts(2)
    server = dovecot_postfix(accounts)
    known = server.layout.dovecot_conf.parent / "users"
    lines = [line for line in known.read_text().splitlines(keepends=True) if "user2" not in line]
    known.write_text("".join(lines))
    ours = own_message(1).replace(b"a@" + DOMAIN.encode(), accounts[0].address.encode())
    with idling(server, accounts[0]) as next_count:
        for message in (ours, ours.replace(b"Message-ID: <", b"Message-ID: <x")):
            submit(server.services, accounts[0].address, [accounts[1].address], message)
        while next_count() < 2:
            pass

    async def work(account: Account, mailbox: Provisioning) -> Cleaned:
        return await clean_mailbox(account, mailbox, dry_run=False)

    (cleaned,) = asyncio.run(visit(accounts[:1], server.services, work, lambda done, of: None))
    assert isinstance(cleaned, Cleaned)
    assert (cleaned.messages, cleaned.foreign) == ({INBOX: 1}, {INBOX: 1})
    (left,) = inbox(server, accounts[0])
    assert b"Message-ID: <x" in left
