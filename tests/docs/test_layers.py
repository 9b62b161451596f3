"""No import cycle in loadsim; `lint-imports` in `make check` holds the layers."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp


def test_no_import_cycles() -> None:
    """Modules do not import each other in a circle, in type-only imports either."""
    graph = grimp.build_graph("loadsim", cache_dir=None)
    assert len(graph.modules) > 200
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()
