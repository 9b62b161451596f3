"""`loadsim log export series`: rows that Apache Otava reads, and runs that do not continue a series."""

import csv
import json
import os
import resource
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from compared_runs import write_run
from timing_samples import DELIVERED, ms

from loadsim.analysis.summary import summarise
from loadsim.cli import main
from loadsim.comparison.build_series import ALIKE
from loadsim.comparison.comparison import compare_runs
from loadsim.errors import ConfigError
from loadsim.files import append_text


def export(run: Path, out: Path, *arguments: str) -> int:
    return main(["log", "export", "series", str(run), "--out", str(out), *arguments])


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_each_run_is_a_row_with_the_figures_of_its_score(tmp_path: Path) -> None:
    """By the names that criteria use; the score of READ and SEND, 10 to 1, is that of the page on measurement."""
    out = tmp_path / "builds.csv"
    server = {"at_ns": ms(0), "probe": "host", "figures": {"server_cpu_cores": 0.25}}
    health = [server | {"at_ns": ms(1000 * at)} for at in range(101)]
    for hour, read_ms in ((8, 100.0), (9, 110.0)):
        run = write_run(tmp_path, f"run-{hour}", read_ms, hour=hour, mails=DELIVERED, health=health)
        assert export(run, out, "--build", f'v{hour}, "quoted"') == 0
    first, second = rows_of(out)
    score: dict[str, Any] = json.loads(json.dumps(summarise([tmp_path / "run-8"]).score))
    assert [row["build"] for row in (first, second)] == ['v8, "quoted"', 'v9, "quoted"']
    assert datetime.fromisoformat(first["time"]).utcoffset() is not None
    assert first["time"].startswith("2026-01-05T08:00:0")
    assert float(first["score_ms"]) == pytest.approx(score["score_ms"], rel=1e-5)
    assert (first["tasks.READ.p95_ms"], second["tasks.READ.p95_ms"]) == ("100", "110")
    assert (first["tasks.SEND.p95_ms"], first["delivery.p95_ms"]) == ("50", "20")
    assert first["probes.host.server_cpu_cores.mean"] == "0.25"
    assert (first["validity"], first["plan_digest"]) == ("valid", score["plan_digest"])
    assert {key: first[key] for key in ALIKE} == {key: second[key] for key in ALIKE}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"plan_digest": "p2"}, "plan_digest: expected p2"),
        ({"acknowledgements": "at once"}, "terms: expected"),
        ({"start_state_digest": "m2"}, "terms: expected"),
        ({"limits": {"hits": 2}}, "terms: expected"),
        ({"weights": {"READ": 10}}, "expected the columns of"),
    ],
)
def test_a_run_under_other_terms_is_refused_as_by_compare(
    header: dict[str, Any], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, base = tmp_path / "builds.csv", write_run(tmp_path, "base", hour=8)
    new = write_run(tmp_path, "new", hour=9, **header)
    assert export(base, out) == 0
    before = out.read_bytes()
    assert export(new, out) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
    assert out.read_bytes() == before
    with pytest.raises(ConfigError):
        compare_runs([base], [new])


def test_an_invalid_run_is_not_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "builds.csv"
    assert export(write_run(tmp_path, "few", limits={"hits": 100_000}), out) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


def test_an_infinite_time_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A message that never arrived."""
    out = tmp_path / "builds.csv"
    assert export(write_run(tmp_path, "lost", mails=DELIVERED[:1]), out) == 2
    assert "delivery.p95_ms: expected a number, found an infinite time" in capsys.readouterr().err
    assert not out.exists()


def test_runs_come_in_the_order_of_time_and_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "builds.csv"
    early, late = write_run(tmp_path, "early", hour=8), write_run(tmp_path, "late", hour=9)
    assert [export(late, out), export(late, out), export(early, out)] == [0, 2, 2]
    assert capsys.readouterr().err.count("expected runs in the order of time") == 2
    assert len(rows_of(out)) == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("time,build", "expected whole lines"),
        ("time,build\n", "expected the columns of"),
        ("\0\n", "expected"),
        ("\xff\n", "expected"),
    ],
)
def test_another_file_is_left_as_it_is(
    content: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "other.csv"
    out.write_bytes(content.encode("latin-1"))
    assert export(write_run(tmp_path, "run"), out) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
    assert out.read_bytes() == content.encode("latin-1")


def test_a_build_name_is_one_line(tmp_path: Path) -> None:
    assert export(write_run(tmp_path, "run"), tmp_path / "builds.csv", "--build", "a\nb") == 2
    assert not (tmp_path / "builds.csv").exists()


@pytest.mark.parametrize("place", ["", "missing/builds.csv", "pipe"])
def test_what_is_no_file_is_refused(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert export(write_run(tmp_path, "run"), tmp_path / place) == 2
    assert "expected a file to append to, found: " in capsys.readouterr().err


def test_a_torn_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """The system takes five of seven bytes, as if the disk were full."""
    path = tmp_path / "file"
    path.write_text("a\n")
    append_text(path, "--out", lambda text: f"{len(text)}\n")
    assert path.read_text() == "a\n2\n"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, hard))
    try:
        with pytest.raises(ConfigError, match="expected a file to append to, found: "):
            append_text(path, "--out", lambda _: "a line\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "a\n2\n"
