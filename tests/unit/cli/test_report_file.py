"""Reports in files: the format by the suffix, and nothing half-written."""

import os
import resource
from pathlib import Path

import pytest
from timing_samples import done, write_sample

from loadsim.cli import BAD_INPUT, main
from loadsim.cli.report_file import write
from loadsim.errors import ConfigError
from loadsim.report.document import Document

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_sample(tmp_path / "run" / "logs" / "c1.0.tlog", [done("READ", 1000, 20)])
    return tmp_path


def refused(capsys: Capture, *arguments: str) -> str:
    assert main(list(arguments)) == BAD_INPUT
    out, line = capsys.readouterr()
    assert (out, line.count("\n")) == ("", 1)
    return line


@pytest.mark.parametrize("name", ["x.docx", "x", "x.html.gz", ".html"])
def test_an_unknown_suffix_is_refused_before_any_work(place: Path, capsys: Capture, name: str) -> None:
    for arguments in (["report", "run", "-o", name], ["compare", "--base", "no", "--new", "none", "--report", name]):
        option = arguments[-2]
        assert f"{option} {name}: expected a name that ends in .html or .md" in refused(capsys, *arguments)
    assert sorted(path.name for path in place.iterdir()) == ["run"]


def test_the_suffix_is_the_format(place: Path) -> None:
    for name, begin in (("a.md", "# "), ("c.Html", "<!DOCTYPE html>")):
        assert main(["report", "run", "-o", name]) == 0
        assert (place / name).read_text("utf-8").startswith(begin)


def test_a_report_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    """As on a full disk: the error names the file, the old report is whole, and nothing else stays."""
    page = Document("t", "s", "v", "good", ())
    (report := tmp_path / "gate.html").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(ConfigError, match=r"gate\.html: expected a file to write, found: File too large$"):
            write(page, report, "--report")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("gate.html", "old")]
    write(page, report, "--report")
    assert [(each.name, each.read_text()[:4]) for each in tmp_path.iterdir()] == [("gate.html", "<!DO")]


def test_a_report_is_written_into_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "gate.md")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(Document("t", "s", "v", "good", ()), pipe, "--report")
        assert os.read(reader, 1 << 16).startswith(b"# t")
    finally:
        os.close(reader)
    assert [each.is_fifo() for each in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize(
    ("name", "says"),
    [("no/a.md", "No such directory"), ("run/logs.md", "a directory"), (f"{'x' * 300}.md", "File name too long")],
)
def test_an_unwritable_place_is_refused_before_any_work(place: Path, capsys: Capture, name: str, says: str) -> None:
    """No log is read: this one is none. A run that is missing is named first."""
    (place / "run" / "logs.md").mkdir()
    (place / "run" / "logs" / "c1.0.tlog").write_bytes(b"no log")
    assert f"-o {name}: expected a file to write, found: {says}" in refused(capsys, "report", "run", "-o", name)
    assert "none: expected a timing log or a run directory" in refused(capsys, "report", "none", "-o", name)
