"""Whole messages: headers, the X-LoadSim tag, and content from the templates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

from loadsim.model.content import headers, prose, schedule, templates
from loadsim.model.content.sized import SizedContents
from loadsim.model.draws import draw, pick
from loadsim.model.message_tag import ANSWER, HEADER, INITIAL_RUN, MessageTag, body_digest, has_digest, initial_id
from loadsim.model.ports import Header, Part

SCHEDULE = "schedule"
"""The kind in a schedule's tag."""

READ_RECEIPT = "read_receipt"
_ANSWERS = {
    **{"reply": ("Re: ", "answer"), "reply_all": ("Re: ", "answer"), "forward": ("Fwd: ", "forward")},
    READ_RECEIPT: ("Read: ", ""),
}
_READ_RECEIPT_TEXT = (
    b"This is a receipt for the mail that you sent. It says that the message was displayed,\r\n"
    b"not that it was read or understood.\r\n"
)
_ANSWER_TEXT_BYTES = 1024
_ANSWER_TEXTS = 128  # for replies, and the same number for forwards

_INITIAL_MONTH_US = 1_761_955_200_000_000  # 2025-11-01 00:00 UTC
_INITIAL_STEP_US = 30 * 60 * 1_000_000
_INITIAL_STEPS = 1440  # 30 days

_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_ENCODINGS = frozenset({"7bit", "8bit", "binary", "base64", "quoted-printable"})


@dataclass(frozen=True, slots=True)
class Answered:
    """A message being answered: its Message-ID and subject; `how` is reply, reply_all, forward or read_receipt.

    If it has no Message-ID (""), its answer has no In-Reply-To and no References (RFC 5322 section 3.6.4).
    """

    message_id: str
    subject: str
    how: str

    @classmethod
    def of(cls, header: Header, how: str) -> Answered:
        """Return the parts of a message that its answer quotes; the message may have any header."""
        known = headers.is_message_id(header.message_id)
        return cls(header.message_id if known else "", headers.one_line(header.subject), how)


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment to forward; `encoded` has the unchanged bytes between its header and the boundary."""

    content_type: str
    filename: str | None
    encoding: str
    encoded: bytes | bytearray

    @classmethod
    def of(cls, part: Part, encoded: bytes | bytearray) -> Attachment:
        """Return a part of a message, without MIME fields that a header cannot hold."""
        encoding = part.encoding if part.encoding.lower() in _ENCODINGS else "binary"
        # If the encoding is unknown, so is the type (RFC 2045 section 6.4).
        known = encoding == part.encoding and _MEDIA_TYPE.fullmatch(part.content_type)
        name = None if part.filename is None else headers.one_line(part.filename)[: headers.LONGEST_FILE_NAME]
        return cls(part.content_type if known else "application/octet-stream", name, encoding, encoded)

    def __repr__(self) -> str:
        return f"Attachment({self.content_type!r}, {self.filename!r}, {len(self.encoded)} bytes)"


def least_bytes(tag: MessageTag | None) -> tuple[int, int]:
    """Return the minimum sizes of a message's encoded text and file; 0 if it has none, or was made to an exact size."""
    kind = None if tag is None else templates.KINDS.get(tag.kind)
    if tag is None or kind is None:
        return 0, 0
    text_bytes = _ANSWER_TEXT_BYTES if tag.id.startswith(ANSWER) else kind.text_bytes
    return text_bytes, templates.file_bytes(kind.attached) if kind.attached else 0


class Contents:
    """Makes the messages of a run, which depend only on the seed and the arguments."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._pool = templates.Pool(seed)
        self._events = cache(partial(schedule.make_event, seed))
        self._sized = SizedContents(self._pool)

    def prepare(self) -> None:
        """Make all texts and attachments now, in about a second, so that a run need not wait for them.

        This does not change the messages.
        """
        self._pool.prepare({"answer": _ANSWER_TEXTS, "forward": _ANSWER_TEXTS}, _ANSWER_TEXT_BYTES)
        for variant in range(schedule.EVENTS):
            self._events(variant)

    def compose(
        self,
        *,
        run: str,
        sender: int,
        sender_address: str,
        to: Sequence[str],
        id: str,  # noqa: A002  (mail's own word)
        kind: str,
        sent_us: int,
        domain: str,
        answers: Answered | None = None,
        attachment: Attachment | None = None,
        size_bytes: int | None = None,
        requests_receipt: bool = False,
    ) -> bytes:
        """Return a message (RFC 5322, CRLF): a new one of this kind or size (as `initial`), or an answer.

        Text and attachment are drawn from (seed, "body", id), so the same id has the same body in every run. An answer
        has a text of 1 KB; a forward also has the unchanged `attachment`. An answer's `kind` appears only in its tag.
        A read receipt is one of RFC 8098; with `requests_receipt`, recipients are asked for one (section 2.1).
        Raises `ValueError` for values that a header cannot hold, and if there are no recipients.
        """
        u = draw(self._seed, 0, "body", id)
        further = f"Disposition-Notification-To: {headers.address(sender_address)}\r\n" if requests_receipt else ""

        def head(digest: str) -> bytes:
            tag = MessageTag(
                run=run, sender=sender, id=id, kind=headers.dotted("kind", kind), sent_us=sent_us, body=digest
            )
            return _head(tag, domain, headers.address(sender_address), to, subject, further)

        if answers is None:
            subject = prose.subject(self._seed, id)
            if size_bytes is None:
                content = self._pool.new(kind, u)
            else:
                content = self._sized.make(size_bytes - len(head(body_digest(b""))), u)  # digests have one length
        else:
            mark, style = _ANSWERS[answers.how]
            subject = headers.answer_subject(mark, answers.subject)
            if answers.message_id:
                further += f"In-Reply-To: {answers.message_id}\r\nReferences: {answers.message_id}\r\n"
            variant = pick(u, _ANSWER_TEXTS)
            if answers.how == READ_RECEIPT:
                content = _read_receipt(id, sender_address, answers.message_id)
            elif attachment is None:
                content = self._pool.plain(style, _ANSWER_TEXT_BYTES, variant)
            else:
                text = self._pool.text(style, _ANSWER_TEXT_BYTES, variant)
                content = templates.enclose("multipart/mixed", id, text, forwarded(attachment))
        return b"".join((head(content.digest), content.header, b"\r\n", *content.pieces))

    def initial(
        self,
        *,
        user: int,
        address: str,
        sender: int,
        sender_address: str,
        folder: str,
        index: int,
        kind: str,
        domain: str,
        size_bytes: int | None = None,
        sent_us: int | None = None,
    ) -> bytes:
        """Return message `index` (from 0) in a start-state folder, always with the same bytes.

        Its date is `sent_us`. If this is None, dates are about half an hour apart in November 2025 and, from index
        1,440, a second apart in December. With `size_bytes`, the message has this size (or slightly more, if header and
        one line do not fit), and `kind` appears only in its tag.
        """
        if sent_us is None:
            u = draw(self._seed, user, "initial date", f"{folder}/{index}")
            further = max(0, index - _INITIAL_STEPS)
            step_us = _INITIAL_STEP_US if index < _INITIAL_STEPS else 1_000_000
            sent_us = _INITIAL_MONTH_US + (index - further) * _INITIAL_STEP_US + further * step_us + pick(u, step_us)
        message_id = initial_id(user, folder, index)
        unsigned = MessageTag(INITIAL_RUN, sender, message_id, kind, sent_us, body_digest(b""))
        subject = prose.subject(self._seed, message_id)
        head = _head(unsigned, domain, headers.address(sender_address), (address,), subject, "")
        u = draw(self._seed, 0, "body", message_id)
        content = self._pool.new(kind, u) if size_bytes is None else self._sized.make(size_bytes - len(head), u)
        head = head.replace(unsigned.body.encode(), content.digest.encode(), 1)  # both have the same length
        return b"".join((head, content.header, b"\r\n", *content.pieces))

    def sent(self, tag: MessageTag, is_text: bool) -> Iterator[templates.Entity]:
        """Yield the texts, or files, that a message with this id may have; nothing if it was made to an exact size.

        Only the sender knows whether an answer is a reply or a forward, and which file a forward has.
        """
        kind, u = templates.KINDS.get(tag.kind), draw(self._seed, 0, "body", tag.id)
        if tag.id.startswith(ANSWER):
            if is_text:
                for style in ("answer", "forward"):
                    yield self._pool.text(style, _ANSWER_TEXT_BYTES, pick(u, _ANSWER_TEXTS))
            elif kind is not None and kind.attached is not None:
                for variant in range(kind.attached.variants):
                    yield self._pool.file(tag.kind, variant)
        elif kind is not None and kind.attached is not None:
            yield self._pool.parts(tag.kind, u)[not is_text]
        elif kind is not None and is_text:
            content = self._pool.new(tag.kind, u)
            yield templates.Entity(content.header, content.pieces[0])

    def word(self, tag: MessageTag, u: float) -> str | None:
        """Return a word in a message's text; None if only its sender knows the text."""
        texts = [] if tag.id.startswith(ANSWER) else [*self.sent(tag, True)]
        return prose.long_word(texts[0].body.partition(b"=")[0].decode("ascii"), u) if texts else None

    def is_altered(self, tag: MessageTag, part: Part, data: bytes | bytearray, is_text: bool, alone: bool) -> bool:
        """Return whether a part's bytes or encoding differ from what was sent; False if that is unknown.

        If `alone`, the part is the whole body. Slow checks run only if a plain comparison fails.
        """
        if not tag.body:
            return False
        sent, lines = [*self.sent(tag, is_text)], data.rstrip(b"\r\n")
        same = next((entity for entity in sent if data == entity.body), None) or next(
            (entity for entity in sent if lines == entity.body.rstrip(b"\r\n")), None
        )  # servers may drop the last line break, or add one
        if same and part.encoding and templates.encoded(part.encoding) != same.encoded:
            return True
        if same and (is_text or not tag.id.startswith(ANSWER)):
            return False
        if is_text and any(templates.quoted_printable(bytes(lines) + b"\r\n") == entity.body for entity in sent):
            return False  # MAPI does not keep the transfer encoding
        if alone:
            return not has_digest(data, tag.body)
        u = draw(self._seed, 0, "body", tag.id)
        if not tag.id.startswith(ANSWER):
            return tag.kind in templates.KINDS and self._pool.new(tag.kind, u).digest == tag.body
        text = self._pool.text("forward", _ANSWER_TEXT_BYTES, pick(u, _ANSWER_TEXTS))

        def has(body: bytes | bytearray) -> bool:
            file = forwarded(Attachment.of(part, body))
            return templates.enclose("multipart/mixed", tag.id, text, file).digest == tag.body

        if is_text or has(data) or has(data.removesuffix(b"\r\n")) or has(data + b"\r\n"):
            return is_text
        # The bytes are those of a file that may have been sent, but the server may state other MIME fields. Then the
        # part is altered only if another file matches the digest.
        return same is None or any(has(entity.body) for entity in sent if entity is not same)

    def schedule(
        self,
        *,
        run: str,
        user: int,
        address: str,
        id: str,  # noqa: A002  (mail's own word)
        size_bytes: int,
        sent_us: int,
        domain: str,
    ) -> bytes:
        """Return a user's schedule file as a message of exactly `size_bytes`: one iCalendar part (RFC 5545).

        The user sends it to themselves. Raises `ValueError` if headers and one appointment do not fit (about 1,500
        bytes).
        """
        content_header = b"Content-Type: text/calendar; charset=utf-8\r\nContent-Transfer-Encoding: 7bit\r\n\r\n"

        def head(digest: str) -> bytes:
            tag = MessageTag(run=run, sender=user, id=id, kind=SCHEDULE, sent_us=sent_us, body=digest)
            return _head(tag, domain, headers.address(address), (address,), "Schedule", "") + content_header

        room = size_bytes - len(head(body_digest(b"")))  # all digests have the same length
        body = schedule.calendar(self._events, self._seed, user, id, sent_us, f"{run}@{domain}", room)
        return head(body_digest(body)) + body


def _head(tag: MessageTag, domain: str, sender: str, to: Sequence[str], subject: str, further: str) -> bytes:
    """Return the header up to MIME-Version; each line ends in CRLF."""
    name = headers.dotted("id, run and domain", f"{tag.id}.{tag.run}@{domain}")
    return (
        f"Date: {headers.date(tag.sent_us)}\r\n"
        f"From: {sender}\r\n"
        f"To: {headers.addresses(to)}\r\n"
        f"Subject: {headers.unstructured('Subject', subject)}\r\n"
        f"Message-ID: <{name}>\r\n"
        f"{further}"
        f"{HEADER}: {tag.header()}\r\n"
        "MIME-Version: 1.0\r\n"
    ).encode("ascii")


def _read_receipt(mark: str, reader: str, message_id: str) -> templates.Content:
    """Return the content of a read receipt (RFC 8098 section 3), with `mark` in the boundary."""
    original = f"Original-Message-ID: {message_id}\r\n" if message_id else ""
    disposition = (
        f"Reporting-UA: loadsim\r\nFinal-Recipient: rfc822;{reader}\r\n{original}"
        "Disposition: manual-action/MDN-sent-automatically; displayed\r\n"
    )
    kind = b"Content-Type: message/disposition-notification\r\nContent-Transfer-Encoding: 7bit\r\n"
    text = templates.Entity(templates.text_header(foreign=False), _READ_RECEIPT_TEXT)
    within = "multipart/report; report-type=disposition-notification"
    return templates.enclose(within, mark, text, templates.Entity(kind, disposition.encode("ascii")))


def forwarded(attachment: Attachment) -> templates.Entity:
    lines = f"Content-Type: {attachment.content_type}\r\nContent-Transfer-Encoding: {attachment.encoding}\r\n"
    return templates.Entity(
        (lines + headers.disposition("attachment", attachment.filename)).encode(), attachment.encoded
    )
