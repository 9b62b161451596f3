"""Errors of ours while a task is timed and recorded, in virtual time."""

from pathlib import Path
from typing import Any

import pytest
from virtual_runs import Tape, live, quiet, scenario_of

from loadsim.model.content.compose import Contents

SENDER = quiet(new_mail={"per_day": 100})
OUTSIDE: dict[str, Any] = {"mailbox": False, "new_mail": {"per_day": 100}, "messages": {"ups1K": 1}}


@pytest.mark.parametrize("groups", [[(SENDER, 2)], [(quiet(), 2), (OUTSIDE, 1)]], ids=["user", "sender"])
def test_a_message_that_cannot_be_composed_fails_a_task_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: list[tuple[dict[str, Any], int]]
) -> None:
    """It takes no time, and asks the server nothing."""
    compose, calls = Contents.compose, 0

    def breaks(contents: Contents, **message: Any) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyError("template")
        return compose(contents, **message)

    monkeypatch.setattr(Contents, "compose", breaks)
    lived = live(scenario_of(tmp_path, *groups), tmp_path)
    (failed,) = [task for task in lived.tape.tasks if task["outcome"] != "ok"]
    assert (failed["task"], failed["outcome"]) in (("SEND", "generator"), ("INJECT", "generator"))
    assert failed["scheduled_ns"] == failed["started_ns"] == failed["ended_ns"]
    assert (failed["late_between_s"], failed["moved_bytes"], failed["commands"]) == (0.0, 0, [])


@pytest.mark.parametrize(
    ("groups", "command"),
    [([(SENDER, 2)], "SMTP DATA"), ([(SENDER, 2)], "IMAP APPEND"), ([(quiet(), 2), (OUTSIDE, 1)], "SMTP DATA")],
    ids=["submission", "mailbox", "sender"],
)
def test_a_command_that_cannot_be_recorded_fails_its_task(
    tmp_path: Path, groups: list[tuple[dict[str, Any], int]], command: str
) -> None:
    """The failure is ours, in this task only, and the server's answer does not look lost."""
    left = [3]

    def prepare(tape: Tape) -> None:
        record = tape.command

        def breaks(made: Any) -> None:
            if made[0] == command:
                left[0] -= 1
                if left[0] == 0:
                    raise KeyError("full")
            record(made)

        tape.command = breaks  # type: ignore[method-assign]

    lived = live(scenario_of(tmp_path, *groups), tmp_path, prepare=prepare)
    (failed,) = [task for task in lived.tape.tasks if task["outcome"] != "ok"]
    assert (failed["outcome"], failed["error"]) == ("generator", "internal error: KeyError")
    assert lived.tape.told["sessions_lost"] == 0
    assert lived.tape.told["undelivered"] == 0
