"""No import cycle in loadsim, and sentences in their places only; `lint-imports` in `make check` holds the layers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
from paths import ROOT

import loadsim.errors

FINDERS = ("analysis", "capacity", "characterise", "comparison", "size", "storage", "suite")
"""The packages that find something out: their sentences are in `findings`, and in the modules that build documents."""

WITH_SENTENCES = {"comparison/obstacles.py", "suite/cells.py"}
"""The modules with sentences of their own: the differences between loads."""

SENTENCE = re.compile(r"\w (is|are|was|were|has|have|had|does|did|can|cannot|may|must|needs?|missed|lacks?|failed)\b")
ERRORS = {name for name in vars(loadsim.errors) if name.endswith("Error")} | {"RunInvalid"}


def test_no_import_cycles() -> None:
    """Modules do not import each other in a circle, in type-only imports either."""
    graph = grimp.build_graph("loadsim", cache_dir=None)
    assert len(graph.modules) > 200
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()


def test_sentences_are_in_the_catalogue_and_in_documents() -> None:
    """Not where something is found out; messages of errors are."""
    modules = [path for package in FINDERS for path in sorted((ROOT / "loadsim" / package).rglob("*.py"))]
    found = {
        str(path.relative_to(ROOT / "loadsim"))
        for path in modules
        if "loadsim.report.document" not in path.read_text("utf-8")
        and any(SENTENCE.search(text) for text in texts(path))
    }
    assert found == WITH_SENTENCES


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a module, without docstrings and messages of errors; N stands for a value."""
    left_out: set[ast.AST] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        is_error = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS
        if (
            is_error
            or isinstance(node, ast.Raise)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        ):
            left_out.update(ast.walk(node))
        elif node not in left_out and isinstance(node, ast.JoinedStr):
            left_out.update(node.values)
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in node.values)
        elif node not in left_out and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
