"""Preparation of names and passwords for comparison (SASLprep, RFC 4013)."""

from __future__ import annotations

import stringprep
from collections.abc import Callable
from unicodedata import ucd_3_2_0

_PROHIBITED: tuple[Callable[[str], bool], ...] = (
    stringprep.in_table_a1,  # unassigned in Unicode 3.2, as for stored strings
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """Return a text in its prepared form. Raises `ValueError` for characters that RFC 4013 prohibits."""
    if text.isascii() and text.isprintable():
        return text
    mapped = (" " if stringprep.in_table_c12(sign) else sign for sign in text if not stringprep.in_table_b1(sign))
    prepared = ucd_3_2_0.normalize("NFKC", "".join(mapped))
    if any(prohibits(sign) for sign in prepared for prohibits in _PROHIBITED):
        raise ValueError("a character that SASLprep prohibits")
    if any(map(stringprep.in_table_d1, prepared)):  # RFC 3454 section 6: right-to-left text
        ends_right = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if any(map(stringprep.in_table_d2, prepared)) or not ends_right:
            raise ValueError("text in both directions")
    return prepared
