"""Reports in files: the format by the suffix, PDF by a browser, and nothing half-written."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from timing_samples import done, write_sample

from loadsim.cli import BAD_INPUT, main
from loadsim.cli.report_file import write
from loadsim.errors import ConfigError
from loadsim.report import pdf
from loadsim.report.pdf import BROWSERS, to_pdf

Capture = pytest.CaptureFixture[str]

REAL_BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

ARGUMENTS = """
import json, os, sys
named = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
facts = {"arguments": sys.argv[1:], "environment": dict(os.environ), "page": open("page.html").read()}
"""
"""The beginning of a browser for tests: what it was given."""

PRINTS = 'json.dump(facts, open("{told}", "w")); open(named["print-to-pdf"], "wb").write(b"%PDF-1.4 printed")'


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with a run, and an empty directory for temporary files and one for programs.

    Its path is short, because a browser has sockets below it.
    """
    with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as path:
        place = Path(path)
        monkeypatch.chdir(place)
        for name in ("tmp", "bin"):
            (place / name).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(place / "tmp"))
        monkeypatch.setenv("PATH", str(place / "bin"))
        write_sample(place / "run" / "logs" / "c1.0.tlog", [done("READ", 1000, 20)])
        yield place
        monkeypatch.undo()


def install(place: Path, code: str, name: str = "chromium") -> Path:
    """Install a browser for tests, in Python."""
    told = place / "told.json"
    program = place / "bin" / name
    python = shutil.which("python3", path=os.defpath) or "/usr/bin/python3"
    program.write_text(f"#!{python}\n{ARGUMENTS}\n{code.format(told=told)}\n", encoding="utf-8")
    program.chmod(0o755)
    return told


def refused(capsys: Capture, *arguments: str) -> str:
    """The one line with which a command is refused."""
    assert main(list(arguments)) == BAD_INPUT
    out, line = capsys.readouterr()
    assert (out, line.count("\n")) == ("", 1)
    return line


# --- formats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.docx", "x", "x.htm", "x.html.gz", ".html", "x."])
def test_an_unknown_suffix_is_refused_before_any_work(place: Path, capsys: Capture, name: str) -> None:
    """Even before the runs are looked for: there are none."""
    for arguments in (["report", "none", "-o", name], ["compare", "--base", "no", "--new", "none", "--report", name]):
        option = arguments[-2]
        assert f"{option} {name}: expected a name that ends in .html, .md, .json or .pdf" in refused(capsys, *arguments)
    assert sorted(path.name for path in place.iterdir()) == ["bin", "run", "tmp"]


def test_the_suffix_is_the_format(place: Path) -> None:
    """In capitals, too; a stated format suits a file without a suffix, or with one that means nothing."""
    for name, begin in (("a.md", "# "), ("b.JSON", "{"), ("c.Html", "<!DOCTYPE html>")):
        assert main(["report", "run", "-o", name]) == 0
        assert (place / name).read_text("utf-8").startswith(begin)
    for name in ("summary", "notes.txt", "d.md"):
        assert main(["report", "run", "--format", "md", "-o", name]) == 0
        assert (place / name).read_text("utf-8") == (place / "a.md").read_text("utf-8")


def test_a_suffix_of_another_format_is_refused(place: Path, capsys: Capture) -> None:
    """Neither wins in silence."""
    line = refused(capsys, "report", "none", "-o", "a.html", "--format", "md")
    assert "-o a.html: expected a name that ends in .md, as --format says" in line


def test_a_report_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    """As on a full disk: the error names the file, the old report is whole, and nothing else stays."""
    (report := tmp_path / "gate.html").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(ConfigError, match=r"gate\.html: expected a file to write, found: File too large$"):
            write(b"x" * 1000, report, "--report")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("gate.html", "old")]
    write(b"new", report, "--report")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("gate.html", "new")]


@pytest.mark.parametrize(
    ("name", "says"),
    [("no/a.md", "No such directory"), ("run/logs.md", "a directory"), (f"{'x' * 300}.md", "File name too long")],
)
def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    place: Path, capsys: Capture, name: str, says: str
) -> None:
    """No log is read: this one is none. A run that is missing is named first."""
    (place / "run" / "logs.md").mkdir()
    (place / "run" / "logs" / "c1.0.tlog").write_bytes(b"no log")
    assert f"-o {name}: expected a file to write, found: {says}" in refused(capsys, "report", "run", "-o", name)
    assert "none: expected a timing log or a run directory" in refused(capsys, "report", "none", "-o", name)


# --- PDF --------------------------------------------------------------------------------------------------------


def test_without_a_browser_pdf_is_refused_before_any_work(place: Path, capsys: Capture) -> None:
    """One line that says what to install."""
    for arguments in (
        ["report", "none", "-o", "a.pdf"],
        ["report", "none", "--format", "pdf"],
        ["compare", "--base", "no", "--new", "none", "--report", "a.pdf"],
    ):
        assert "found none of chromium, chromium-browser, google-chrome; install Chromium" in refused(
            capsys, *arguments
        )


@pytest.mark.parametrize("name", BROWSERS)
def test_a_browser_prints_the_page_offline_and_leaves_nothing(place: Path, name: str) -> None:
    """It gets the page, a profile and a home of its own, which are removed, and no network."""
    told = install(place, PRINTS, name)
    assert to_pdf("<p>caf\N{LATIN SMALL LETTER E WITH ACUTE}", "-o") == b"%PDF-1.4 printed"
    facts = json.loads(told.read_text("utf-8"))
    assert facts["page"] == "<p>caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    assert {"--headless", "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=http://127.0.0.1:9"} <= {
        *facts["arguments"]
    }
    own = [facts["environment"][key] for key in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")]
    own += [word.partition("=")[2] for word in facts["arguments"] if word.startswith("--user-data-dir=")]
    assert len(own) == 5 and all(Path(each).is_relative_to(place / "tmp") for each in own)
    assert set(facts["environment"]) - {"LC_CTYPE", "PWD"} <= {"PATH", "LANG", "HOME", "TMPDIR"} | {
        f"XDG_{each}" for each in ("CONFIG_HOME", "CACHE_HOME", "RUNTIME_DIR")
    }
    assert list((place / "tmp").iterdir()) == []


def test_a_pdf_has_its_place_like_html(place: Path, capsys: Capture) -> None:
    """In the run's directory, if no file is named; where a browser fails, an older report stays as it was."""
    install(place, PRINTS)
    assert main(["report", "run", "--format", "pdf"]) == 0
    assert capsys.readouterr().out == "run/report.pdf\n"
    assert (place / "run" / "report.pdf").read_bytes() == b"%PDF-1.4 printed"
    install(place, "sys.exit('broken')")
    line = refused(capsys, "report", "run", "--format", "pdf")
    assert line == f"loadsim: -o run/report.pdf: expected a PDF from {place}/bin/chromium, found none: broken\n"
    assert (place / "run" / "report.pdf").read_bytes() == b"%PDF-1.4 printed"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("sys.exit(3)", "found none: exit status 3"),
        ("sys.exit('first\\n\\x1b[1mno usable sandbox')", "found none: \\x1b[1mno usable sandbox"),
        ("open(named['print-to-pdf'], 'wb').write(b'<html>')", "found none: exit status 0"),
    ],
)
def test_a_browser_that_prints_nothing_is_bad_input(place: Path, code: str, says: str) -> None:
    """Its last words are in the line."""
    install(place, code)
    with pytest.raises(ConfigError, match=f"-o: expected a PDF from {place}/bin/chromium, {re.escape(says)}"):
        to_pdf("<p>", "-o")
    assert list((place / "tmp").iterdir()) == []


HANGS = """#!/bin/sh
/bin/sleep 1000 &
echo $$ $! > {told}
wait
"""


@pytest.mark.slow
def test_a_browser_that_hangs_is_ended_with_its_helpers(place: Path) -> None:
    """Both of its processes have ended, and their files are removed."""
    told = place / "told"
    (place / "bin" / "chromium").write_text(HANGS.format(told=told), encoding="utf-8")
    (place / "bin" / "chromium").chmod(0o755)
    with pytest.raises(ConfigError, match="found none: it did not end within 2 s"):
        to_pdf("<p>", "-o", longest_s=2)
    processes = told.read_text("utf-8").split()
    assert len(processes) == 2
    assert not any(goes_on(process) for process in processes)
    assert list((place / "tmp").iterdir()) == []


def goes_on(process: str) -> bool:
    """Return False for a process that has ended, even if nobody has waited for it (proc_pid_stat(5))."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_sandbox_is_given_up_only_if_there_is_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's browser is first started with its sandbox; root's never can be."""
    calls = f"open('{place}/calls', 'a').write('--no-sandbox' in sys.argv and 'without ' or 'with ')"
    for user, needs, wanted in ((1000, False, "with "), (1000, True, "with without "), (0, False, "without ")):
        monkeypatch.setattr(pdf.os, "geteuid", lambda user=user: user)
        only = "if '--no-sandbox' in sys.argv: " if needs else ""
        install(place, f"{calls}\n{only}{PRINTS}")
        assert to_pdf("<p>", "-o") == b"%PDF-1.4 printed"
        assert (place / "calls").read_text("utf-8") == wanted
        (place / "calls").unlink()


@pytest.mark.nightly(part="tools")
def test_chromium_prints_a_report(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PDF of several pages on A4, well below the time limit; nothing is left of the browser."""
    assert REAL_BROWSER is not None
    (place / "bin" / "chromium").symlink_to(REAL_BROWSER)
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.defpath}:/usr/bin:/bin")
    assert main(["report", "run", "-o", "a.pdf"]) == 0
    printed = (place / "a.pdf").read_bytes()
    assert printed.startswith(b"%PDF-") and printed.rstrip().endswith(b"%%EOF")
    assert printed.count(b"/Type /Page\n") > 1
    assert {round(float(width)) for width in re.findall(rb"/MediaBox \[0 0 ([\d.]+)", printed)} == {595}
    assert list((place / "tmp").iterdir()) == []
