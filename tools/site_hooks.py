"""MkDocs hooks: pages above docs/, and the list of decisions.

README.md, CONTRIBUTING.md and CHANGELOG.md are at the root, where repository browsers look for them. The site has them
in `project/`, and links are adapted. Links to other files of the repository become plain text: a site built without
the repository's address cannot lead there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PROJECT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the decisions to the navigation, in order of their numbers, and watch the root's pages."""
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    for entry in config.nav or ():
        if "Decisions" in entry:
            entry["Decisions"] = [f"decisions/{page.name}" for page in decisions]
    config.watch.extend(str(ROOT / name) for name in PROJECT)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root's pages."""
    for name in PROJECT:
        files.append(File.generated(config, f"project/{name}", content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Adapt the links into and out of docs/."""
    uri = page.file.src_uri
    name = uri.removeprefix("project/")
    above = name in PROJECT and name != uri
    inside = posixpath.dirname(uri)  # the page's directory in the site
    origin = "" if above else posixpath.join("docs", inside)  # the page's directory in the repository

    def moved(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if ":" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(origin, target))
        if path in PROJECT:
            path = f"project/{path}"
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        else:
            return text
        if files.get_file_from_path(path) is None:
            return link[0]  # the strict build reports it
        return f"[{text}]({posixpath.relpath(path, inside or '.')}{anchor})"

    return LINK.sub(moved, markdown)
