"""The tables of keys in the reference are what the classes give."""

import pytest

from tools import make_keys


@pytest.mark.parametrize("cls", make_keys.PAGES)
def test_the_page_is_generated_from_the_class(cls: type) -> None:
    page = make_keys.REFERENCE / make_keys.PAGES[cls]
    assert page.read_text(encoding="utf-8") == make_keys.page_of(cls)
