"""Write `schemas/`, the JSON Schemas of files for editors, and the tables of their keys in the reference.

Structure, meaning, bounds and defaults of a key come from the classes that read the files: the meaning is the docstring
of the field, and may end with `Default: ...` where the value of the field does not say it.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from loadsim.model.criteria import DEFAULT, Bound
from loadsim.model.mail_program import FILE
from loadsim.model.profile import _PROFILE
from loadsim.model.run_times import seconds
from loadsim.model.scenario_document import DOCUMENT
from loadsim.model.schema import (
    MOST_WHOLE,
    NULL,
    SHARE_JSON,
    TEXT_JSON,
    Amount,
    Duration,
    PositiveDuration,
    Size,
    _keys,
    reference,
)
from loadsim.model.suite import _SUITE

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
SCHEMAS = ROOT / "schemas"

KINDS: dict[str, tuple[TypeAdapter[Any], str, str]] = {
    "scenario": (DOCUMENT, "scenario.md", "A scenario of loadsim"),
    "profile": (_PROFILE, "profiles.md", "A profile of loadsim: a day of one kind of user"),
    "program": (FILE, "programs.md", "A mail program of loadsim"),
    "suite": (_SUITE, "suite.md", "A suite of loadsim: a matrix of runs"),
}
"""The class of a file, the page of the reference with its keys, and the schema's title."""

BEGIN, END = "<!-- Written by tools/make_schemas.py: make reference -->\n", "<!-- end of the keys -->\n"

DEFAULT_TEXT = "default"
"""The key of a property's default as text, until the schema is complete."""

AS_FOR_IMAP = "As for IMAP."
"""The meaning of a key of SMTP, which the tables leave out."""

WORDS = {
    "median": "The median.",
    "sigma": "The standard deviation of the natural logarithm.",
    "mean": "The mean, instead of sigma.",
    "average": "The average.",
    "min": "The minimum.",
    "max": "The maximum.",
}
"""Keys of distributions, which the tables leave out."""
LIMITS = {"min": "at least this", "max": "at most this", "below": "less than this"}


# --- keys, from the classes ---------------------------------------------------------------------------------------


@cache
def _meanings(cls: type) -> dict[str, str]:
    """Return the docstring of each field that has one; none for a class that is made by a call."""
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except OSError:
        return {}
    assert isinstance(node, ast.ClassDef)
    found = {}
    for part, following in pairwise(node.body):
        if isinstance(part, ast.AnnAssign) and isinstance(following, ast.Expr):
            found[ast.unparse(part.target)] = " ".join(ast.literal_eval(following.value).split())
    return found


def _default(field: Field[Any]) -> str:
    """Return a default as in a file; "" if there is none, or if it is made of those of a section."""
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


class _Described(GenerateJsonSchema):
    """Describes keys by the docstrings of their fields. Defaults are texts: those of the classes have other units."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        made = super().dataclass_schema(schema)
        cls = schema["cls"]
        for field in fields(cls):
            meaning, stated, default = _meanings(cls).get(field.name, "").partition("Default: ")
            if meaning:
                key = made["properties"][_keys(cls)[field.name]]
                key["description"] = meaning.strip()
                key[DEFAULT_TEXT] = default.removesuffix(".") if stated else _default(field)
        return made


def _keys_of(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of file, with Markdown in descriptions, and defaults as texts."""
    made = KINDS[kind][0].json_schema(schema_generator=_Described)
    schema: dict[str, Any] = _plain(made, made.get("$defs", {}))
    if kind == "scenario":
        schema["properties"]["topology"]["minItems"] = 1
        for name, bound in DEFAULT.items():
            schema["properties"]["criteria"]["properties"][name][DEFAULT_TEXT] = _limit(bound)
    if kind == "profile":
        _allow_base(schema)
    return schema


def _limit(bound: Bound | None) -> str:
    return ", ".join(f"{limit} {value:g}" for limit, value in bound.document().items()) if bound else ""


def _plain(part: Any, shared: dict[str, Any]) -> Any:
    """Return a part without references, and without the titles and descriptions of the classes."""
    if isinstance(part, list):
        return [_plain(each, shared) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _plain(shared[part["$ref"].rpartition("/")[2]], shared)
    found = {}
    for key, value in part.items():
        if key in ("properties", "patternProperties"):
            found[key] = {name: _plain(each, shared) | _described(each) for name, each in value.items()}
        elif key not in ("$defs", "title", "description"):
            found[key] = _plain(value, shared)
    return found


def _described(key: dict[str, Any]) -> dict[str, Any]:
    return {name: key[name] for name in ("description", DEFAULT_TEXT) if name in key and DEFAULT_TEXT in key}


def _allow_base(schema: dict[str, Any]) -> None:
    """Let a profile that starts from another state differences only."""
    needed = [key for key in schema.pop("required") if key != "name"]
    complete: dict[str, Any] = {"required": needed, "properties": {}}
    for key, section in schema["properties"].items():
        for part in _objects(section):
            required = _required(part)
            if required["required"] and key != "calculated":  # which is never inherited
                complete["properties"][key] = required
                _drop_required(part)
    described = {"description": "Profile to start from; the file then states differences.", DEFAULT_TEXT: ""}
    schema["properties"]["from"] = {**reference("profiles"), **described}
    schema["required"] = ["name"]
    schema["if"] = {"not": {"required": ["from"]}}
    schema["then"] = complete


def _required(part: dict[str, Any]) -> dict[str, Any]:
    """Return the required keys of a section and of those below it, alone."""
    below = {key: _required(each) for key, each in part.get("properties", {}).items() if "properties" in each}
    return {"required": part.get("required", []), **({"properties": below} if below else {})}


def _drop_required(part: dict[str, Any]) -> None:
    part.pop("required", None)
    for below in part.get("properties", {}).values():
        for each in _objects(below):
            _drop_required(each)


def _objects(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas of mappings, or of the elements of lists, that a schema accepts."""
    for part in schema.get("anyOf", [schema]):
        if "properties" in part:
            yield part
        elif "properties" in part.get("items", {}):
            yield part["items"]


# --- schemas ------------------------------------------------------------------------------------------------------


def text_of(kind: str) -> str:
    """Return the file of a schema."""
    schema = _keys_of(kind)
    _complete(schema, (), schema)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": KINDS[kind][2]}
    return json.dumps({**head, **schema}, indent=1, ensure_ascii=False) + "\n"


def _complete(schema: dict[str, Any], path: tuple[str, ...], top: dict[str, Any]) -> None:
    """Make each description plain text with the default; describe the keys that have no field of their own."""
    for part in _objects(schema):
        for name, key in part["properties"].items():
            text = key.get("description") or _common((*path, name))
            if text == AS_FOR_IMAP:
                (imap,) = _objects(top["properties"]["server"])
                (of_imap,) = _objects(imap["properties"]["imap"])
                text = of_imap["properties"][name]["description"].partition(" Default: ")[0]
            default = key.pop(DEFAULT_TEXT, "")
            key["description"] = text.replace("`", "") + (f" Default: {default}." if default else "").replace("`", "")
            _complete(key, (*path, name), top)


def _common(path: tuple[str, ...]) -> str:
    """Return the description of a key that has no field of its own."""
    *above, key = path
    if above == ["criteria"]:
        return f"Limits of {key}."
    if above[:1] == ["criteria"]:
        return f"Met if the figure is {LIMITS[key]}."
    if above[:1] in (["weights"], ["messages"]):
        return f"Weight of {key}."
    return WORDS[key]


# --- tables -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A key of a table, by its path."""

    path: str
    meaning: str
    values: str


def table_of(kind: str) -> str:
    """Return the table of the keys; of a scenario, those that are no sections, then a table of each section."""
    single: list[Row] = []
    sections: list[str] = []
    seen: set[tuple[str, str, str]] = set()
    for name, key in _keys_of(kind)["properties"].items():
        rows = list(_rows(key, (f"{name}[]" if key.get("type") == "array" else name,), seen))
        if rows and kind == "scenario":
            sections.append(f"### `{name}`\n\n{key['description']}\n\n{_table(rows)}")
        elif rows or _words(key) != ["no"]:
            single += rows or [Row(name, key["description"], _with_default(key))]
    if kind == "scenario":
        limits = [f"| `{name}` | {_limit(bound)} |" for name, bound in DEFAULT.items()]
        sections.append("\n".join(["### Default criteria\n", "| figure | limit |", "|---|---|", *limits, ""]))
    return "\n".join([_table(single), *sections])


def _rows(schema: dict[str, Any], path: tuple[str, ...], seen: set[tuple[str, str, str]]) -> Iterator[Row]:
    """Yield the keys below a section that have a meaning of their own, each once, and values other than `no`."""
    for part in _objects(schema):
        for name, key in part["properties"].items():
            described = (name, key.get("description", ""), key.get(DEFAULT_TEXT, ""))
            if not described[1] or described in seen or described[1] == AS_FOR_IMAP:
                continue
            seen.add(described)
            here = (*path, f"{name}[]" if key.get("type") == "array" and list(_objects(key)) else name)
            below = list(_rows(key, here, seen))
            if not below and _words(key) != ["no"]:
                yield Row(".".join(here), key["description"], _with_default(key))
            yield from below


def _table(rows: list[Row]) -> str:
    lines = [f"| `{row.path}` | {row.meaning.removesuffix('.')} | {row.values} |" for row in rows]
    return "\n".join(["| key | meaning | values (default) |", "|---|---|---|", *lines, ""])


def _with_default(key: dict[str, Any]) -> str:
    values, default = ", ".join(_words(key)), key[DEFAULT_TEXT]
    return values if default in ("", values) else f"{values} ({default})"


def _words(schema: dict[str, Any]) -> list[str]:
    """Return the values of a key in words, each once."""
    bare = {name: value for name, value in schema.items() if name not in ("description", DEFAULT_TEXT)}
    parts = [part for part in bare.get("anyOf", [bare]) if part != NULL]
    alone = {"anyOf": parts} if len(parts) > 1 else parts[0]
    if known := [words for words, part in NAMED.items() if part == alone]:
        return known
    if len(parts) > 1 and TEXT_JSON in parts:
        return ["name or path"]
    if len(parts) > 1:
        lists = [part for part in parts if part.get("type") == "array"]
        words = [word for part in parts if part not in lists for word in _words(part)] + ["or a list"] * bool(lists)
        return list({word.casefold(): word for word in words[::-1]}.values())[::-1]
    if "enum" in alone:
        return list(dict.fromkeys(map(_word, alone["enum"])))
    if alone.get("type") == "array":
        return [f"list of {', '.join(_words(alone['items']))}"]
    if alone.get("type") == "integer":
        return [_range(alone["minimum"], alone["maximum"])]
    return [{"string": "text", "object": "mapping", "number": "number", "boolean": "yes, no"}[alone["type"]]]


def _range(least: int, most: int) -> str:
    return f"from {least}" if most >= MOST_WHOLE else f"{least} to {most:,}"


def _word(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _json(of: Any) -> dict[str, Any]:
    return dict(TypeAdapter(of).json_schema())


NAMED = {
    "duration": _json(Duration),
    "duration above 0": _json(PositiveDuration),
    "share": dict(SHARE_JSON),
    "size": _json(Size),
    "number": _json(Amount),
}
"""Values with a notation of their own."""


def page_of(kind: str) -> str:
    """Return a page of the reference, with its tables renewed."""
    text = (REFERENCE / KINDS[kind][1]).read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table_of(kind)}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    for kind, (_, page, _) in KINDS.items():
        (SCHEMAS / f"{kind}.schema.json").write_text(text_of(kind), encoding="utf-8")
        (REFERENCE / page).write_text(page_of(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
