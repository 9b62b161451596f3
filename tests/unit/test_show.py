"""`loadsim show`: everything that is shipped is listed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from example_plugins import package_of, python_with

from loadsim.cli import main
from loadsim.cli.show import SHIPPED_FILES, WIDTH
from loadsim.model.documents.yaml_reader import known, shipped
from loadsim.model.profile import load_weights

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def said(capsys: Capture) -> Callable[..., str]:
    def run(*words: str) -> str:
        assert main(["show", *words]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("kind", SHIPPED_FILES)
def test_each_file_is_listed_in_words_and_printed(said: Callable[..., str], kind: str) -> None:
    """One line or more for each name, within 80 columns, and the file byte for byte."""
    lines = said(kind).splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(known(kind))
    assert all(len(line.split()) > 2 or line.startswith(" ") for line in lines)
    assert max(map(len, lines)) <= WIDTH
    for name in known(kind):
        assert said(kind, name) == (shipped(kind) / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("profiles", "medium"), "profiles: expected one of loadsim-4.0/heavy, "),
        (("scenarios", "../profiles/weights"), "scenarios: expected one of dovecot-postfix, "),
    ],
)
def test_an_unknown_file_is_refused(words: tuple[str, ...], says: str, capsys: Capture) -> None:
    assert main(["show", *words]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"loadsim: {says}")
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_drivers_and_tasks_are_listed(said: Callable[..., str]) -> None:
    """Those of the entry points, and all tasks; each scored one with its weight."""
    assert [line.split()[0] for line in said("drivers").splitlines() if line[0] != " "] == [
        "aioimaplib",
        "fake",
        "imap",
        "mapi",
    ]
    text = " ".join(said("tasks").split())
    for task, weight in load_weights().items():
        assert f"{task} " in text
        assert f"(weight {weight:g})" in text
    assert text.count("(weight ") == len(load_weights())


def test_a_task_and_a_driver_are_shown(said: Callable[..., str], capsys: Capture) -> None:
    """The row of the list, and the page; a name may have several words, and another case."""
    for kind, words, name in (("tasks", ["load", "attachment"], "LOAD ATTACHMENT"), ("drivers", ["imap"], "imap")):
        *row, page = said(kind, *words).splitlines()
        assert row[0].startswith(f"{name} ")
        assert page.split() == ["Details:", f"docs/reference/{kind}.md"]
        assert main(["show", kind, "RAED"]) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith(f"loadsim: {kind}: expected one of ")
        assert (printed.out, printed.err.count("\n")) == ("", 1)


@pytest.mark.slow
def test_a_plugin_that_cannot_be_used_is_listed_with_its_fault(tmp_path: Path) -> None:
    """One has the name of loadsim's own task, one is not there. The others are listed; no print is in the answer."""
    tasks = "READ = other:Task\nTIDY = other:missing"
    place = package_of(tmp_path, "print('hello')\nclass Task: pass\n", tasks=tasks, protocols="odd = other:no")
    for kind, names, faults in (("tasks", {"READ", "TIDY", "SEND"}, 2), ("drivers", {"odd", "imap"}, 1)):
        done = python_with(place, "-m", "loadsim", "show", kind)
        assert (done.returncode, done.stderr) == (0, "hello\n")
        assert names <= {line.split()[0] for line in done.stdout.splitlines() if line[0] != " "}
        words = " ".join(done.stdout.split())
        assert (words.count("cannot be used: "), words.count("(other 1)")) == (faults, faults)
        assert "hello" not in words
