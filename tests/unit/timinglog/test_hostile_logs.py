"""Timing logs with right checksums and odd contents: a right answer, or one line and exit status 2."""

import math
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hostile_logs import (
    FACTS,
    HEADER,
    MACHINE_FACTS,
    MACHINE_SAMPLE,
    ODD,
    SAMPLE,
    Change,
    Parts,
    changes,
    nested,
    paths_in,
    record,
    write_engine,
    write_machine,
)
from timing_samples import HEADER as SAMPLE_HEADER

from loadsim.cli import BAD_INPUT, main
from loadsim.errors import LogError
from loadsim.timinglog import container
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.records import NEVER

Capture = pytest.CaptureFixture[str]

FAR = 2**63 - 1

RECORDS: dict[str, Change] = {
    "due at the end of time": record(container.TASKS, 2, scheduled_us=FAR),
    "due before the begin of time": record(container.TASKS, 2, scheduled_us=NEVER + 1),
    "due in a hundred years": record(container.TASKS, 2, scheduled_us=1 << 52),
    "ended at the end of time": record(container.TASKS, 2, ended_us=FAR),
    "ended before it started": record(container.TASKS, 2, ended_us=1),
    "a hit that never ended": record(container.TASKS, 2, ended_us=NEVER),
    "a hit that never started": record(container.TASKS, 2, started_us=NEVER),
    "a failure that never ended": record(container.TASKS, 3, ended_us=NEVER),
    "a failure that neither started nor ended": record(container.TASKS, 3, ended_us=NEVER, started_us=NEVER),
    "a span that never ended": record(container.TASKS, 6, ended_us=NEVER),
    **{
        f"{field} {late}": record(container.TASKS, 2, **{field: late})
        for field in ("late_busy_s", "late_down_s", "late_generator_s", "late_between_s", "late_own_s")
        for late in (math.nan, math.inf, -math.inf, -1.0, 3e38)
    },
    "user outside of the population": record(container.TASKS, 2, user=3),
    "a user of mail outside of the population": record(container.MAILS, 0, user=2**32 - 1),
    **{
        f"{field} out of range": record(kind, 0, **{field: number})
        for kind, fields in (
            (container.TASKS, {"task": 65_535, "profile": 99, "protocol": 99, "error": 99, "outcome": 255, "clock": 4}),
            (container.MAILS, {"folder": 99, "event": 99}),
            (container.COMMANDS, {"command": 99, "outcome": 99}),
        )
        for field, number in fields.items()
    },
    "mail at the end of time": record(container.MAILS, 1, at_us=FAR),
    "mail seen before it was accepted": record(container.MAILS, 1, at_us=-5_000_000),
    "a message's id with other bytes": record(container.MAILS, 0, message=b"\xff\x1b[2J"),
    "a command at the end of time": record(container.COMMANDS, 0, started_us=FAR),
    "a command of the longest time": record(container.COMMANDS, 0, took_us=2**32 - 1),
}


def _strings(value: Any) -> Change:
    def change(parts: Parts) -> None:
        parts.of(container.STRINGS)[1] = value

    return change


def _block(kind: int, payload: Any) -> Change:
    return lambda parts: parts.blocks.append([kind, payload])


OTHERS: dict[str, Change] = {
    **{f"strings are {odd}": _strings(value) for odd, value in ODD.items()},
    "strings with control characters": _strings(
        ["other", "READ\x1b[2J", "medium", "imap", "a\x00", "a", "x", "y", "z"] * 3
    ),
    "a string table of 70,000": _strings([f"n{number}" for number in range(70_000)]),
    "a string of 10 MB": _strings(["x" * 1_000_000] * 3),
    "many long strings": _strings([f"{number:0900d}" for number in range(40_000)]),
    "facts are a list of lists": _block(container.FACTS, [[1]]),
    "facts without end": _block(container.FACTS, [{"ended": "crashed"}]),
    "deep unknown facts": _block(container.FACTS, [{"unknown": nested(200)}]),
    "deep unknown health": _block(container.HEALTH, [{"unknown": nested(400)}]),
    "JSON without end": _block(container.FACTS, b"[" * 100_000),
    "a number of thousands of digits": _block(container.FACTS, b'[{"drain_s": ' + b"9" * 5000 + b"}]"),
    "the real number 1e400": _block(container.FACTS, b'[{"drain_s": 1e400}]'),
    "no UTF-8": _block(container.STRINGS, b'["\xff"]'),
    "a fact twice": _block(container.FACTS, b'[{"lost_users": 1, "lost_users": 0}]'),
    "an unknown kind": _block(9, b"\x00"),
    "records cut off": _block(container.TASKS, b"\x00" * 60),
    "a sample in the past": _block(container.HEALTH, [{**SAMPLE, "at_ns": 0, "lags_from_ns": 0}]),
    "samples at the same instant": _block(container.HEALTH, [SAMPLE, SAMPLE, SAMPLE]),
    "samples of a machine among an engine's": _block(container.HEALTH, [MACHINE_SAMPLE]),
}


@contextmanager
def memory_for(more_bytes: int) -> Iterator[None]:
    """Let what needs more memory fail: a hostile log may ask for any amount, and would exhaust the machine's."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with memory_for(1 << 30):
        yield


def commands(log: Path, out: Path) -> dict[str, list[str]]:
    name = str(log)
    return {
        "check": ["log", "check", name],
        "answer": ["log", "answer", name, "--commands", "--json"],
        "report": ["report", name, "-o", str(out / "report.md")],
        "compare": ["compare", "--base", name, "--new", name],
        "export": ["log", "export", "csv", name],
        "export health": ["log", "export", "csv", "--kind", "health", name],
        "export mails": ["log", "export", "csv", "--kind", "mails", name],
    }


STATUSES = {"check": (0, 1, 2), "compare": (0, 1, 2, 3, 4), "answer": (0, 1, 2, 3), "export health": (0, 1, 2)}


def obey(capsys: Capture, name: str, words: list[str]) -> int:
    """Run a command; it must do its work, or refuse in one line."""
    try:
        status = main(words)
    except SystemExit as end:
        status = int(end.code or 0)
    out, said = capsys.readouterr()
    assert status in STATUSES.get(name, (0, 2)), (name, status, said[-2000:])
    if status == BAD_INPUT:
        assert said.startswith("loadsim") and said.endswith("\n") and said.count("\n") == 1, said
        assert said[:-1].isprintable() and len(said) < 600, said
        assert ": expected " in said and "found" in said, said
    assert all(line.isprintable() for line in out.splitlines())
    assert "\x1b" not in out
    return status


OF_DOCUMENTS = ("check", "answer", "export health")
"""Verbs to which documents matter; the others tell what the records are."""


def all_verbs(capsys: Capture, log: Path, out: Path, verbs: Sequence[str] = ()) -> dict[str, int]:
    """The exit status of each verb, or of these, about a log; where that is refused at the door, of one of them."""
    out.mkdir(exist_ok=True)
    try:
        read_logs([log])
    except LogError:
        return {"answer": obey(capsys, "answer", commands(log, out)["answer"])}
    return {name: obey(capsys, name, words) for name, words in commands(log, out).items() if not verbs or name in verbs}


def swept(out: Path) -> Path:
    """A directory without the files of the case before."""
    for file in out.glob("*") if out.is_dir() else ():
        file.unlink()
    return out


def test_unaltered_logs_are_read(capsys: Capture, tmp_path: Path) -> None:
    write_engine(tmp_path / "run" / "logs" / "c1.0.tlog")
    write_machine(tmp_path / "run" / "logs" / "c1.machine.tlog")
    found = all_verbs(capsys, tmp_path / "run", tmp_path / "out")
    assert len(found) > 5 and BAD_INPUT not in (found | {"compare": 0}).values()  # it refuses a run against itself


HERE: dict[str, tuple[str, Callable[[Parts], Any], Any]] = {
    "header": ("engine", lambda parts: parts.header, SAMPLE_HEADER | HEADER),
    "facts": ("engine", lambda parts: parts.of(container.FACTS)[1][0], FACTS),
    "health": ("engine", lambda parts: parts.of(container.HEALTH)[1][0], SAMPLE),
    "machine facts": ("machine", lambda parts: parts.of(container.FACTS)[1][0], MACHINE_FACTS),
    "machine health": ("machine", lambda parts: parts.of(container.HEALTH)[1][0], MACHINE_SAMPLE),
}


KEYS = [(where, ".".join(map(str, path))) for where, (_, _, document) in HERE.items() for path in paths_in(document)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("sound")
    return {"engine": write_engine(place / "c1.0.tlog"), "machine": write_machine(place / "c1.machine.tlog")}


def try_values(
    capsys: Capture, sound: dict[str, Path], place: Path, where: str, key: str, *, every: int = 1, first: int = 0
) -> None:
    """Try the odd values of one key, or each `every`-th of them: a right answer, or one line."""
    which, choose, document = HERE[where]
    path = next(path for path in paths_in(document) if ".".join(map(str, path)) == key)
    for name, change in list(changes(choose, path).items())[first % every :: every]:
        parts = Parts(sound[which])
        change(parts)
        odd = parts.write(place / "odd" / "c1.odd.tlog")
        try:
            all_verbs(capsys, odd, swept(place / "out"), OF_DOCUMENTS)
        except Exception as failure:
            raise AssertionError(f"{where}: {key} {name}") from failure


@pytest.mark.nightly(part="runs")
@pytest.mark.parametrize(("where", "key"), KEYS)
def test_all_odd_values_in_documents_are_read_or_refused(
    capsys: Capture, sound: dict[str, Path], tmp_path: Path, where: str, key: str
) -> None:
    try_values(capsys, sound, tmp_path, where, key)


@pytest.mark.slow
@pytest.mark.parametrize("where", HERE)
def test_some_odd_values_in_documents_are_read_or_refused(
    capsys: Capture, sound: dict[str, Path], tmp_path: Path, where: str
) -> None:
    """Each key of each document with every eighth odd value, another eighth for the next key."""
    for number, (document, key) in enumerate(KEYS):
        if document == where:
            try_values(capsys, sound, tmp_path, where, key, every=8, first=number)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RECORDS, *OTHERS])
def test_odd_records_and_blocks_are_read_or_refused(capsys: Capture, tmp_path: Path, name: str) -> None:
    parts = Parts(write_engine(tmp_path / "c1.0.tlog"))
    (RECORDS | OTHERS)[name](parts)
    all_verbs(capsys, parts.write(tmp_path / "odd" / "c1.0.tlog"), tmp_path / "out")


REFUSED = {
    "due at the end of time": "scheduled_us: expected an instant within 35 years",
    "ended before it started": "ended_us: expected an end after the start",
    "a hit that never ended": "ended_us: expected an end after the start for a task that ended, found",
    "late_generator_s nan": "late_generator_s: expected seconds from 0 to 33554432, found nan",
    "user outside of the population": "user: expected one of 2, found user 3",
    "outcome out of range": "outcome: expected a number below",
    "clock out of range": "clock: expected a number below",
    "a message's id with other bytes": "message: expected an id of printable ASCII, found the byte 255",
    "facts without end": "facts: ended: expected one of completed, early, given up, found 'crashed'",
    "a fact twice": "expected each key once, found 'lost_users' again",
    "a string table of 70,000": "names: expected at most 65536, found",
    "no UTF-8": "expected JSON, found something else",
    "JSON without end": "expected JSON, found something else",
}


@pytest.mark.parametrize(("name", "says"), REFUSED.items())
def test_an_error_names_file_key_expected_and_found(capsys: Capture, tmp_path: Path, name: str, says: str) -> None:
    parts = Parts(write_engine(tmp_path / "c1.0.tlog"))
    (RECORDS | OTHERS)[name](parts)
    assert main(["log", "answer", str(parts.write(tmp_path / "odd.tlog"))]) == BAD_INPUT
    said = capsys.readouterr().err
    assert f"{tmp_path / 'odd.tlog'}: " in said and says in said


@pytest.mark.parametrize("window", [[-3e7, 3e7], [90.0, 10.0], [10.0, 10.0]])
def test_odd_windows_are_answered_or_refused(capsys: Capture, tmp_path: Path, window: list[float]) -> None:
    """A window of two years takes as much memory as its records ask for: a number a second would be 480 MB."""
    parts = Parts(write_engine(tmp_path / "c1.0.tlog", window_s=window, duration_s=None))
    record(
        container.TASKS, 2, scheduled_us=20_000_000_000_000 + 80_000_000, started_us=NEVER, ended_us=NEVER, outcome=5
    )(parts)
    log = parts.write(tmp_path / "odd.tlog")
    with memory_for(1 << 28):
        all_verbs(capsys, log, tmp_path / "out")


def test_odd_file_names_are_escaped(capsys: Capture, tmp_path: Path) -> None:
    """Line ends, escapes, and bytes that are no text: each line of a log stays one, and can be shown."""
    log = write_engine(tmp_path / os.fsdecode(b"a\x1b[2J\n\xff.tlog"))
    log.write_bytes(log.read_bytes()[:-5])
    for verb, lines in (("check", 2), ("answer", None)):
        main(["log", verb, str(log)])
        said = capsys.readouterr().out
        assert "a\\x1b[2J \\udcff.tlog: " in said
        assert all(line.isprintable() for line in said.split("\n"))
        assert lines in (None, said.count("\n"))


@pytest.mark.parametrize("kind", ["device", "directory", "pipe", "gone", "nul", "circle"])
def test_anything_but_a_regular_file_is_refused(capsys: Capture, tmp_path: Path, kind: str) -> None:
    """Neither a device nor a pipe without a writer holds anybody up."""
    os.mkfifo(tmp_path / "pipe.tlog")
    (tmp_path / "directory.tlog").mkdir()
    (tmp_path / "circle").mkdir()
    (tmp_path / "circle" / "a.tlog").symlink_to("a.tlog")
    names = {
        "circle": str(tmp_path / "circle"),
        "device": "/dev/zero",
        "pipe": str(tmp_path / "pipe.tlog"),
        "nul": "a\x00b",
    }
    assert main(["log", "answer", names.get(kind, str(tmp_path / f"{kind}.tlog"))]) == BAD_INPUT
    assert capsys.readouterr().err.count("\n") == 1
