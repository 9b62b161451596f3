"""Strict reading of YAML: anything unexpected is a one-line error that names file, key, expected and found.

This module reads files into documents of mappings, lists and scalars; `typed` turns documents into dataclasses.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from stat import S_IFIFO, S_IFMT, S_IFREG, S_ISREG
from types import TracebackType
from typing import Any, Self

from loadsim.documents.schema import with_nearest
from loadsim.documents.typed import Wrong, show, value_of
from loadsim.errors import ConfigError, printable, together
from loadsim.files import mode_at, read_text, real_path

_LONGEST_PATH = 200
_LONGEST_INDEX = 9
_SECRET = (*("password", "password_file", "password_env", "manifest_key", "token_file"), "accounts")
"""Keys whose values are never shown. Some should not hold a password, but one may be put there by mistake."""


# --- errors -----------------------------------------------------------------------------------------------------


Key = tuple[str | int, ...]
"""The path to a value in a document: ("topology", 0, "users")."""


class Problems:
    """Collects errors from several checks.

    `with problems:` records an error raised in its block, and the program continues after the block. `check()` raises
    the recorded errors.
    """

    def __init__(self) -> None:
        self.found: list[ConfigError] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, ConfigError):
            self.found.append(error)
        return isinstance(error, ConfigError)

    def check(self) -> None:
        """Raise the recorded errors, if any, as one `ConfigError`."""
        if self.found:
            raise together(self.found)


class SourceLines:
    """The lines where a YAML text's values begin, by key path."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    def of(self, key: Key) -> int:
        """Return the line, from 1, of a key, or of its nearest parent in the text; 0 if there is none."""
        parts = _parts(key)
        return next((self._lines[parts[:end]] for end in range(len(parts), 0, -1) if parts[:end] in self._lines), 0)

    @cached_property
    def _lines(self) -> dict[tuple[str, ...], int]:
        """All lines, computed on first use: most files have no errors."""
        from loadsim.documents.yaml_dialect import lines_of

        lines: dict[tuple[str, ...], int] = {}
        for key, line in lines_of(self._text):
            lines.setdefault(_parts(key), line)
        return lines


def _parts(key: Key) -> tuple[str, ...]:
    """Split the names in a key path: criteria have dots instead of nested mappings."""
    return tuple(part for name in key for part in str(name).split("."))


def path_text(key: Key) -> str:
    """Write a key path, such as topology[0].users."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return _cut(printable(text))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_PATH else f"{text[: _LONGEST_PATH - 3]}..."


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document comes from: its file, the key paths set on the command line, and the lines of all others."""

    file: str
    overridden: tuple[Key, ...] = ()
    lines: SourceLines = field(default_factory=SourceLines, repr=False, compare=False)

    def error(self, key: Key, expected: str, found: object) -> ConfigError:
        """Return the error for the value at `key`, showing the value unless it may be a password."""
        hidden = found is not None and bool(key) and (key[-1] in _SECRET or key[0] == "monitors")
        return self.error_saying(key, expected, "a value that is not shown" if hidden else show(found))

    def error_saying(self, key: Key, expected: str, found: str) -> ConfigError:
        """Return the error for the value at `key`, showing a text in its place."""
        text = f"{self.where(key)}: expected {expected}, found {found}"
        return ConfigError(text) if self._is_set(key) else ConfigError(text, self.file, self.lines.of(key))

    def check_file(self, key: Key, path: Path, found: str) -> None:
        """Raise the error for the value at `key`, which is `found`, unless it is the path of a file."""
        try:
            if not S_ISREG(mode_at(path)):
                raise self.error(key, "a file", found)
        except OSError as failure:
            raise self.error_saying(key, "a file", str(failure.strerror)) from None

    def _is_set(self, key: Key) -> bool:
        return any(key[: len(path)] == path for path in self.overridden)

    def where(self, key: Key) -> str:
        """Return the key with its file, or the setting that it comes from."""
        if self._is_set(key):
            return f"--set {_cut(printable('.'.join(map(str, key))))}"
        return f"{self.file}: {path_text(key)}" if key else self.file


def parse(kind: Any, document: object, origin: Origin, at: Key = ()) -> Any:
    """Read a document, found at this key path, as a value of a type. Raises `ConfigError` with all mistakes."""
    try:
        return value_of(kind, document)
    except Wrong as wrong:
        raise together([_problem(mistake, origin) for mistake in wrong.within(document, *at)]) from None


def _problem(wrong: Wrong, origin: Origin) -> ConfigError:
    if wrong.text is not None:
        return origin.error_saying(wrong.keys, wrong.expected, wrong.text)
    return origin.error(wrong.keys, wrong.expected, wrong.found)


# --- YAML -------------------------------------------------------------------------------------------------------


MOST_VALUES = 100_000
"""The most values in a document, counting everything that aliases repeat: a few lines can repeat billions."""

MOST_LEVELS = 40
"""The deepest nesting of lists and mappings."""

MOST_NUMBER = 10**300
"""The largest whole number: a larger one may not convert to a float."""


_QUOTED = re.compile(r" '(?!<|\\?.').*'")
"""The user's own text (a tag, an alias) in PyYAML's errors, unlike kinds of tokens (<block end>) and characters."""


def read_yaml(text: str, name: str) -> Any:
    """Read YAML. Raises `ConfigError` with `name` and the line, but without the text, which may hold a password."""
    import yaml

    from loadsim.documents.yaml_dialect import Loader, RepeatedKey

    try:
        document = yaml.load(text, Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f": line {mark.line + 1}" if mark else ""
        if isinstance(error, RepeatedKey):
            raise ConfigError(f"{name}{line}: expected each key once, found {show(error.problem)} again") from None
        problem = _QUOTED.sub("", error.problem or "something else").partition(";")[0]
        raise ConfigError(f"{name}{line}: expected YAML, found an error: {problem}") from None
    except (yaml.YAMLError, RecursionError):
        raise ConfigError(f"{name}: expected YAML, found characters or nesting that YAML does not allow") from None
    except (ValueError, LookupError, TypeError, AttributeError):  # raised if a tag (!!int) does not fit the value
        raise ConfigError(f"{name}: expected YAML, found a value that does not fit its tag") from None
    _check_values(document, name, [MOST_VALUES], MOST_LEVELS)
    return document


def _check_values(value: Any, name: str, left: list[int], levels: int) -> None:
    """Reject values that no key can have (dates, bytes, sets), and documents beyond the limits. Raises `ConfigError`.

    `left` counts down the values still allowed. A value that contains itself exceeds `levels`.
    """
    left[0] -= 1
    if left[0] < 0:
        raise ConfigError(f"{name}: expected at most {MOST_VALUES} values, aliases counted, found more")
    if not levels:
        raise ConfigError(f"{name}: expected at most {MOST_LEVELS} nested lists and mappings, found more")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str | int | float | None):
                raise ConfigError(f"{name}: expected keys that are single values, found {show(key)}")
            _check_values(key, name, left, levels - 1)
            _check_values(inner, name, left, levels - 1)
    elif isinstance(value, list):
        for inner in value:
            _check_values(inner, name, left, levels - 1)
    elif isinstance(value, str):
        if "\0" in value or (not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value)):
            raise ConfigError(f"{name}: expected texts without NUL and surrogates, found one with them")
    elif isinstance(value, int):
        if abs(value) > MOST_NUMBER:
            raise ConfigError(f"{name}: expected whole numbers of at most 300 digits, found a longer one")
    elif not isinstance(value, float | None):
        raise ConfigError(f"{name}: expected texts and numbers, found a {type(value).__name__}")


def read_document(path: Path, name: str) -> tuple[dict[str, Any], Origin]:
    """Read a mapping from a YAML file; return it with its origin, which is called `name`. Raises `ConfigError`."""
    text = read_text(path, name)
    document = read_yaml(text, name)
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: expected a mapping, found {show(document)}")
    return document, Origin(name, lines=SourceLines(text))


def merge(base: Any, over: Any) -> Any:
    """Merge mappings key by key; replace any other value."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}}


def write_yaml(document: object) -> str:
    """Write YAML that `read_yaml` reads as the same document; keys keep their order."""
    import yaml

    from loadsim.documents.yaml_dialect import Dumper

    return yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)


# --- settings of the command line -------------------------------------------------------------------------------


def override(document: dict[str, Any], settings: Sequence[str]) -> tuple[Key, ...]:
    """Apply settings such as `topology.0.users=200` to the document, and return their key paths.

    Missing keys are created, but missing list items are not. Values are YAML. Raises `ConfigError`.
    """
    problems, keys = Problems(), []
    for setting in settings:
        with problems:
            keys.append(_set(document, setting))
    problems.check()
    return tuple(keys)


def _set(document: Any, setting: str) -> Key:
    dotted, equals, text = setting.partition("=")
    if not equals or not all(dotted.split(".")):
        raise ConfigError("--set: expected KEY.PATH=VALUE, found no =, or an empty key")
    name = f"--set {_cut(printable(dotted))}"
    value = read_yaml(text, name)
    container: Any = document
    key: Key = ()
    parts = dotted.split(".")
    for at, part in enumerate(parts):
        step: str | int = part
        if isinstance(container, list):
            if not part.isdecimal() or len(part) > _LONGEST_INDEX or int(part) >= len(container):
                indices = f"an index from 0 to {len(container) - 1}" if container else "no index into an empty list"
                raise ConfigError(f"{name}: expected {indices} at {path_text(key)}, found {show(part)}")
            step = int(part)
        elif not isinstance(container, dict):
            raise ConfigError(f"{name}: expected a mapping or a list at {path_text(key)}, found a single value")
        key = (*key, step)
        if at == len(parts) - 1:
            container[step] = value
        else:
            if isinstance(container, dict) and container.get(part) is None:
                container[step] = {}
            container = container[step]
    return key


# --- files and names ---------------------------------------------------------------------------------------------


@cache
def shipped(kind: str) -> Path:
    """Return the directory of the shipped `profiles`, `programs`, `scenarios` or `suites`.

    It is inside the package in a wheel, and next to it in a checkout or an editable installation.
    """
    package = Path(__file__).resolve().parents[1]
    inside = package / kind
    return inside if inside.is_dir() else package.parent / kind


@cache
def known(kind: str) -> Sequence[str]:
    """Return the sorted names of the shipped files of this kind; `weights` is not a profile."""
    root = shipped(kind)
    names = (path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))
    return sorted(name for name in names if (kind, name) != ("profiles", "weights"))


def expected_file(kind: str) -> str:
    """Describe, for errors, the file that was expected: a shipped name, or a path."""
    return f"one of {', '.join(known(kind))}, or the path of a .yaml file"


def as_absolute(kind: str, reference: str, found: tuple[Path, str] | None) -> str:
    """Return a reference that means the same in any directory; `found` is what `locate` returned for it."""
    return reference if found is None or reference in known(kind) else str(real_path(found[0]))


def resolve_path(path: str, directory: Path | None) -> Path:
    """Return the file that a path in a file refers to.

    Paths are relative to that file's directory or, failing that, to the working directory, so that `--set
    accounts.csv=users.csv` works.
    """
    near = (directory or Path()) / path
    return near if _mode(near) or not _mode(Path(path)) else Path(path)


def _mode(path: Path) -> int:
    try:
        return mode_at(path)
    except OSError as failure:
        return 0 if failure.errno == errno.ENAMETOOLONG else S_IFREG  # opening it will say why


def located(kind: str, reference: str, directory: Path | None = None) -> tuple[Path, str]:
    """Return what `locate` finds. Raises `ConfigError` if it finds nothing."""
    if (place := locate(kind, reference, directory)) is None:
        shown = with_nearest(reference, known(kind))
        raise ConfigError(f"{kind.removesuffix('s')}: expected {expected_file(kind)}, found {shown}")
    return place


def locate(kind: str, reference: str, directory: Path | None) -> tuple[Path, str] | None:
    """Find a file by its shipped name or path; return it with its name for errors, or None."""
    if reference in known(kind):
        return shipped(kind) / f"{reference}.yaml", f"{kind}/{reference}.yaml"
    path = resolve_path(reference, directory)
    if path.suffix in (".yaml", ".yml") or S_IFMT(_mode(path)) in (S_IFREG, S_IFIFO):
        return path, str(path)
    return None
