"""Documents of unknown origin, read as the types that annotations state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import pytest

from loadsim.documents.typed import ReadAs, Reads, Row, Within, Wrong, closed, strict, value_of
from loadsim.errors import LogError
from loadsim.timinglog.documents import read_as


class Span(NamedTuple):
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    count: Annotated[int, Within(0, 9)] = 0
    span: Annotated[Span, Row] | None = None


@closed
@dataclass(frozen=True, slots=True)
class Only:
    name: str


@strict
@dataclass(frozen=True, slots=True)
class Timed:
    limit_s: int
    name: str = field(default="", metadata={"key": "named"})


class Keys(TypedDict, total=False):
    share: Annotated[float, Within(0, 1, above=True)]


def _even(number: int) -> int:
    if number % 2:
        raise Wrong("an even number", number)
    return number


@pytest.mark.parametrize(
    ("of", "document", "value"),
    [
        (str, "a", "a"),
        (bool, False, False),
        (float, 1, 1),
        (Literal["a", "b"], "b", "b"),
        (str | None, None, None),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Mapping[str, tuple[str, ...]], {"a": ["b"]}, {"a": ("b",)}),
        (Annotated[int, _even], 4, 4),
        (Annotated[Span, Row], [1, 2.5], Span(1, 2.5)),
        (Part, {"name": "a", "further": 1}, Part("a")),
        (Span, {"begin": 1, "end": 2}, Span(1, 2)),
        (Part, {"name": "a", "count": 9, "span": [0, 1]}, Part("a", 9, Span(0, 1))),
        (Keys, {"share": 0.5}, {"share": 0.5}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (str | int | None, 5, 5),
        (Literal["none"] | Part, {"name": "a"}, Part("a")),
        (dict[Annotated[str, Reads(str.upper)], int], {"a": 1}, {"A": 1}),
        (Annotated[str, ReadAs(Part, str)], {"name": "a"}, "Part(name='a', count=0, span=None)"),
        (Timed, {"limit": 2, "named": "a"}, Timed(2, "a")),
    ],
)
def test_a_document_is_read_into_its_type(of: Any, document: Any, value: Any) -> None:
    assert read_as(of, document, "file") == value


@pytest.mark.parametrize(
    ("of", "document", "keys", "found"),
    [
        (str, 1, (), 1),
        (bool, 1, (), 1),
        (int, True, (), True),
        (int, 1.0, (), 1.0),
        (int, 2**63, (), 2**63),
        (float, float("inf"), (), float("inf")),
        (Literal["a", "b"], ["a"], (), ["a"]),
        (tuple[int, ...], [1, "x"], (1,), "x"),
        (Mapping[str, tuple[str, ...]], {"a": ["b", 1]}, ("a", 1), 1),
        (Annotated[int, _even], 5, (), 5),
        (Annotated[Span, Row], [1], (), [1]),
        (Annotated[Span, Row], [1, None], (1,), None),
        (Part, {"count": 1}, ("name",), None),
        (Part, {"name": "a", "count": 10}, ("count",), 10),
        (Only, {"name": "a", "further": 1}, ("further",), "further"),
        (Keys, {"share": 0}, ("share",), 0),
        (tuple[int, str], [1], (), [1]),
        (str | int | None, 1.5, (), 1.5),
        (Literal["none"] | Part, {"count": 1}, ("name",), None),
        (Timed, {"limit_s": 2, "named": "a"}, ("limit_s",), "limit_s"),
    ],
)
def test_a_wrong_document_is_rejected_at_its_keys(of: Any, document: Any, keys: tuple[Any, ...], found: Any) -> None:
    with pytest.raises(Wrong) as raised:
        value_of(of, document)
    wrong, *_ = raised.value.within(document)
    assert (wrong.keys, wrong.found) == (keys, found)


def test_all_mistakes_are_found_at_once() -> None:
    """Of keys, values and fields, but a misspelt key is not missing as well."""
    of = Mapping[str, tuple[Timed, ...]]
    with pytest.raises(Wrong) as raised:
        value_of(of, {5: "x", "a": [{"limt": 1}, {"limit": "x", "named": 1}]})
    mistakes = [(wrong.keys, wrong.text or wrong.found) for wrong in raised.value.within(None)]
    assert mistakes == [
        ((5,), 5),
        ((5,), "x"),
        (("a", 0, "limt"), "'limt' (perhaps limit)"),
        (("a", 1, "limit"), "x"),
        (("a", 1, "named"), 1),
    ]


def test_the_error_names_place_key_expected_and_found() -> None:
    with pytest.raises(LogError, match=r"^file: header: count: expected a whole number from 0 to 9, found 'x'$"):
        read_as(Part, {"name": "a", "count": "x"}, "file: header")
