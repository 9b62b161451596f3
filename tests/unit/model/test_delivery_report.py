"""The receipts that delivery reports are, and those that anyone may forge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.model.delivery_report import LARGEST_STATUS_BYTES, confirmed, may_report

POSTFIX = (
    b"Reporting-MTA: dns; mail.localdomain\r\nOriginal-Envelope-Id: n1.1.run-1\r\nX-Postfix-Queue-ID: B9E8E336070\r\n"
    b"Arrival-Date: Mon, 30 Nov 2026 11:39:31 +0000 (UTC)\r\n\r\n"
    b"Final-Recipient: rfc822; list@loadsim.test\r\nAction: expanded\r\nStatus: 2.0.0\r\n\r\n"
    b"Final-Recipient: rfc822; u2@loadsim.test\r\nAction: relayed\r\nStatus: 2.0.0\r\n"
)
"""The status of a report by Postfix 3.7.11, shortened."""


@pytest.mark.parametrize(
    ("status", "envelope_id"),
    [
        (POSTFIX, "n1.1.run-1"),
        (POSTFIX.replace(b"\r\n", b"\n"), "n1.1.run-1"),
        (POSTFIX.replace(b"relayed", b"failed"), "n1.1.run-1"),  # the list still got it
        (POSTFIX.replace(b"relayed", b"Delivered").replace(b"expanded", b"delayed"), "n1.1.run-1"),
        (POSTFIX.replace(b"relayed", b"failed").replace(b"expanded", b"delayed"), None),
        (POSTFIX.replace(b"relayed", b"relayed-not").replace(b"expanded", b"un expanded"), None),
        (POSTFIX.replace(b"Original-Envelope-Id", b"X-Was"), None),
        (POSTFIX.replace(b"n1.1.run-1", b""), None),
        (POSTFIX.replace(b"n1.1.run-1", b"n" * 101), None),
        (POSTFIX.replace(b"n1.1.run-1", "n\u00e9".encode()), None),
        (POSTFIX.replace(b"\r\n\r\n", b"\r\n"), None),  # Action among the fields of the message
        (POSTFIX.partition(b"\r\n\r\n")[2], None),
        (b"Action: delivered\r\n\r\nOriginal-Envelope-Id: n1.1.run-1\r\n", None),
        (b"X: " + b"x" * LARGEST_STATUS_BYTES + b"\r\n" + POSTFIX, None),
        (b"", None),
    ],
)
def test_a_receipt_confirms_delivery_of_a_named_message(status: bytes, envelope_id: str | None) -> None:
    assert confirmed(status) == envelope_id


@given(st.binary(max_size=300), st.integers(0, len(POSTFIX)))
def test_any_bytes_are_read(noise: bytes, at: int) -> None:
    """A receipt has a name of printable characters, with any bytes around or within it."""
    found = confirmed(POSTFIX[:at] + noise + POSTFIX[at:])
    assert found is None or (found.isascii() and found.isprintable() and 0 < len(found) <= 100)


@pytest.mark.parametrize(
    ("sender", "may"),
    [
        *(("MAILER-DAEMON@mail.test", True), ("postmaster@loadsim.test", True), ("a@mailer-daemon.test", False)),
        *(("MicrosoftExchange329e71ec88ae@loadsim.test", True), ("user1@loadsim.test", False), ("", False)),
    ],
)
def test_reports_come_from_a_few_local_parts(sender: str, may: bool) -> None:
    assert may_report(sender) is may
