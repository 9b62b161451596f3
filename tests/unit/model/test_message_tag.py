"""The X-LoadSim header: read back as it was written, refused when it is anything else; ids that follow from acts."""

from base64 import b32encode
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.model.message_tag import MessageTag, answer_id, body_digest, initial_id, new_mail_id

WORDS = st.from_regex(r"[A-Za-z0-9.-]{1,30}", fullmatch=True)
IDS = st.from_regex(r"[A-Za-z0-9.-]{1,20}", fullmatch=True)
KINDS = st.from_regex(r"[A-Za-z0-9+-]{1,9}(\.[A-Za-z0-9_]{1,9}){0,2}", fullmatch=True)
SAMPLE = "run=r-1; from=7; id=n7.0; kind=ups1K; sent=1700000000000000; body=0123456789abcdef"


@given(WORDS, st.integers(1, 2**32 - 1), IDS, KINDS, st.integers(0, 2**63 - 1), WORDS)
@settings(deadline=None, max_examples=100)
def test_a_written_tag_is_parsed_again(run: str, sender: int, mail: str, kind: str, sent_us: int, body: str) -> None:
    """Parsing undoes writing, also when a server folded the line at a space."""
    tag = MessageTag(run, sender, mail, kind, sent_us, body)
    assert MessageTag.parse(tag.header()) == tag
    assert MessageTag.parse(tag.header().replace("; ", ";\r\n ")) == tag


def test_a_tag_names_its_fields() -> None:
    found = MessageTag.parse(SAMPLE)
    assert found == MessageTag("r-1", 7, "n7.0", "ups1K", 1_700_000_000_000_000, "0123456789abcdef")
    assert found.header() == SAMPLE


@given(st.integers(1, 2**32 - 1), WORDS)
@settings(deadline=None, max_examples=100)
def test_ids_are_in_base_32(user: int, name: str) -> None:
    """80 bits of BLAKE2b of what the id follows from, as the standard library writes them, in lower case."""

    def written(address: str) -> str:
        return b32encode(blake2b(address.encode(), digest_size=10).digest()).decode().lower()

    assert new_mail_id(user, 3) == f"n{user}.3"
    assert answer_id(user, name, "reply") == "r" + written(f"{user}/{name}/reply")
    assert initial_id(user, name, 3) == "i" + written(f"{user}/{name}/3")


@pytest.mark.parametrize("name", ["run", "from", "id", "kind", "sent", "body"])
def test_a_missing_field_makes_it_foreign(name: str) -> None:
    kept = [part for part in SAMPLE.split("; ") if not part.startswith(f"{name}=")]
    assert len(kept) == 5
    assert MessageTag.parse("; ".join(kept)) is None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("from=7", "from=0"),
        ("from=7", f"from={2**32}"),
        ("from=7", "from=seven"),
        ("sent=1700000000000000", f"sent={2**63}"),
        ("sent=1700000000000000", "sent="),
    ],
)
def test_numbers_that_no_record_could_hold_are_foreign(ours: str, theirs: str) -> None:
    """A message may say anything; what would not fit the timing log is refused where it comes in."""
    assert MessageTag.parse(SAMPLE.replace(ours, theirs)) is None


@pytest.mark.parametrize("name", ["a b", "n7.0\0", "caf\u00e9", "n" * 21])
def test_ids_that_no_record_could_hold_are_foreign(name: str) -> None:
    """One of them in a log would make all of it unreadable."""
    assert MessageTag.parse(SAMPLE.replace("n7.0", name)) is None


def test_the_body_digest_is_of_sha256() -> None:
    """The first 16 hexadecimal digits of `printf '5/reply' | sha256sum`."""
    assert body_digest(b"5/reply") == "2926636004be29f6"
