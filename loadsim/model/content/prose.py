"""Natural-looking texts and subjects, each a function of its address (seed, stream, variant).

Words and patterns are chosen by Zipf's law using only sums and comparisons, as the last bit of powers and logarithms
differs between machines.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from struct import Struct

from loadsim.model.draws import pick

LINE_BYTES = 74
"""The longest line of a text, without CRLF; RFC 5322 section 2.1.1 recommends at most 78."""

DATA = Path(__file__).with_name("data")

WORDS: dict[str, list[str]] = json.loads((DATA / "vocabulary.json").read_text(encoding="utf-8"))
"""Words and patterns from office mail in plain English, and some foreign names; each list is in order of frequency.

The first word is chosen most often, so search indexes and compression meet the term frequencies of real text. In a
pattern, `{slot}` is filled from the list of that name, or generated.
"""

_PARTICIPLES = {"send": "sent", "rewrite": "rewritten", "cancel": "cancelled", "copy": "copied", "scan": "scanned"}
"""Participles that adding -ed or -d would get wrong."""

_EIGHT = Struct(">8Q")
_TO_UNIT = 2.0**-53
_FILING_BYTES = 26  # the shortest filing line that `_filing` can make, with its CRLF
_FOREIGN_SHARE = 0.3  # of the names in a text with foreign names

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


@cache
def _zipf(count: int) -> list[float]:
    """Return the running sums of 1/1, 1/2, ... 1/count."""
    return list(accumulate(1.0 / rank for rank in range(1, count + 1)))


@cache
def _pieces(pattern: str) -> tuple[str, ...]:
    """Split a pattern into literal text, at even indices, and the names of slots, at odd ones."""
    return tuple(re.split(r"\{(\w+)\}", pattern))


class Writer:
    """Writes one text from the sequence of random numbers at its address.

    One keyed hash gives eight numbers; a text takes hundreds.
    """

    def __init__(self, seed: int, stream: str, variant: int | str, foreign: bool = False) -> None:
        self._address, self._foreign = f"words/{seed}/{stream}/{variant}", foreign
        self._blocks = 0
        self._numbers: list[int] = []

    def roll(self) -> float:
        """Return the next uniform number in [0, 1)."""
        if not self._numbers:
            block = blake2b(f"{self._address}/{self._blocks}".encode()).digest()
            self._numbers = list(_EIGHT.unpack(block))
            self._blocks += 1
        return (self._numbers.pop() >> 11) * _TO_UNIT

    def below(self, count: int) -> int:
        """Return a whole number in [0, count), each equally likely."""
        return pick(self.roll(), count)

    def word(self, words: Sequence[str]) -> str:
        """Return one of the words; earlier ones are more likely."""
        sums = _zipf(len(words))
        return words[min(bisect_right(sums, self.roll() * sums[-1]), len(words) - 1)]

    def any(self, words: Sequence[str]) -> str:
        return words[self.below(len(words))]

    def sentence(self, pattern: str) -> str:
        """Fill the slots in a pattern. If a slot's name begins with a capital, so does its text."""
        pieces = list(_pieces(pattern))
        for at in range(1, len(pieces), 2):
            name = pieces[at]
            filled = self._slot(name.lower())
            pieces[at] = filled if name[0].islower() else filled[0].upper() + filled[1:]
        text = "".join(pieces)
        return text[0].upper() + text[1:] if pattern.startswith("{team}") else text

    def _slot(self, name: str) -> str:
        return _SLOTS[name](self) if name in _SLOTS else self.word(WORDS[name])

    def name(self, native: Sequence[str]) -> str:
        """Return a name, which is often foreign in a text with foreign names."""
        if self._foreign and self.roll() < _FOREIGN_SHARE:
            return self.any(WORDS["foreign"])
        return self.word(native)

    def amount(self) -> str:
        whole = self.below(10 ** (2 + self.below(4)))
        return f"{'€' if self._foreign else 'EUR '}{whole:,}.{self.below(20) * 5:02}"


_SLOTS: dict[str, Callable[[Writer], str]] = {
    "first": lambda w: w.name(WORDS["first"]),
    "last": lambda w: w.name(WORDS["last"]),
    "participle": lambda w: _PARTICIPLES.get(verb := w.word(WORDS["verb"])) or verb + "ed"[verb.endswith("e") :],
    "weekday": lambda w: w.any(_WEEKDAYS),
    "month": lambda w: w.any(_MONTHS),
    "date": lambda w: f"{1 + w.below(28)} {w.any(_MONTHS)}",
    "time": lambda w: f"{8 + w.below(10)}:{w.below(4) * 15:02}",
    "number": lambda w: str(2 + w.below(10 ** (1 + w.below(3)))),
    "percent": lambda w: f"{1 + w.below(99)} %",
    "amount": Writer.amount,
    "room": lambda w: f"{1 + w.below(6)}.{1 + w.below(40):02}",
    "extension": lambda w: str(1000 + w.below(9000)),
    "reference": lambda w: f"{w.any('ABKNRTW')}-{10000 + w.below(90000)}",
}


def subject(seed: int, message_id: str) -> str:
    """Return the subject of a new message: a few words of ASCII, fewer than 70 characters."""
    writer = Writer(seed, "subject", message_id)
    return writer.sentence(writer.word(WORDS["subject"]))


def event(seed: int, variant: int) -> tuple[str, str, str]:
    """Return an appointment's summary, place and description."""
    writer = Writer(seed, "event", variant)
    description = " ".join(writer.sentence(writer.word(WORDS["sentence"])) for _ in range(1 + writer.below(3)))
    return writer.sentence(writer.any(WORDS["event"])), writer.sentence("Room {room}, {place}"), description


def text(seed: int, style: str, variant: int, size_bytes: int, foreign: bool = False) -> bytes:
    """Return a letter of exactly `size_bytes` in UTF-8 (ASCII unless `foreign`), CRLF included.

    `style` is new, answer or forward, which determines the opening, or notes, for a longer text without a salutation.
    Lines have at most 74 bytes and no trailing spaces; the last line ends in CRLF.
    """
    writer = Writer(seed, f"text/{style}/{size_bytes}", variant, foreign)
    lines = list(_opening(writer, style))
    closing = ["", writer.word(WORDS["closing"]), writer.sentence("{first} {last}")] if style != "notes" else []
    if closing and writer.roll() < 0.5:
        closing += [writer.sentence(f"{writer.any(WORDS['title'])}, extension {{extension}}")]
    closing = [writer.sentence(line) for line in closing]
    left = size_bytes - _size(lines) - _size([*closing, ""]) - _FILING_BYTES
    while True:
        block = list(_block(writer, left))
        if not block:
            break
        lines += block
        left -= _size(block)
    lines += [*closing, "", *_filing(writer, left + _FILING_BYTES)]
    return "".join(f"{line}\r\n" for line in lines).encode()


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 2 for line in lines)


def _wrap(sentences: str) -> Iterator[str]:
    line, used = "", 0
    for word in sentences.split(" "):
        size = len(word.encode())
        if line and used + 1 + size > LINE_BYTES:
            yield line
            line, used = word, size
        else:
            line, used = (f"{line} {word}", used + 1 + size) if line else (word, size)
    yield line


def _opening(writer: Writer, style: str) -> Iterator[str]:
    if style == "notes":
        yield writer.sentence("{Modifier} {head}, project {project}, {date}")
        return
    yield writer.sentence(writer.word(WORDS["salutation"]))
    if style in ("answer", "forward"):
        yield ""
        yield from _wrap(writer.sentence(writer.word(WORDS[style])))


def _block(writer: Writer, left: int) -> Iterator[str]:
    """Yield an empty line and a paragraph, list or odd line of at most `left` bytes; nothing if none fits."""
    chance = writer.roll()
    if chance < 0.08:
        block = ["", *(f"* {writer.sentence(writer.word(WORDS['item']))}" for _ in range(2 + writer.below(4)))]
    elif chance < 0.12:
        block = ["", *_wrap(writer.sentence(writer.any(WORDS["odd line"])))]
    else:
        words = " ".join(writer.sentence(writer.word(WORDS["sentence"])) for _ in range(1 + writer.below(4)))
        block = ["", *_wrap(words)]
    tries = 0
    while _size(block) > left:
        if tries == 6:
            return
        tries += 1
        patterns = WORDS["sentence"] if tries < 3 else WORDS["short sentence"]
        block = ["", *_wrap(writer.sentence(writer.any(patterns)))]
    yield from block


def _filing(writer: Writer, size: int) -> Iterator[str]:
    """Yield lines of exactly `size` bytes (at least 26) about a message's filing: words, and a number as padding."""
    while size - 2 > LINE_BYTES:
        line = "Filed under: " + writer.word(WORDS["head"])
        while len(line) < LINE_BYTES - 18 and size - len(line) - 2 > _FILING_BYTES + 18:
            line += ", " + writer.word(WORDS["modifier"])
        size -= len(line) + 2
        yield line
    line = "Our reference: "
    while size - 2 - len(line) > 26:
        line += writer.word(WORDS["modifier"]) + "/"
    digits = size - 2 - len(line)
    yield line + "".join(str(writer.below(10)) for _ in range(digits))


_LONG_WORD = re.compile(r"\b[A-Za-z]{4,20}\b")


def long_word(text: str, u: float = 0.0) -> str | None:
    """Return a word of at least four ASCII letters, by which people may search for a text; None if it has none."""
    found = _LONG_WORD.findall(text)
    return found[pick(u, len(found))] if found else None
