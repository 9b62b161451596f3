"""The JSON Schemas for editors: up to date, complete, and in agreement with the readers of the files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.cli import main
from loadsim.cli.show import EDITOR_LINE, SHIPPED_FILES, schema_file
from loadsim.errors import ConfigError
from loadsim.model.mail_program import load_program
from loadsim.model.profile import load_profile
from loadsim.model.scenario import load_scenario
from loadsim.model.suite import load_suite
from loadsim.model.yaml_reader import known, read_yaml, shipped
from tools import make_schemas

Capture = pytest.CaptureFixture[str]

KIND = {"scenarios": "scenario", "profiles": "profile", "programs": "program", "suites": "suite"}
LOAD: dict[str, Any] = {
    "scenarios": lambda path: load_scenario(path, passwords=False),
    "profiles": load_profile,
    "programs": load_program,
    "suites": load_suite,
}


def validator(kind: str) -> jsonschema.Draft202012Validator:
    schema = json.loads(schema_file(kind).read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema)


VALIDATORS = {kind: validator(kind) for kind in SHIPPED_FILES}


@pytest.mark.parametrize("kind", SHIPPED_FILES)
def test_the_file_and_the_page_are_what_the_classes_give(kind: str) -> None:
    """`make reference` writes them again. The file is a schema of the draft that it names."""
    assert schema_file(kind).read_text(encoding="utf-8") == make_schemas.text_of(KIND[kind])
    page = make_schemas.REFERENCE / make_schemas.KINDS[KIND[kind]][1]
    assert page.read_text(encoding="utf-8") == make_schemas.page_of(KIND[kind])
    schema = VALIDATORS[kind].schema
    assert schema["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    jsonschema.Draft202012Validator.check_schema(schema)


def properties(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All keys of a schema, with their schemas."""
    for key, value in schema.get("properties", {}).items():
        yield f"{path}.{key}", value
        yield from properties(value, f"{path}.{key}")
    for part in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from properties(part, path)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in SHIPPED_FILES for name in known(kind)])
def test_each_shipped_file_is_valid_and_leads_to_its_schema(kind: str, name: str) -> None:
    """Its first line is for editors, with a path that works in a checkout and in an installed package."""
    path = shipped(kind) / f"{name}.yaml"
    text = path.read_text(encoding="utf-8")
    line = text.splitlines()[0]
    assert (path.parent / line.removeprefix(EDITOR_LINE)).resolve() == schema_file(kind).resolve()
    VALIDATORS[kind].validate(read_yaml(text, name))


class _Editor(yaml.SafeLoader):
    """Reads words as YAML 1.2 does, like editors: yes and no are texts."""


_Editor.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in SHIPPED_FILES for name in known(kind)])
def test_shipped_files_are_valid_in_an_editor_of_yaml_1_2(kind: str, name: str) -> None:
    """`yes` and `no` are texts there."""
    text = (shipped(kind) / f"{name}.yaml").read_text(encoding="utf-8")
    VALIDATORS[kind].validate(yaml.load(text, _Editor))


# --- agreement ----------------------------------------------------------------------------------------------------


def test_what_files_may_hold_is_valid() -> None:
    """A profile that starts from another one states differences only; one that does not is complete."""
    own = {"name": "busy", "from": "loadsim-5.5/medium", "new_mail": {"per_day": 40}, "lists": {"count": None}}
    assert VALIDATORS["profiles"].is_valid(own)
    assert not VALIDATORS["profiles"].is_valid({key: value for key, value in own.items() if key != "from"})
    everything = {
        "server": {
            "imap": {"host": "a", "auth": ["plain", "login"], "tls_min_version": 1.3, "ignore_capabilities": ["idle"]},
            "smtp": {"host": "a", "auth": "no", "connection": "kept", "tls": "starttls", "tls_verify": "yes"},
        },
        "topology": [{"profile": "own.yaml", "users": 2, "program": ["outlook-like", "phone"], "protocol": "mine"}],
        "mailbox": {"sizes": {"2K": "50%", "30720": 0.5}, "messages_per_folder": {"min": 1, "average": 2, "max": 3}},
        "criteria": {"score_ms": None, "tasks.READ.p95_ms": {"max": 5}, "tasks": {"SEND": {"failed": {"max": 0}}}},
        "limits": {"generator": {"lag_p99_ms": None}, "drain": "0s", "done": "98%"},
    }
    VALIDATORS["scenarios"].validate(everything)
    VALIDATORS["scenarios"].validate({**everything, "mailbox": {"sizes": {"median": "12K", "mean": "40K"}}})


ODD = st.sampled_from(
    (
        *(None, True, False, 0, 1, -1, 2.5, 10**18, "", " ", "x", "yes", "8h", "0s", "8", "30%", "101%", "22K", "-1"),
        *([], ["x"], {}, {"x": 1}, {"min": 1, "average": 2, "max": 3}, {"max": 5}),
    )
)


def values(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from values(value, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any, *, misspelt: bool) -> Any:
    found = deepcopy(document)
    target = found
    for key in path[:-1]:
        target = target[key]
    if misspelt and isinstance(target, dict):
        target[f"{path[-1]}s"] = target.pop(path[-1])
    else:
        target[path[-1]] = value
    return found


READERS_ONLY = re.compile(
    r"the path of a \.yaml file|a loopback address|the accounts of a server|either |a pattern that contains|"
    r"outcomes of at most|of at most the|a weight above 0|at least 1 member|where a session|items of UID|"
    r"expected yes or no, found 'yes'|expected each level once|"
    r"compare\[0\].*: expected (one of|no level|two servers|the same)"
)
"""Errors that a schema does not find: names and files, several keys, items of a FETCH, and quoted yes and no.

Of 4420 files with one odd value or misspelt key each, the readers and the schemas reject 3697, and the readers alone
some 200, for these reasons; the schemas alone reject none.
"""

SOUND = {
    "scenarios": ("mixed", "dovecot-postfix"),
    "profiles": ("loadsim-5.5/medium",),
    "programs": ("thunderbird", "phone"),
    "suites": ("first-suite", "two-servers"),
}


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_what_a_reader_accepts_the_schema_accepts(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """An editor never marks a sound file. What only the reader rejects is a check across keys or of a text."""
    kind = data.draw(st.sampled_from(SHIPPED_FILES))
    name = data.draw(st.sampled_from(SOUND[kind]))
    document = read_yaml((shipped(kind) / f"{name}.yaml").read_text(encoding="utf-8"), name)
    path = data.draw(st.sampled_from(list(values(document))))
    mutant = changed(document, path, data.draw(ODD), misspelt=data.draw(st.integers(0, 3)) == 0)
    file = tmp_path_factory.getbasetemp() / "mutant.yaml"
    file.write_text(yaml.safe_dump(mutant), encoding="utf-8")
    try:
        LOAD[kind](str(file))
    except ConfigError as error:
        if VALIDATORS[kind].is_valid(mutant):
            assert all(READERS_ONLY.search(str(each)) for each in error.problems), [
                str(each) for each in error.problems
            ]
    else:
        VALIDATORS[kind].validate(mutant)


# --- commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SHIPPED_FILES)
def test_the_schema_is_printed_and_copied(kind: str, capsys: Capture, tmp_path: Path) -> None:
    """Beside a copy, to which the copy's line for editors leads; without it, the copy has no such line."""
    assert main(["show", kind, "--schema"]) == 0
    assert capsys.readouterr().out == schema_file(kind).read_text(encoding="utf-8")
    name = known(kind)[0]
    plain, own = tmp_path / "plain.yaml", tmp_path / "own.yaml"
    assert (
        main(["show", kind, name, "--copy", str(plain)])
        == main(["show", kind, name, "--copy", str(own), "--schema"])
        == 0
    )
    line, rest = own.read_text(encoding="utf-8").split("\n", 1)
    assert line == f"{EDITOR_LINE}{KIND[kind]}.schema.json"
    assert (tmp_path / f"{KIND[kind]}.schema.json").read_bytes() == schema_file(kind).read_bytes()
    assert plain.read_text(encoding="utf-8") == rest
    assert main(["show", kind, name, "--schema"]) == 2
    assert "--schema: expected --copy FILE with NAME, or no NAME" in capsys.readouterr().err
