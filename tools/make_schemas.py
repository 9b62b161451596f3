"""Write `schemas/`: JSON Schemas of scenarios, profiles, mail programs and suites, for editors.

The structure comes from the classes that read the files, the descriptions from the tables of the reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from loadsim.model.profile import _PROFILE
from loadsim.model.programs import _FILE
from loadsim.model.scenario import _DOCUMENT
from loadsim.model.schema import reference
from loadsim.model.suite import _SUITE

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
SCHEMAS = ROOT / "schemas"

KINDS: dict[str, tuple[TypeAdapter[Any], str, str]] = {
    "scenario": (_DOCUMENT, "scenario.md", "A scenario of loadsim"),
    "profile": (_PROFILE, "profiles.md", "A profile of loadsim: a day of one kind of user"),
    "program": (_FILE, "programs.md", "A mail program of loadsim"),
    "suite": (_SUITE, "suite.md", "A suite of loadsim: a matrix of runs"),
}
"""The class of a file, the page of the reference with its keys, and the schema's title."""

ROW = re.compile(r"^\| `([^`]+)` \|(.*)\|(.*)\|(.*)\|$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")

WORDS = {
    "median": "the median",
    "sigma": "the standard deviation of the natural logarithm",
    "mean": "the mean, instead of sigma",
    "average": "the average",
}
"""Keys of distributions, which the pages describe in one row."""
LIMITS = {"min": "at least this", "max": "at most this", "below": "less than this"}
RANGE = {"min": "the minimum", "max": "the maximum"}


class _WithoutDefaults(GenerateJsonSchema):
    """Leaves out defaults: those of the classes are in other units than the files."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def make(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of file."""
    adapter, page, title = KINDS[kind]
    made = adapter.json_schema(schema_generator=_WithoutDefaults)
    schema = _plain(made, made.get("$defs", {}))
    if kind == "scenario":
        schema["properties"]["topology"]["minItems"] = 1
    if kind == "profile":
        _allow_base(schema)
    _describe(schema, _rows((REFERENCE / page).read_text(encoding="utf-8")))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def text_of(kind: str) -> str:
    """Return the file of a schema."""
    return json.dumps(make(kind), indent=1, ensure_ascii=False) + "\n"


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
            found[key] = {name: _plain(each, shared) for name, each in value.items()}
        elif key not in ("$defs", "title", "description"):
            found[key] = _plain(value, shared)
    return found


def _allow_base(schema: dict[str, Any]) -> None:
    """Let sections of a profile state their source, and let one that starts from another state differences only."""
    needed = [key for key in schema.pop("required") if key != "name"]
    complete: dict[str, Any] = {"required": needed, "properties": {}}
    for key, section in schema["properties"].items():
        for part in _objects(section):
            required = _required(part)
            if required["required"] and key != "calculated":  # which is never inherited
                complete["properties"][key] = required
                _drop_required(part)
            if key != "sources":
                part["properties"]["source"] = {"type": "string"}
    schema["properties"]["from"] = dict(reference("profiles"))
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


# --- descriptions -------------------------------------------------------------------------------------------------


def _rows(page: str) -> dict[str, str]:
    """Return the description of each key: its meaning, its values, its default."""
    tables = "\n".join(part for part in page.split("\n\n") if part.startswith("| key |"))
    rows = {key: [cell.strip() for cell in cells] for key, *cells in ROW.findall(tables)}
    found = {}
    for key, (meaning, values, default) in rows.items():
        if meaning == "as for IMAP":
            meaning = rows[key.replace(".smtp.", ".imap.")][0]
        texts = [meaning]
        texts += [f"Values: {values}"] if values not in ("", "keys") else []
        texts += [f"Default: {default}"] if default else []
        found[key] = " ".join(f"{_clean(text)}." for text in texts)
    return found


def _clean(text: str) -> str:
    text = LINK.sub(r"\1", text).replace("`", "").rstrip(".")
    return text[:1].upper() + text[1:]


def _describe(schema: dict[str, Any], rows: dict[str, str]) -> None:
    """Give each key its description. Raises `KeyError` for a key or a row that the other side lacks."""
    used = {key for key in rows if ".NAME" in key}  # names of plug-ins: any key of the mapping above
    _describe_below(schema, (), rows, used)
    if unused := rows.keys() - used - {"criteria"}:
        raise KeyError(f"rows without a key: {sorted(unused)}")


def _describe_below(schema: dict[str, Any], path: tuple[str, ...], rows: dict[str, str], used: set[str]) -> None:
    for part in _objects(schema):
        at = (*path[:-1], f"{path[-1]}[]") if schema.get("type") == "array" else path
        for key, value in part["properties"].items():
            here = (*at, key)
            name = ".".join(here)
            if at == ("criteria",):  # a row for each limit
                of_figure = [each for each in rows if each == name or each.startswith(f"{name}.")]
                used.update(of_figure)
                text = rows[of_figure[0]]
            else:
                used.add(name)
                of_plugins = next((text for key, text in rows.items() if key.startswith(f"{name}.NAME")), None)
                text = rows.get(name) or of_plugins or _common(here, rows)
            value["description"] = text
            _describe_below(value, here, rows, used)


def _common(path: tuple[str, ...], rows: dict[str, str]) -> str:
    """Return the description of a key that has no row of its own."""
    *above, key = path
    if above[:1] == ["criteria"]:
        return f"Met if the figure is {LIMITS[key]}."
    if above and above[0] == "weights":
        return f"Weight of {key} in the score."
    if above and above[-1] in ("before[]", "after[]"):
        return rows[f"before[].{key}"]
    if above == ["compare[]", "new"]:
        return rows[f"compare[].base.{key}"]
    if above == ["sources"]:
        return f"Source of the key {key}."
    if key == "source":
        return "Source of this section: document and table."
    if above == ["after_browsing"]:
        return rows[f"after_reading.{key}"]
    return f"{_clean((WORDS | RANGE)[key])}."


def main() -> None:
    SCHEMAS.mkdir(exist_ok=True)
    for kind in KINDS:
        (SCHEMAS / f"{kind}.schema.json").write_text(text_of(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
