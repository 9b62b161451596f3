"""Find words and openings that CONTRIBUTING.md rules out, in docstrings, comments, messages and pages.

    python tools/check_prose.py [--long WORDS] [PATH ...]

Prints `file:line: rule: text` for each finding, and exits with status 1 if there are any. `tools/prose-exceptions.txt`
lists exceptions, one `file: text` per line. `--long` lists longer sentences instead, and exits with 0.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXCEPTIONS = Path(__file__).with_name("prose-exceptions.txt")
PLACES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "loadsim", "tests", "bench")

OPENINGS = re.compile(r"(What|How|Whether|Who|Whose|Whom|That|The same|So many|Of which|Nor|For whoever)\b")
PHRASES = (
    r"whoever|whomever|whatever|whichever|nobody|shall|anew|at last|by way of|what bec[ao]mes? of"
    r"|so manieth|every so many|that there (?:is|are) not|it be|beside|come to (?:be|the same)"
    r"|he|his|him|himself"
)
WORDS = re.compile(rf"\b(?:{PHRASES})\b".replace(" ", r"[\s#]+"), re.IGNORECASE)

FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
NO_PROSE = re.compile(r"``[^\n]+?``|`[^`]*`|<!--.*?-->|(?<=\])\([^)\s]*\)|\w+://\S+", re.DOTALL)
SENTENCE = re.compile(r"""[^.!?:|\n](?:[^.!?:|\n]|\n(?!\n)|[.!?:](?![\s*)"]))*""")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s")
VALUE = re.compile(r"\{[^{}]*\}")  # in an f-string
NOTHING = re.compile(r"(?!)")
STRINGS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))  # the latter from Python 3.12 on


@dataclass(frozen=True, slots=True)
class Line:
    """A line of prose: its number, its text with and without code, and True if it opens a docstring."""

    number: int
    shown: str
    prose: str
    opening: bool = False


def without(pattern: re.Pattern[str], text: str) -> str:
    """Replace all matches in the text by spaces, except for line breaks."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def markdown(source: str) -> Iterator[Line]:
    """Yield the lines of a page, with code, addresses and comments blanked."""
    prose = without(NO_PROSE, without(FENCED, source)).splitlines()
    listed = code = False
    blank = True  # the previous line
    for number, (shown, line) in enumerate(zip(source.splitlines(), prose, strict=True), 1):
        if shown.strip() and not shown.startswith((" ", "\t")):
            listed, code = bool(ITEM.match(shown)), False
        elif shown.startswith(("    ", "\t")) and not listed and blank:
            code = True
        blank = not shown.strip() or code
        yield Line(number, shown, "" if code else line)


def python(source: str) -> Iterator[Line]:
    """Yield the lines of docstrings, comments, and strings of more than one word."""
    openings = {
        (item.lineno, item.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(body := getattr(node, "body", None), list)
        for item in body
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        documents = token.start in openings
        if token.type == tokenize.COMMENT or documents or (token.type in STRINGS and " " in token.string.strip()):
            values = VALUE if token.string[:2].lower().strip("r").startswith("f") else NOTHING
            prose = without(NO_PROSE, without(values, token.string)).splitlines()
            for after, (shown, line) in enumerate(zip(token.string.splitlines(), prose, strict=True)):
                yield Line(token.start[0] + after, shown, line, documents and not after)


def lines_of(path: Path) -> list[Line]:
    """Return the prose of a file."""
    source = path.read_text(encoding="utf-8")
    return list(python(source) if path.suffix == ".py" else markdown(source))


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the violations in a file: line, rule, text. A phrase may span two lines."""
    lines = lines_of(path)
    text, starts = "", []
    for line in lines:
        starts.append(len(text))
        text += f"{line.prose}\n"
        if line.opening and (opening := OPENINGS.match(line.prose.lstrip("rbfuRBFU").strip('"'))):
            yield line.number, f"a docstring opens with {opening[0]!r}", line.shown.strip()
    for word in WORDS.finditer(text):
        line = lines[sum(start <= word.start() for start in starts) - 1]
        yield line.number, repr(re.sub(r"[\s#]+", " ", word[0])), line.shown.strip()


def long_sentences(path: Path, most: int) -> Iterator[tuple[int, str, str]]:
    """Yield sentences of more than `most` words. List items, headings, cells and docstrings end a sentence."""
    text, starts = "", []
    for line in lines_of(path):
        bare = line.prose.strip().strip('"#')
        if line.opening or ITEM.match(line.prose) or line.prose.startswith("#"):
            text += "\n\n"
        starts.append((len(text), line.number))
        text += bare + ("\n\n" if not bare or line.prose.rstrip().endswith('"""') else "\n")
    for sentence in SENTENCE.finditer(text):
        if len(sentence[0].split()) > most:
            number = max(line for begin, line in starts if begin <= sentence.start())
            yield number, f"{len(sentence[0].split())} words", " ".join(sentence[0].split())


def main(arguments: list[str] | None = None) -> int:
    """Check the files, and print the violations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", type=int, metavar="WORDS")
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / place for place in PLACES])
    asked = parser.parse_args(arguments)
    files = [
        file
        for path in asked.paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.suffix in (".py", ".md")
    ]
    allowed = set(EXCEPTIONS.read_text(encoding="utf-8").splitlines()) if EXCEPTIONS.exists() else set()
    wrong = 0
    for file in files:
        path = file.resolve()
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for number, rule, text in long_sentences(file, asked.long) if asked.long else findings(file):
            if f"{name}: {text}" not in allowed:
                print(f"{name}:{number}: {rule}: {text}")
                wrong += 1
    return 1 if wrong and not asked.long else 0


if __name__ == "__main__":
    sys.exit(main())
