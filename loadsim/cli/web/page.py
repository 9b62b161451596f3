"""The page as one document: its style and its script are in it, and it loads and runs nothing else."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib import resources

from loadsim.report.charts import markers
from loadsim.report.style import STYLE


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


_STYLE, _SCRIPT = STYLE + _read("page.css"), _read("page.js")

POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self';"
    " img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy. Source: Content Security Policy Level 3, sections 6.1 and 6.7.3.3."""

PAGE = (
    _read("page.html")
    .replace("<!-- style -->", f"<style>{_STYLE}</style>")
    .replace("<!-- markers -->", markers())
    .replace("<!-- script -->", f"<script>{_SCRIPT}</script>")
    .encode()
)
