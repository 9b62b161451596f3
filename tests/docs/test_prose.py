"""The checker of prose: it finds what CONTRIBUTING.md rules out, and takes no code for prose."""

import importlib.util
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest
from paths import ROOT

HE, HIS, NOBODY, WHATEVER, WHICHEVER, WHOEVER = "he", "his", "nobody", "whatever", "whichever", "whoever"
"""Words that the check rules out, here too, but for values."""


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """Load tools/check_prose.py, which is no package's."""
    spec = importlib.util.spec_from_file_location("check_prose", ROOT / "tools" / "check_prose.py")
    assert spec
    assert spec.loader
    module = sys.modules["check_prose"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found(checker: ModuleType, path: Path, text: str) -> list[tuple[int, str]]:
    path.write_text(dedent(text).lstrip("\n"))
    return [(number, rule) for number, rule, _ in checker.findings(path)]


@pytest.mark.parametrize("opening", ["What", "How", "Whether", "Who", "That", "The same", "So many", "Nor"])
def test_question_words_that_open_docstrings_are_found(checker: ModuleType, tmp_path: Path, opening: str) -> None:
    """Modules, functions and attributes are read; a sentence further on may begin like that."""
    text = f'''
        """{opening} a module has."""

        def one():
            r"""{opening} a function does."""

        x = 1
        """{opening} it means."""

        def two():
            """Return it. {opening} this is, is said elsewhere."""

        def three():
            """Hownot, Thatcher and Whose1 are names."""
    '''
    rule = f"a docstring opens with {opening!r}"
    assert found(checker, tmp_path / "module.py", text) == [(1, rule), (4, rule), (7, rule)]


def test_ruled_out_words_are_found_in_comments_messages_and_docstrings(checker: ModuleType, tmp_path: Path) -> None:
    """Each is found at its line; names, single words and code are no prose."""
    text = f'''
        """Return it.

        {WHOEVER.capitalize()} asks gets it; `{WHOEVER}` is code, and so is ``{HIS} own``.
        """
        {HIS} = {{"{HE}": 1}}  # {NOBODY} reads this
        raise ValueError(f"{{{HIS}}}: {NOBODY} knows it, see https://example.org/{WHATEVER}")
        raise ValueError("expected a name, found {WHATEVER} it is")
    '''
    assert found(checker, tmp_path / "module.py", text) == [
        (3, "'Whoever'"),
        (5, "'nobody'"),
        (6, "'nobody'"),
        (7, "'whatever'"),
    ]


def test_code_in_pages_is_skipped(checker: ModuleType, tmp_path: Path) -> None:
    """Fences, indented blocks, code spans, comments and addresses are left out; lists and tables are not."""
    text = f"""
        # Of {WHICHEVER}

        ```sh
        {NOBODY}
        ```

            {NOBODY}

            {WHOEVER}

        Text `of {HIS}` and [a link]({NOBODY}.md#{HIS}), <!-- {NOBODY}
        {WHATEVER} --> and
            {WHATEVER} continues a paragraph.

        - an item

            of {WHOEVER}, which goes on here

        | a | `{HIS}` |
        |---|---|
        | {HE} | b |
    """
    assert found(checker, tmp_path / "page.md", text) == [
        (1, "'whichever'"),
        (13, "'whatever'"),
        (17, "'whoever'"),
        (21, "'he'"),
    ]


def test_findings_set_the_exit_status_unless_they_are_exceptions(
    checker: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 and the findings, or 0 if all of them are allowed."""
    page, exceptions = tmp_path / "page.md", tmp_path / "exceptions.txt"
    line = f"{NOBODY} knows `it`."
    page.write_text(f"{line}\n")
    monkeypatch.setattr(checker, "EXCEPTIONS", exceptions)
    assert checker.main([str(page)]) == 1
    assert capsys.readouterr().out == f"{page}:1: {NOBODY!r}: {line}\n"
    exceptions.write_text(f"{page}: {line}\n")
    assert checker.main([str(tmp_path)]) == 0
    assert checker.main(["--long", "2", str(page)]) == 0
    assert not capsys.readouterr().out
