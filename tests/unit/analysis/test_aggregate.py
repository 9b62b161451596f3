"""Tasks read in one pass: their users, and the times that are kept."""

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loadsim.analysis.aggregate import UserRows


@given(st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=8))
def test_users_keep_the_rows_that_they_got_first(parts: list[list[int]]) -> None:
    rows = UserRows()
    found = [rows.add(np.array(users, np.uint32)).tolist() for users in parts]
    place = {int(user): row for row, user in enumerate(rows.users)}
    assert found == [[place[user] for user in users] for users in parts]
    assert len(rows) == len(place) and place.keys() == {*chain.from_iterable(parts)}
