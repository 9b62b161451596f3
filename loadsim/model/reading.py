"""Strict reading of YAML: what is not exactly as expected is refused in one line that names file, key and rule.

Documents become frozen dataclasses (the values of `profile` and `scenario`), checked by pydantic. A class that is
read is marked `@strict`; its fields are annotated with the scalars below, which say in words what they expect.
Key names are the field names without their `_s`: a duration in a file carries its own unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AliasGenerator, ConfigDict, GetCoreSchemaHandler, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from loadsim.errors import ConfigError

T = TypeVar("T")
Key = tuple[str | int, ...]
"""The path of a value in a document: ("topology", 0, "users")."""

_LONGEST_FOUND = 60
_SECRET = ("password", "accounts")
"""Keys whose values are never shown: `accounts` for the one who puts a password in its place."""


# --- one line for what is wrong ---------------------------------------------------------------------------------


def show(value: object) -> str:
    """What was found, in a few characters; of lists and mappings only that they are such."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
    text = repr(value)
    return text if len(text) <= _LONGEST_FOUND else text[: _LONGEST_FOUND - 3] + "..."


def path_text(key: Key) -> str:
    """A key path as it is shown: topology[0].users."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document came from: its file, and the key paths that the command line has set."""

    file: str
    overridden: tuple[Key, ...] = ()

    def refuse(self, key: Key, expected: str, found: object) -> ConfigError:
        """The error for the value at `key`; the value itself is shown, unless it may be a password."""
        hidden = found is not None and bool(key) and key[-1] in _SECRET
        return self.refuse_showing(key, expected, "a value that is not shown" if hidden else show(found))

    def refuse_showing(self, key: Key, expected: str, found: str) -> ConfigError:
        """The error for the value at `key`, with the words for what was found."""
        if any(key[: len(path)] == path for path in self.overridden):
            where = f"--set {'.'.join(map(str, key))}"
        else:
            where = f"{self.file}: {path_text(key)}" if key else self.file
        return ConfigError(f"{where}: expected {expected}, found {found}")


def refused(expected: str, found: str | None = None, at: Key = ()) -> PydanticCustomError:
    """What a reader raises: `at` is the rest of the value's path, `found` the words when `show` does not do."""
    return PydanticCustomError("refused", "expected {expected}", {"expected": expected, "found": found, "at": at})


def parse(adapter: TypeAdapter[T], document: object, origin: Origin) -> T:
    """Turn a document into its value. Raises ConfigError: the first of what is wrong, and how much more there is."""
    try:
        return adapter.validate_python(document)
    except ValidationError as error:
        failures = error.errors(include_url=False)
        first = failures[0]
        context = first.get("ctx", {})
        key: Key = (*first["loc"], *context.get("at", ()))
        if first["type"] == "missing":
            refused = origin.refuse_showing(key, "a value", "nothing")
        elif context.get("found") is not None:
            refused = origin.refuse_showing(key, context["expected"], context["found"])
        else:
            refused = origin.refuse(key, context.get("expected", _PYDANTIC.get(first["type"], "")), first["input"])
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise ConfigError(f"{refused}{more}") from None


_PYDANTIC = {"tuple_type": "a list", "list_type": "a list", "dict_type": "a mapping"}
"""Words for the few checks that are pydantic's own."""


# --- classes ----------------------------------------------------------------------------------------------------


def strict(cls: type[T]) -> type[T]:
    """Class decorator: this dataclass is read from a mapping that holds its keys and no others."""

    def schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_only(tuple(keys.values())), handler(source))

    keys = _keys(cls)
    vars_of: Any = cls
    aliases = AliasGenerator(validation_alias=lambda name: keys[name])
    vars_of.__pydantic_config__ = ConfigDict(extra="forbid", alias_generator=aliases)
    vars_of.__get_pydantic_core_schema__ = staticmethod(schema)
    return cls


def _keys(cls: Any) -> dict[str, str]:
    return {field.name: field.metadata.get("key", field.name.removesuffix("_s")) for field in fields(cls)}


def _only(keys: tuple[str, ...]) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise refused("a mapping")
        for key in value:
            if key not in keys:
                raise refused(
                    f"one of the keys {', '.join(keys)}", show(key), at=(key,) if isinstance(key, str) else ()
                )
        return value

    return check


@dataclass(frozen=True, slots=True)
class Via:
    """Annotation: the value is read as a `shape` (a strict dataclass) and made from it by `make`."""

    shape: Any
    make: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read the shape, then make the value."""
        return core_schema.no_info_after_validator_function(self.make, handler.generate_schema(self.shape))


@dataclass(frozen=True, slots=True)
class OrWord:
    """Annotation: the value is the one word, or what the type says."""

    word: str
    shape: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let the word pass; read anything else as the shape."""

        def read(value: object, inner: Callable[[object], object]) -> object:
            if value == self.word:
                return value
            if not isinstance(value, dict):
                raise refused(f"{self.word} or a mapping")
            return inner(value)

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(self.shape))


# --- scalars ----------------------------------------------------------------------------------------------------


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def whole(least: int, most: int | None = None) -> PlainValidator:
    """A whole number of at least `least`, and at most `most` if that is given."""
    words = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"

    def read(value: object) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            raise refused(words)
        return value

    return PlainValidator(read)


def _amount(value: object) -> float:
    number = _number(value)
    if number is None or number < 0:
        raise refused("a number of at least 0")
    return number


_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def _share(value: object) -> float:
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    share = float(percent[1]) / 100 if percent else _number(value)
    if share is None or not 0 <= share <= 1:
        raise refused("a share such as 30% or 0.3, from 0% to 100%")
    return share


_DURATION = re.compile(r"(?=.)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


def _duration(value: object) -> float:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise refused("a duration such as 90s, 10m, 8h or 1h30m")
    return sum(float(part) * unit for part, unit in zip(match.groups("0"), (3600.0, 60.0, 1.0, 1e-3), strict=True))


def _some_duration(value: object) -> float:
    seconds = _duration(value)
    if seconds <= 0:
        raise refused("a duration above 0s")
    return seconds


def _milliseconds(value: object) -> int:
    return round(_duration(value) * 1000)


_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KM]?)")
_UNITS = {"": 1, "K": 1024, "M": 1024 * 1024}


def _size(value: object) -> int:
    match = _SIZE.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if match is None:
        raise refused("a size such as 22K (of 1024 bytes)")
    return round(float(match[1]) * _UNITS[match[2]])


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise refused("a text")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise refused("yes or no")
    return value


def _off(value: object) -> bool:
    if value is not False:
        raise refused("no (loadsim does not do this yet)")
    return False


def word(*words: str) -> PlainValidator:
    """One of these words."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise refused(" or ".join(words))
        return value

    return PlainValidator(read)


Count = Annotated[int, whole(0)]
Positive = Annotated[int, whole(1)]
Amount = Annotated[float, PlainValidator(_amount)]
Share = Annotated[float, PlainValidator(_share)]
"""30% or 0.3 in the file, from 0 to 1 in the value."""
Duration = Annotated[float, PlainValidator(_duration)]
"""8h in the file, seconds in the value."""
SomeDuration = Annotated[float, PlainValidator(_some_duration)]
Milliseconds = Annotated[int, PlainValidator(_milliseconds)]
"""A duration in the file, whole milliseconds in the value."""
Size = Annotated[int, PlainValidator(_size)]
"""22K in the file, bytes in the value; K is 1024."""
Text = Annotated[str, PlainValidator(_text)]
Switch = Annotated[bool, PlainValidator(_switch)]
Off = Annotated[bool, PlainValidator(_off)]
"""A published "no" that the program does not act on."""


# --- YAML -------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Safe YAML, without silent surprises: a key stands once, 1:30 is no number, 010 is not eight."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key that stands twice."""
        seen = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in seen:
                    problem = f"each key once, found {show(name.value)} again"
                    raise yaml.constructor.ConstructorError(None, None, problem, name.start_mark)
                seen.add(name.value)
        return super().construct_mapping(node, deep)


_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def read_yaml(text: str, name: str) -> Any:
    """Read YAML. Raises ConfigError with `name` and the line; it never quotes the text, which may hold a password."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f": line {mark.line + 1}" if mark else ""
        problem = error.problem or "something else"
        if problem.startswith("each key once"):
            raise ConfigError(f"{name}{line}: expected {problem}") from None
        if not isinstance(error, yaml.scanner.ScannerError | yaml.parser.ParserError):
            problem = problem.partition("'")[0].strip()  # the rest names a tag or an alias: the user's own text
        raise ConfigError(f"{name}{line}: expected YAML, found an error: {problem}") from None
    except (yaml.YAMLError, RecursionError):
        raise ConfigError(f"{name}: expected YAML, found characters or nesting that YAML does not allow") from None


def read_file(path: Path, name: str) -> dict[str, Any]:
    """Read a YAML file that holds a mapping; `name` is what errors call it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{name}: expected a file that can be read, found: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: expected UTF-8 text, found other bytes") from None
    document = read_yaml(text, name)
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: expected a mapping, found {show(document)}")
    return document


def merge(base: Any, over: Any) -> Any:
    """Mappings are merged key by key, anything else is replaced."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}}


def write_yaml(document: object) -> str:
    """Write YAML that `read_yaml` reads as the same document; keys keep their order."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Quotes what either YAML's or our own reader would take for a number."""


for _first in set(yaml.SafeLoader.yaml_implicit_resolvers) | set(_Loader.yaml_implicit_resolvers):
    _Dumper.yaml_implicit_resolvers = {
        **_Dumper.yaml_implicit_resolvers,
        _first: [
            *yaml.SafeLoader.yaml_implicit_resolvers.get(_first, ()),
            *_Loader.yaml_implicit_resolvers.get(_first, ()),
        ],
    }


# --- settings of the command line -------------------------------------------------------------------------------


def override(document: dict[str, Any], settings: Sequence[str]) -> tuple[Key, ...]:
    """Put settings such as `topology.0.users=200` into the document; their key paths.

    Keys that are missing are made, list indices are not. Values are YAML. Raises ConfigError, one line.
    """
    return tuple(_set(document, setting) for setting in settings)


def _set(document: Any, setting: str) -> Key:
    dotted, equals, text = setting.partition("=")
    if not equals or not dotted:
        raise ConfigError("--set: expected KEY=VALUE, found no key or no =")
    name = f"--set {dotted}"
    value = read_yaml(text, name)
    place: Any = document
    key: Key = ()
    parts = dotted.split(".")
    for at, part in enumerate(parts):
        step: str | int = part
        if isinstance(place, list):
            if not part.isdecimal() or int(part) >= len(place):
                indices = f"an index from 0 to {len(place) - 1}" if place else "no index, for there is nothing"
                raise ConfigError(f"{name}: expected {indices} at {path_text(key)}, found {show(part)}")
            step = int(part)
        elif not isinstance(place, dict):
            raise ConfigError(f"{name}: expected a mapping or a list at {path_text(key)}, found a single value")
        key = (*key, step)
        if at == len(parts) - 1:
            place[step] = value
        else:
            if isinstance(place, dict) and place.get(part) is None:
                place[step] = {}
            place = place[step]
    return key


# --- where the shipped files lie --------------------------------------------------------------------------------


@cache
def shipped(kind: str) -> Path:
    """The directory of the shipped `profiles` or `scenarios`.

    A wheel carries them inside the package; a checkout (and so an editable installation) has them beside it.
    """
    package = Path(__file__).resolve().parent.parent
    inside = package / kind
    return inside if inside.is_dir() else package.parent / kind


def known(kind: str) -> Sequence[str]:
    """The bare names of the shipped files of this kind, sorted; `weights` is no profile."""
    root = shipped(kind)
    names = (path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))
    return sorted(name for name in names if (kind, name) != ("profiles", "weights"))


def beside(path: str, directory: Path | None) -> Path:
    """A path that a file names: relative to that file's directory; or, when nothing is there, to the working one.

    The second makes `--set accounts.csv=users.csv` mean what it says.
    """
    near = (directory or Path()) / path
    return near if near.exists() or not Path(path).exists() else Path(path)


def locate(kind: str, reference: str, directory: Path | None) -> tuple[Path, str] | None:
    """The file that a bare name or a path means, with the name for errors; None when it means nothing."""
    if reference in known(kind):
        return shipped(kind) / f"{reference}.yaml", f"{kind}/{reference}.yaml"
    path = beside(reference, directory)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path, str(path)
    return None
