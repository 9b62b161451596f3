"""`loadsim show`: everything that is shipped is listed."""

from collections.abc import Callable

import pytest

from loadsim.cli import main
from loadsim.cli.show import KINDS, WIDTH
from loadsim.documents.yaml_reader import known, shipped

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def said(capsys: Capture) -> Callable[..., str]:
    def run(*words: str) -> str:
        assert main(["show", *words]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("kind", KINDS)
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
        (("profiles", "medium"), "profiles: expected one of exchange/100, "),
        (("scenarios", "../profiles/weights"), "scenarios: expected one of dovecot-postfix, "),
    ],
)
def test_an_unknown_file_is_refused(words: tuple[str, ...], says: str, capsys: Capture) -> None:
    assert main(["show", *words]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"loadsim: {says}")
    assert (printed.out, printed.err.count("\n")) == ("", 1)
