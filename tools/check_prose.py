"""Find words and openings that CONTRIBUTING.md rules out, in docstrings, comments, messages and pages.

    python tools/check_prose.py [--long WORDS] [PATH ...]

Prints `file:line: rule: text` for each finding, and exits with status 1 if there is one. `tools/prose-exceptions.txt`
has the allowed ones, one `file: text` a line. `--long` lists sentences of more words instead, and exits with 0.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXCEPTIONS = Path(__file__).with_name("prose-exceptions.txt")
PLACES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "loadsim")

OPENINGS = re.compile(r"(What|How|Whether|Who|Whose|Whom|That|The same|So many|Of which|Nor|For whoever)\b")
WORDS = re.compile(
    r"\b(whoever|whomever|whatever|whichever|nobody|shall|anew|at last|by way of|what bec[ao]mes? of"
    r"|so manieth|every so many|that there (?:is|are) not|it be|beside|come to (?:be|the same)"
    r"|he|his|him|himself)\b",
    re.IGNORECASE,
)
CODE = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]*`", re.DOTALL)
INDENTED = re.compile(r"(?m)^(?: {4}|\t).*$")


def prose_of(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the texts of a file: line, text, and if it is a docstring."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        blank = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), source)
        blank = INDENTED.sub(
            lambda code: "" if code[0].strip() and code[0].lstrip()[0] not in "-*|" else code[0], blank
        )
        yield from ((number, line, False) for number, line in enumerate(blank.splitlines(), 1))
        return
    openings = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for item in body if isinstance(body, list) else ():  # docstrings, and those of attributes
            if (
                isinstance(item, ast.Expr)
                and isinstance(item.value, ast.Constant)
                and isinstance(item.value.value, str)
            ):
                openings.add((item.lineno, item.col_offset))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            first = token.start in openings
            text = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), token.string)
            if token.type == tokenize.STRING and not first and " " not in text.strip():
                continue
            for after, line in enumerate(text.splitlines()):
                yield token.start[0] + after, line, first and not after


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield what is wrong in a file: line, rule, text."""
    for number, line, docstring in prose_of(path):
        if docstring and (opening := OPENINGS.match(line.lstrip("rbfu").strip('"'))):
            yield number, f"a docstring opens with {opening[0]!r}", line.strip()
        for word in WORDS.finditer(line):
            yield number, repr(word[0]), line.strip()


def long_sentences(path: Path, most: int) -> Iterator[tuple[int, str, str]]:
    """Yield sentences of more words than that."""
    lines = list(prose_of(path))
    text, starts = "", []
    for number, line, _ in lines:
        starts.append((len(text), number))
        text += line.strip().strip('"#') + ("\n\n" if not line.strip() or line.rstrip().endswith('"""') else "\n")
    for sentence in re.finditer(r"[^.!?:|\n](?:[^.!?:|\n]|\n(?!\n)|[.!?:](?!\s))*", text):
        if len(sentence[0].split()) > most:
            number = max(line for begin, line in starts if begin <= sentence.start())
            yield number, f"{len(sentence[0].split())} words", " ".join(sentence[0].split())


def main() -> int:
    """Check the files, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", type=int, metavar="WORDS")
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / place for place in PLACES])
    asked = parser.parse_args()
    files = [
        file
        for path in asked.paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.suffix in (".py", ".md")
    ]
    allowed = set(EXCEPTIONS.read_text(encoding="utf-8").splitlines()) if EXCEPTIONS.exists() else set()
    wrong = 0
    for file in files:
        name = file.resolve().relative_to(ROOT)
        for number, rule, text in long_sentences(file, asked.long) if asked.long else findings(file):
            if f"{name}: {text}" not in allowed:
                print(f"{name}:{number}: {rule}: {text}")
                wrong += 1
    return 1 if wrong and not asked.long else 0


if __name__ == "__main__":
    sys.exit(main())
