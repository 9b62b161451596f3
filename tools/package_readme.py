"""The README for package indexes, which do not have the files that it links to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
"""Links and pictures with a relative target, not a URL or an anchor."""

FENCED = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)


def readme_for_index(text: str, pages: str) -> str:
    """Return the README with absolute links below the address `pages`.

    If it is "", a link becomes its text, and a picture its description, as dead links mislead.
    """

    def replaced(link: re.Match[str]) -> str:
        mark, label, target = link.groups()
        return f"{mark}[{label}]({pages.rstrip('/')}/{target})" if pages else label

    prose_and_code = FENCED.split(text)
    prose_and_code[::2] = [LINK.sub(replaced, prose) for prose in prose_and_code[::2]]
    return "".join(prose_and_code)


class PackageReadme(MetadataHookInterface):
    """Sets the package's description from README.md. Hatchling calls this for each wheel and source distribution."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme_for_index(text, self.config.get("pages", "")),
        }
