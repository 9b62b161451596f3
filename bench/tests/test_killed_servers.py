"""Dovecot and Postfix killed during a run: the run ends by itself, and no accepted message is unexplained."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.killed_servers import SHORT, USERS, Ledger, killed


@pytest.mark.nightly(part="runs")
def test_each_accepted_message_is_explained(tmp_path: Path) -> None:
    """All users lose their sessions and return; mail is on disk, queued or expunged; the outage does not pass."""
    outcome = killed(SHORT, tmp_path)
    ledger = outcome.ledger
    assert ledger.unexplained == set()
    assert len(ledger.accepted & ledger.on_disk) > 2 * USERS
    assert outcome.score["sessions_lost"] >= 2 * USERS
    assert outcome.status in (1, 3)
    events = (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8")
    assert "engine lost" not in events


def test_a_missing_copy_is_unexplained() -> None:
    """Each place explains a copy; another user's copy of the same message does not."""
    accepted = frozenset({("a", 1), ("b", 1), ("c", 1), ("d", 1), ("d", 2)})
    ledger = Ledger(accepted, frozenset({("a", 1), ("d", 2)}), frozenset({("b", 1)}), frozenset({("c", 1)}))
    assert ledger.unexplained == {("d", 1)}
