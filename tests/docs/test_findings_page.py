"""The page of findings is what the catalogue gives."""

from tools import make_findings


def test_the_page_is_generated_from_the_catalogue() -> None:
    assert make_findings.PAGE.read_text(encoding="utf-8") == make_findings.page()
