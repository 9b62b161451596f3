"""The ledger: what a store must have after any changes, whether their process ended well or not."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.storage.ledger import ABSENT, Ledger, Noted, compare, live_of
from loadsim.storage.messages import MAILBOX_BITS
from loadsim.storage.store import Damaged

ALL = range(9000 << MAILBOX_BITS, (9000 << MAILBOX_BITS) + 10)  # beyond 2**53, where floats are equal
KEYS = st.sampled_from(ALL)
CHANGES = st.lists(st.tuples(KEYS, st.integers(ABSENT, 3), st.sampled_from(Noted)), max_size=20)
STORED = st.dictionaries(KEYS, st.integers(0, 3), max_size=8)


def allowed(stored: dict[int, int], changes: list[tuple[int, int, Noted]]) -> dict[int, set[int]]:
    """The versions that each key may have, by definition: those since the last durable change."""
    of_keys = {key: {stored.get(key, ABSENT)} for key in ALL}
    for key, version, state in changes:
        if state is Noted.DURABLE:
            of_keys[key] = set()
        of_keys[key].add(version)
    return of_keys


@given(STORED, CHANGES, STORED)
def test_a_store_is_compared_with_what_was_acknowledged(
    stored: dict[int, int], changes: list[tuple[int, int, Noted]], found: dict[int, int]
) -> None:
    with TemporaryDirectory() as place:
        ledger = Ledger(Path(place))
        ledger.write(live_of(stored.items()), {})
        if changes:
            ledger.begin()
        for change in changes:
            ledger.note(*change)
        assert ledger.is_clean == (not changes)
        problems = {key: kind for kind, key in compare(ledger, live_of(found.items()))}
        ledger.close()
    may_be = allowed(stored, changes)
    for key in ALL:
        version = found.get(key, ABSENT)
        if version in may_be[key]:
            assert key not in problems
        elif version == ABSENT:
            assert problems[key] == "lost"
        else:
            assert problems[key] == ("unexpected" if may_be[key] == {ABSENT} else "stale")


def test_a_record_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.write(live_of([(1, 0)]), {})
    ledger.begin()
    ledger.note(1, ABSENT, Noted.DURABLE)
    ledger.close()
    changes = tmp_path / "changes"
    changes.write_bytes(changes.read_bytes() + b"\x01\x00\x00")
    ledger = Ledger(tmp_path)
    assert ledger.changed() == {1: {ABSENT}}
    assert not ledger.is_clean
    ledger.close()


def test_after_a_crash_of_the_machine_losses_are_no_faults(tmp_path: Path) -> None:
    """The changes that it had noted may be lost."""
    ledger = Ledger(tmp_path)
    ledger.write(live_of([(1, 0)]), {})
    ledger.begin()
    assert [*compare(ledger, live_of([]))] == [("lost", 1)]
    (tmp_path / "changes").write_bytes(bytes(16))
    assert [*compare(ledger, live_of([]))] == []
    assert not ledger.is_clean
    ledger.close()


def test_a_damaged_ledger_is_rejected(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.write(live_of([(1, 0)]), {})
    content = bytearray((tmp_path / "live").read_bytes())
    content[-1] ^= 1
    (tmp_path / "live").write_bytes(content)
    with pytest.raises(Damaged):
        ledger.ended()
    ledger.close()
