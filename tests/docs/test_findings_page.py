"""The page of findings is what the catalogue gives."""

from tools import make_findings


def test_the_page_is_what_the_catalogue_gives() -> None:
    assert make_findings.PAGE.read_text(encoding="utf-8") == make_findings.page()
