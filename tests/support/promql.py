"""The metrics and labels that a query in PromQL names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<range>\[[^\]]*\])
      | (?P<number>\d[\w.]*)
      | (?P<name>[A-Za-z_:][\w:]*)
      | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){},=<>@])""",
    re.VERBOSE,
)

_LISTS = ("by", "without", "on", "ignoring", "group_left", "group_right")


@dataclass(slots=True)
class Named:
    """Metrics, each with the labels of its selectors, and the labels of all lists such as `by (task)`."""

    metrics: dict[str, set[str]] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)


def named(query: str) -> Named:
    """What the query names. Raises `ValueError` for a sign that is none of PromQL's."""
    found, at, depth = Named(), 0, 0
    listing = False  # in the brackets after `by`
    word = selected = ""  # the last word; the metric whose braces are open
    while at < len(query):
        token = _TOKEN.match(query, at)
        if token is None:
            raise ValueError(f"no PromQL: {query[at:]!r}")
        at, kind, text = token.end(), token.lastgroup, token[0]
        if kind == "name":
            if listing:
                found.lists.add(text)
            elif depth:
                found.metrics[selected].add(text)
            elif text.startswith("loadsim_"):
                found.metrics.setdefault(text, set())
            word = text
        elif text == "{":
            if word not in found.metrics:
                raise ValueError(f"a selector without a metric: {query!r}")
            depth, selected = 1, word
        elif text == "}":
            depth = 0
        elif text == "(":
            listing = word in _LISTS
        elif text == ")":
            listing = False
        if kind == "sign" and text != "{":
            word = ""
    return found
