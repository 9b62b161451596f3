"""The YAML of loadsim's files. It uses PyYAML, which processes without YAML do not import."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from typing import Any

import yaml

MOST_MERGED = 100_000
"""The most values that merge keys (<<) may put into a mapping: a few lines can repeat billions."""


class RepeatedKey(yaml.constructor.ConstructorError):
    """A mapping has the same key twice; `problem` is that key."""


class Loader(yaml.SafeLoader):
    """Safe YAML with fewer surprises: keys are unique, 1:30 is not a number, 010 is not eight."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Reject a repeated key."""
        seen = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in seen:
                    raise RepeatedKey(None, None, name.value, name.start_mark)
                seen.add(name.value)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Reject nested merge keys (<<) with more than `MOST_MERGED` values."""
        super().flatten_mapping(node)
        if len(node.value) > MOST_MERGED:
            raise yaml.constructor.ConstructorError(None, None, "too many merged keys", node.start_mark)


_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"}
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


class Dumper(yaml.SafeDumper):
    """Quotes text that standard YAML or `Loader` would read as a number."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (as in the library's own classes)
        first: [*resolvers, *Loader.yaml_implicit_resolvers.get(first, ())]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def lines_of(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the key path of each value in a text, and the line (from 1) where it begins."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return
    yield from _lines(root, ())


def _lines(node: yaml.Node | None, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    below: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        below = [(str(key.value), key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    elif isinstance(node, yaml.SequenceNode):
        below = [(str(index), value, value) for index, value in enumerate(node.value)]
    for name, place, value in below:
        if name == "<<":  # merge keys can repeat a mapping very often
            continue
        here = (*path, name)
        yield here, place.start_mark.line + 1
        yield from _lines(value, here)
