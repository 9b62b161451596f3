"""Write `docs/reference/findings.md`, the page of all findings, from the catalogue."""

from __future__ import annotations

from pathlib import Path

from loadsim.findings.catalogue import Code
from loadsim.findings.severity import Severity

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "findings.md"

HEAD = """\
# Findings

<!-- Written by tools/make_findings.py from the catalogue: make reference -->

Each finding has a code, in brackets after its sentence; `loadsim explain CODE` prints the code's entry on this page.
`score.json` has each finding with its code, place and values. Words in capitals stand for values; `WHERE` is the place.
"""

MEANINGS = {
    Severity.INVALID: (
        "The run is invalid: do not quote its times. The cause says what failed. A finding without a cause prevents a"
        " comparison, or keeps a scenario from running on a server."
    ),
    Severity.DEGRADED: "The run is degraded: something is missing, within the limits.",
    Severity.MISSED: "The server missed criteria of the run.",
    Severity.WARNING: "Warnings do not change the verdict.",
    Severity.NOTE: "Notes state a result, its limits, or the next step.",
}


def page() -> str:
    """Return the page: one table per severity, with an anchor per code."""
    parts = [HEAD]
    for severity, meaning in MEANINGS.items():
        codes = [code for code in Code if code.severity is severity]
        head = ["| code | meaning | what to do |", "|---|---|---|"]
        parts += [f"## {severity.capitalize()}\n", f"{meaning}\n", "\n".join([*head, *map(_row, codes), ""])]
    return "\n".join(parts)


def _row(code: Code) -> str:
    cause = f" (cause: {code.cause})" if code.cause else ""
    return f'| <a id="{code.id}"></a>`{code.id}` | {code.outline}{cause} | {code.remedy or "-"} |'


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
