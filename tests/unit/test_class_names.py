"""Names: a class name occurs once in the package.

The embedded MAPI server is another reading of the documents: it shares their names with the driver, and no code.
"""

import ast
from collections import Counter

from paths import ROOT


def test_a_class_name_occurs_once() -> None:
    names = Counter(
        node.name
        for path in (ROOT / "loadsim").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and path.parent.name != "embedded_mapi"
    )
    assert [name for name, count in names.items() if count > 1] == []
