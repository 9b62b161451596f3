"""Write the reference's tables of keys in files.

Structure, meaning, values and defaults of a key come from the classes that read the files. The meaning is the field's
docstring; it may end with `Default: ...` if the field's value does not show the default. The keys of `score.json` come
from the classes of the figures, in which one docstring may describe several fields.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from loadsim.documents.schema import NAME_OR_PATH
from loadsim.documents.typed import ReadAs, Reads, keys_of
from loadsim.model.figures import Figures
from loadsim.model.mail_program import MailProgram
from loadsim.scenario.criteria import DEFAULT
from loadsim.scenario.document import ScenarioDocument
from loadsim.scenario.profile import Profile, SenderProfile
from loadsim.scenario.run_times import seconds
from loadsim.scenario.suite import SuiteDocument
from loadsim.storage.scenario import StorageScenario

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"

PAGES: dict[type, str] = {
    ScenarioDocument: "scenario.md",
    Profile: "profiles.md",
    SenderProfile: "profiles.md",
    MailProgram: "programs.md",
    SuiteDocument: "suite.md",
    Figures: "run-directory.md",
    StorageScenario: "storage.md",
}
"""The page with the keys of each class; several on a page come in this order."""

BEGIN, END = "<!-- Written by tools/make_keys.py: make reference -->\n", "<!-- end of the keys -->\n"

AS_FOR_IMAP = "As for IMAP."
"""The meaning of an SMTP key that the tables leave out."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: a key's path, meaning, values and default."""

    path: str
    meaning: str
    values: str
    default: str

    def __str__(self) -> str:
        default = f" ({self.default})" if self.default not in ("", self.values) else ""
        return f"| `{self.path}` | {self.meaning.removesuffix('.')} | {self.values}{default} |"


# --- classes ------------------------------------------------------------------------------------------------------


@cache
def _meanings(cls: type) -> dict[str, str]:
    """Return the docstring of each field that has one, inherited ones last; nothing for a class made by a call."""
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):
        return {}
    assert isinstance(node, ast.ClassDef)
    meanings = {}
    for part, following in pairwise(node.body):
        if isinstance(part, ast.AnnAssign) and isinstance(following, ast.Expr):
            meanings[ast.unparse(part.target)] = " ".join(ast.literal_eval(following.value).split())
    for base in cls.__bases__:
        meanings |= {name: meaning for name, meaning in _meanings(base).items() if name not in meanings}
    return meanings


def _default(field: Field[Any]) -> str:
    """Return a default as a file would state it; "" if there is none, or if it consists of a section's defaults."""
    value = field.default
    if value is MISSING and field.default_factory is MISSING:
        return "required"
    if value in (MISSING, None, ()) or is_dataclass(value):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(value)
    if "Share" in str(field.type).split(" | "):
        return f"{100 * value:g}%"
    if field.name.endswith("_s"):
        return str(seconds(value))
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _read_as(kind: Any) -> Any:
    """Return the type or the annotation by which a value of an annotated type is read."""
    if get_origin(kind) is Annotated:
        for annotation in get_args(kind)[1:]:
            if isinstance(annotation, ReadAs):
                return _read_as(annotation.section)
            if isinstance(annotation, Reads):
                return annotation
        return _read_as(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        *_, kind = (option for option in get_args(kind) if option is not NoneType)
        return _read_as(kind)
    return kind


def _words(read: Any) -> str:
    if isinstance(read, Reads):
        return read.words
    if get_origin(read) is tuple:
        return f"list of {_words(_read_as(get_args(read)[0]))}"
    return "mapping"


def _rows(cls: type, above: tuple[str, ...], seen: set[tuple[str, str, str]]) -> Iterator[Row]:
    """Yield once each key of a section that has a meaning of its own."""
    kinds = get_type_hints(cls, include_extras=True)
    of_names = {field.name: field for field in fields(cls)}
    for field, key in [(of_names[name], key) for name, key in keys_of(cls).items()]:
        read = _read_as(kinds[field.name])
        meaning, stated, default = _meanings(cls).get(field.name, "").partition("Default: ")
        meaning, default = meaning.strip(), default.removesuffix(".") if stated else _default(field)
        described = (key, meaning, default)
        if not meaning or described in seen or meaning == AS_FOR_IMAP:
            continue
        seen.add(described)
        section = _read_as(get_args(read)[0]) if get_origin(read) is tuple else read
        path = (*above, key if section is read else f"{key}[]")
        below = list(_rows(section, path, seen)) if isinstance(section, type) and is_dataclass(section) else []
        yield from below or [Row(".".join((*above, key)), meaning, _words(read), default)]


# --- figures ------------------------------------------------------------------------------------------------------


def _class_in(kind: Any) -> tuple[type | None, str]:
    """Return the dataclass within a figure's type, and the path from the field to it."""
    if get_origin(kind) in (Union, UnionType):
        (kind, *_) = (option for option in get_args(kind) if option is not NoneType)
    if get_origin(kind) is Sequence:
        return _class_in(get_args(kind)[0])[0], "[]"
    if get_origin(kind) is Mapping:
        cls, path = _class_in(get_args(kind)[1])
        return cls, f".{'NAME.FIGURE' if path else 'NAME'}"
    return (kind, "") if is_dataclass(kind) and isinstance(kind, type) else (None, "")


def _figures(cls: type, above: str, seen: set[type]) -> Iterator[tuple[list[str], str]]:
    """Yield the paths of figures, with the docstring that follows their fields. Each class is described once."""
    seen.add(cls)
    kinds, meanings, paths = get_type_hints(cls), _meanings(cls), list[str]()
    for field in fields(cls):
        inside, path = _class_in(kinds[field.name])
        inline = field.metadata.get("inline")
        below = f"{above}{inline if inline is not None else f'{field.name}{path}.'}"
        further = list(_figures(inside, below, seen)) if inside and inside not in seen else []
        if inside and inline is not None and not further:
            paths += [f"{below}{inner.name}" for inner in fields(inside)]
        elif not further or field.name in meanings:
            paths.append(f"{above}{field.name}")
        if meaning := meanings.get(field.name):
            yield paths, meaning
            paths = []
        yield from further


# --- tables -------------------------------------------------------------------------------------------------------


def table_of(cls: type) -> str:
    """Return the table of the keys; for a scenario, first the keys outside sections, then a table for each section."""
    if cls is Figures:
        figures = [
            f"| {', '.join(f'`{path}`' for path in paths)} | {meaning.removesuffix('.')} |"
            for paths, meaning in _figures(cls, "", set())
        ]
        return "\n".join(["| key | meaning |", "|---|---|", *figures, ""])
    rows = list(_rows(cls, (), set()))
    if cls is Profile:
        rows.append(Row("from", "Profile to start from; the file then states differences", NAME_OR_PATH, ""))
    if cls is not ScenarioDocument:
        return _table(rows)
    tables = [_table([row for row in rows if "." not in row.path])]
    for name in dict.fromkeys(row.path.partition(".")[0] for row in rows if "." in row.path):
        section, meaning = name.removesuffix("[]"), _meanings(cls)[name.removesuffix("[]")]
        of_section = [row for row in rows if row.path.startswith(f"{name}.")]
        tables.append(f"### `{section}`\n\n{meaning}\n\n{_table(of_section)}")
    limits = [
        f"| `{name}` | {', '.join(f'{limit} {value:g}' for limit, value in bound.document().items())} |"
        for name, bound in DEFAULT.items()
    ]
    return "\n".join([*tables, "### Default criteria\n", "| figure | limit |", "|---|---|", *limits, ""])


def _table(rows: list[Row]) -> str:
    return "\n".join(["| key | meaning | values (default) |", "|---|---|---|", *map(str, rows), ""])


def page_of(cls: type) -> str:
    """Return the page of a class with updated tables."""
    text = (REFERENCE / PAGES[cls]).read_text(encoding="utf-8")
    begin = 0
    for each in (each for each, page in PAGES.items() if page == PAGES[cls]):
        begin, end = text.index(BEGIN, begin) + len(BEGIN), text.index(END, text.index(BEGIN, begin))
        text = f"{text[:begin]}\n{table_of(each)}\n{text[end:]}"
    return text


def main() -> None:
    for cls, page in PAGES.items():
        (REFERENCE / page).write_text(page_of(cls), encoding="utf-8")


if __name__ == "__main__":
    main()
