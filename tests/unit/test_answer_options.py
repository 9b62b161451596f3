"""`loadsim log answer` with --by: figures by hand, in JSON and in tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from documents import full_answer
from timing_samples import done, skipped, write_sample

from loadsim.analysis.summary import summarise
from loadsim.cli import parser
from loadsim.findings.formats import duration


def run_answer(*arguments: str | Path) -> int:
    args = parser().parse_args(["log", "answer", *map(str, arguments)])
    status: int = args.run(args)
    return status


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    run_answer("--json", *arguments)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def write_mixed(path: Path) -> Path:
    return write_sample(
        path,
        [
            done("LOGON", -500, 3),
            done("READ", 10_000, 10, profile="light"),
            done("READ", 50_000, 20, profile="medium"),
            done("READ", 60_000, 30, profile="medium", protocol="aioimaplib", user=2),
            done("SEND", 70_000, 40, profile="light"),
            done("SEND", 80_000, 5, profile="light", outcome="refused", error="550 RCPT"),
            done("SEND", 90_000, 60_000, profile="light", outcome="timeout", error="SMTP DATA"),
            done("SEND", 99_000, 0, profile="light", ended_ns=None, outcome="unfinished"),
            skipped("READ", 99_500, profile="light"),
            done("READ", 150_000, 999, profile="light"),  # due after the window
        ],
    )


BY_HAND = {
    "profile": [
        ("light", "imap", {"READ": (1, 10), "SEND": (1, 40)}),
        ("medium", "aioimaplib", {"READ": (1, 30)}),
        ("medium", "imap", {"READ": (1, 20), "LOGON": (1, 3)}),
    ],
    "client": [
        ("c1", "aioimaplib", {"READ": (1, 30)}),
        ("c1", "imap", {"READ": (2, 20), "SEND": (1, 40), "LOGON": (1, 3)}),
    ],
}


@pytest.mark.parametrize("by", BY_HAND)
def test_a_table_for_each_value(tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str) -> None:
    """Value, client module, and of each task how often and its 95th percentile; the same in JSON and in the text."""
    log = write_mixed(tmp_path / "a.tlog")
    found = answer(capsys, "--by", by, log)["by"]
    assert found["what"] == by
    tables = [
        (table["value"], table["module"], {task["task"]: (task["hits"], task["p95_ms"]) for task in table["tasks"]})
        for table in found["tables"]
    ]
    assert tables == BY_HAND[by]
    text = full_answer(summarise([log], by=by))
    for value, module, tasks in BY_HAND[by]:
        title = f"\n{by.capitalize()} {value}, driver {module} (ms)\n"
        table = text.partition(title)[2].partition("\n\n")[0].splitlines()
        rows = {line[: line.index("  ")]: line.split() for line in table[1:]}
        assert set(tasks) == rows.keys() - {"Score, weighted"}
        for task, (times, p95_ms) in tasks.items():
            assert str(times) in rows[task]
            assert ("-" if p95_ms is None else duration(p95_ms).split()[0]) in rows[task]
