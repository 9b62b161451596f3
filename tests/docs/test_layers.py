"""No import cycle in loadsim; `lint-imports` in `make check` holds the layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import grimp

T = TypeVar("T", bound=Hashable)


def test_no_import_cycles() -> None:
    """Modules do not import each other in a circle, in type-only imports either."""
    graph = grimp.build_graph("loadsim", cache_dir=None)
    assert len(graph.modules) > 200
    assert not cycles(graph.modules, graph.find_modules_directly_imported_by)


def test_cycles_are_found() -> None:
    """Cycles are kept apart from each other, and from nodes that only lead to them."""
    edges = {1: [2], 2: [3], 3: [1, 4], 4: [5, 6], 5: [4], 6: [6], 7: [1]}
    assert cycles(edges, edges.__getitem__) == [{4, 5}, {1, 2, 3}]


def cycles(nodes: Iterable[T], successors: Callable[[T], Iterable[T]]) -> list[set[T]]:
    """Return the strongly connected components of more than one node (Tarjan 1972, by recursion)."""
    number: dict[T, int] = {}
    lowest: dict[T, int] = {}
    path: list[T] = []
    found: list[set[T]] = []

    def visit(node: T) -> None:
        number[node] = lowest[node] = len(number)
        path.append(node)
        for successor in successors(node):
            if successor not in number:
                visit(successor)
                lowest[node] = min(lowest[node], lowest[successor])
            elif successor in path:
                lowest[node] = min(lowest[node], number[successor])
        if lowest[node] == number[node]:
            at = path.index(node)
            if len(path) - at > 1:
                found.append(set(path[at:]))
            del path[at:]

    for node in nodes:
        if node not in number:
            visit(node)
    return found
