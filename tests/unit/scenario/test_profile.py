"""The canonical user profiles: every published number, their sources, spreads, and what is refused."""

import math
from contextlib import nullcontext
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.documents.yaml_reader import known, shipped
from loadsim.errors import ConfigError
from loadsim.scenario.distribution import Distribution
from loadsim.scenario.profile import KINDS, OUTCOMES, Profile, load_profile
from loadsim.scenario.weights import load_weights

Row = tuple[str, Any, Any, Any]


def rows(section: str, names: str, light: list[float], medium: list[float], heavy: list[float]) -> list[Row]:
    return [(f"{section}.{name}", *values) for name, *values in zip(names.split(), light, medium, heavy, strict=True)]


OUTCOME_NAMES = "reply reply_all forward move copy delete nothing"
CALCULATED = "received sent new reply reply_all forward recipients"
KINDS_50 = "ups1K ups2K ups4K ups10Kat upsBMobj upsWDatt upsXLatt upsXLobj"
KINDS_55 = "ups1K ups2K ups4K ups10Kat upsXLatt upsWDatt upsBMobj upsXLobj"

# Compaq 1997, Table 1 (LoadSim 5.0): attribute, Light, Medium, Heavy. Times in seconds, sizes in bytes.
COMPAQ_1997: list[Row] = [
    ("day_s", 28800, 28800, 28800),
    ("process_inbox.per_day", 12, 12, 12),
    ("browse.per_day", 5, 15, 20),
    *rows(
        *("after_reading", OUTCOME_NAMES),
        [0.05, 0.03, 0.05, 0.20, 0.0, 0.40, 0.27],
        [0.07, 0.05, 0.07, 0.20, 0.0, 0.40, 0.21],
        [0.15, 0.07, 0.07, 0.20, 0.0, 0.40, 0.11],
    ),
    ("lists.size.min", 4, 4, 4),
    ("lists.size.average", 10, 10, 10),
    ("lists.size.max", 50, 50, 50),
    ("lists.cover", 1.0, 1.0, 1.0),
    ("lists.count", None, None, None),
    ("load_attachment", 0.25, 0.25, 0.25),
    ("inbox_limit", 20, 125, 250),
    ("new_mail.per_day", 2, 4, 6),
    ("new_mail.save_sent", True, True, True),
    ("new_mail.recipients", 3, 3, 3),
    ("new_mail.list_chance", 0.30, 0.30, 0.30),
    *((f"receipts.{receipt}", 0.0, 0.0, 0.0) for receipt in ("delivery", "read")),
    *rows(
        *("messages", KINDS_50), [90, 0, 0, 10, 0, 0, 0, 0], [64, 17, 4, 5, 2, 2, 4, 2], [50, 10, 5, 10, 5, 5, 5, 10]
    ),
    ("schedule.per_day", 1, 5, 10),
    ("schedule.file_bytes.average", 22528, 22528, 22528),
    *rows(
        *("calculated", CALCULATED),
        [22.94, 4.70, 2.00, 1.05, 0.60, 1.05, 4.88],
        [66.30, 14.18, 4.00, 3.76, 2.67, 3.76, 4.68],
        [118.89, 30.67, 6.00, 13.03, 5.82, 5.82, 3.88],
    ),
]

# IBM 1998, Appendix B (LoadSim 5.5): what it adds. 5.0 takes these rows from here.
IBM_1998_ADDS: list[Row] = [
    ("empty_deleted_items_on_log_off", True, True, True),
    ("start_state.inbox", 1, 4, 9),
    ("start_state.deleted_items", 1, 1, 1),
    ("start_state.folders", 20, 40, 60),
    ("start_state.messages_per_folder", 5, 5, 5),
    ("process_inbox.read_note_delay_ms.min", 1000, 1000, 1000),
    ("process_inbox.read_note_delay_ms.average", 1000, 1000, 1000),
    ("process_inbox.read_note_delay_ms.max", 1000, 1000, 1000),
]

# IBM 1998, Appendix B: what differs from 5.0.
IBM_1998_DIFFERS: list[Row] = [
    ("inbox_limit", None, None, None),
    ("lists.count", 30, 30, 30),
    ("lists.cover", None, None, None),
    ("lists.size.min", 2, 2, 2),
    ("lists.size.average", 10, 10, 10),
    ("lists.size.max", 20, 20, 20),
    *rows(*("messages", KINDS_55), [9, 0, 0, 1, 0, 0, 0, 0], [60, 16, 4, 5, 4, 2, 2, 2], [50, 10, 5, 10, 5, 5, 5, 10]),
    ("schedule.file_bytes.min", 5120, 5120, 5120),
    ("schedule.file_bytes.average", 22528, 22528, 22528),
    ("schedule.file_bytes.max", 40960, 40960, 40960),
]

OURS: list[Row] = [("after_browsing.nothing", 1.0, 1.0, 1.0), ("message_sizes", None, None, None)]

NO_NIGHT: Row = ("night_s", 0, 0, 0)
"""Neither Compaq's table nor IBM's has a row for it."""

# BORES 4.0 (LoadSim 4.0), in excerpts.
BORES_40: list[Row] = [
    ("day_s", 28800, 28800, 28800),
    ("night_s", 14400, 14400, 14400),
    ("new_mail.per_day", 3, 6, 8),
    ("new_mail.recipients", 4, 4, 5),
    ("process_inbox.per_day", 5, 15, 20),
    ("browse.per_day", 12, 12, 12),
    *rows(
        *("after_reading", OUTCOME_NAMES),
        [0.10, 0.03, 0.05, 0.0, 0.0, 0.40, 0.42],
        [0.15, 0.05, 0.07, 0.20, 0.0, 0.40, 0.13],
        [0.20, 0.07, 0.07, 0.20, 0.0, 0.40, 0.06],
    ),
    ("inbox_limit", 20, 125, 250),
    ("start_state.folders", 20, 40, 60),
    ("start_state.messages_per_folder", 5, 5, 5),
    ("start_state.inbox", 1, 4, 9),
    ("start_state.deleted_items", 1, 1, 1),
    *rows("messages", KINDS_50, [9, 0, 0, 1, 0, 0, 0, 0], [7, 2, 0, 1, 0, 0, 0, 0], [6, 2, 1, 1, 0, 0, 0, 0]),
    ("calculated.sent", 6.7, 19.8, 38.6),
    ("calculated.received", 20.4, 55.9, 118.9),
]

# Not in the excerpt: none.
NOT_IN_THE_EXCERPT: list[Row] = [
    ("new_mail.list_chance", 0.0, 0.0, 0.0),
    ("lists.count", 0, 0, 0),
    ("lists.cover", None, None, None),
    *((f"calculated.{name}", None, None, None) for name in ("new", "reply", "reply_all", "forward", "recipients")),
]

LOADSIM_50 = [
    NO_NIGHT,
    *COMPAQ_1997,
    *IBM_1998_ADDS,
    *OURS,
    ("schedule.file_bytes.min", 22528, 22528, 22528),
    ("schedule.file_bytes.max", 22528, 22528, 22528),
]
LOADSIM_55 = list({row[0]: row for row in [NO_NIGHT, *COMPAQ_1997, *IBM_1998_ADDS, *OURS, *IBM_1998_DIFFERS]}.values())
LOADSIM_40 = list({row[0]: row for row in [*LOADSIM_50, *NOT_IN_THE_EXCERPT, *BORES_40]}.values())
EDITIONS = (("loadsim-4.0", LOADSIM_40), ("loadsim-5.0", LOADSIM_50), ("loadsim-5.5", LOADSIM_55))


published_profile = cache(load_profile)


def value_at(profile: Profile, path: str) -> Any:
    value: Any = profile
    for name in path.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("edition", "path", "published"),
    [
        pytest.param(edition, path, published, id=f"{edition}-{path}")
        for edition, table in EDITIONS
        for path, *published in table
    ],
)
def test_shipped_profiles_have_the_published_numbers(edition: str, path: str, published: list[Any]) -> None:
    shipped_values = [value_at(published_profile(f"{edition}/{name}"), path) for name in ("light", "medium", "heavy")]
    if all(isinstance(value, float) for value in shipped_values):
        assert shipped_values == pytest.approx(published, abs=1e-9)
    else:
        assert shipped_values == published


def test_the_tables_leave_nothing_out() -> None:
    """Each single value of a profile stands in the tables above, but for its name, and habits of later years."""

    def leaves(value: Any, path: str) -> list[str]:
        if isinstance(value, dict):
            return [leaf for key, part in value.items() for leaf in leaves(part, f"{path}.{key}")]
        if hasattr(value, "__dataclass_fields__"):
            return [leaf for key in value.__dataclass_fields__ for leaf in leaves(getattr(value, key), f"{path}.{key}")]
        return [path.removeprefix(".")]

    later = (
        "name",
        "after_browsing",
        "search",
        "process_inbox.delete_unread",
        "receipts.returned",
        "post",
        "browse_public",
    )
    for edition, table in EDITIONS:
        named = {path for path, *_ in table}
        rows = leaves(load_profile(f"{edition}/heavy"), "")
        unnamed = {row for row in rows if row not in named and not row.startswith(later)}
        assert unnamed == set()


@pytest.mark.parametrize("name", [name for name in known("profiles") if not name.startswith("outside/")])
def test_outcomes_and_kinds_have_a_fixed_order(name: str) -> None:
    """Outcomes and message kinds come in a fixed order, and the running sum of the outcomes ends at exactly 1."""
    profile = load_profile(name)
    assert tuple(outcome for outcome, _ in profile.after_reading.cumulative) == OUTCOMES
    sums = [edge for _, edge in profile.after_reading.cumulative]
    assert sums == sorted(sums)
    assert sums[-1] == 1.0
    assert profile.messages is None or tuple(profile.messages) == KINDS


@pytest.mark.parametrize("per_day", [50, 100, 150, 200, 300, 400, 500])
def test_exchange_profiles_send_and_receive_their_number(per_day: int) -> None:
    """A fifth is sent: new messages, and answers to what is received; so many recipients make the rest."""
    profile = load_profile(f"exchange/{per_day}")
    load, new, after = profile.calculated, profile.new_mail, profile.after_reading
    assert load is not None
    assert (load.sent, load.received) == (per_day / 5, per_day * 4 / 5)
    assert new.per_day + load.received * (after.reply + after.reply_all + after.forward) == pytest.approx(load.sent)
    as_new = new.per_day + load.received * after.forward
    of_new = new.recipients + new.list_chance * profile.lists.size.average
    answered = load.received * (after.reply + after.reply_all * new.recipients)
    assert as_new * of_new + answered == pytest.approx(load.received, rel=0.005)


def test_read_weighs_ten_and_other_scored_tasks_one() -> None:
    """READ weighs 10, the nine other scored tasks 1 each: over half of the score."""
    ones = ("SEND", "REPLY", "REPLY ALL", "FORWARD", "MOVE", "COPY", "DELETE", "BROWSE", "SCHEDULE")
    assert load_weights() == {"READ": 10.0} | dict.fromkeys(ones, 1.0)
    assert "this project's own" in (shipped("profiles") / "weights.yaml").read_text(encoding="utf-8")


def distribution(spread: Distribution) -> list[float]:
    """The chance of each number from min to max, out of `at` alone: by bisection for the edges between them."""
    edges = [0.0]
    for number in range(spread.min, spread.max):
        low, high = edges[-1], 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if spread.at(middle) <= number else (low, middle)
        edges.append(low)
    edges.append(1.0)
    return [b - a for a, b in pairwise(edges)]


@st.composite
def spreads(draw: st.DrawFn, widest: int) -> Distribution:
    low = draw(st.integers(0, 1000))
    high = low + draw(st.integers(0, widest))
    return Distribution(low, draw(st.floats(low, high)), high)


def mean_of(spread: Distribution) -> float:
    chances = distribution(spread)
    return math.fsum(number * chance for number, chance in enumerate(chances, start=spread.min))


@settings(deadline=None, max_examples=25)
@given(spreads(widest=40))
def test_a_spread_has_exactly_its_average(spread: Distribution) -> None:
    assert mean_of(spread) == pytest.approx(spread.average, abs=1e-6)


@pytest.mark.parametrize("numbers", [(4, 10, 50), (2, 10, 20), (2, 15.5, 20), (0, 25, 50)])
def test_the_published_spreads_are_geometric(numbers: tuple[int, float, int]) -> None:
    """Each number's chance is the same multiple of the one before."""
    chances = distribution(Distribution(*numbers))
    ratios = [b / a for a, b in pairwise(chances)]
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-6)


@settings(deadline=None, max_examples=50)
@given(spreads(widest=100_000), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_a_spread_rises_within_its_bounds(spread: Distribution, one: float, other: float) -> None:
    """A draw never leaves [min, max], and a larger u never gives a smaller number."""
    low, high = sorted((one, other))
    assert spread.min <= spread.at(low) <= spread.at(high) <= spread.max


@pytest.mark.parametrize("numbers", [(503, 2913, 2936), (503, 526, 2936), (0, 1e-9, 10**6)])
def test_a_steep_spread_begins_at_its_minimum(numbers: tuple[int, float, int]) -> None:
    """Where nearly all lies at one end, the extreme draws are still numbers of the spread, and the lowest is min."""
    spread = Distribution(*numbers)
    assert spread.at(0.0) == spread.min
    assert spread.min <= spread.at(1 - 2**-53) <= spread.max


def test_a_profile_starts_from_another(tmp_path: Path) -> None:
    """Overridden rows change, others stay; the published load goes."""
    file = tmp_path / "busy.yaml"
    file.write_text(
        "name: busy\nfrom: loadsim-5.5/medium\nnew_mail: {per_day: 40}\nmessages: {ups4K: 9}\n"
        "after_reading: {reply: 20%}\nlists: {count: null, cover: 50%}\ninbox_limit: 7\n"
    )
    busy, medium = load_profile("busy.yaml", tmp_path), load_profile("loadsim-5.5/medium")
    assert (busy.name, busy.new_mail.per_day, busy.new_mail.recipients) == ("busy", 40, 3)
    assert busy.messages == {**medium.messages, "ups4K": 9.0}
    assert (busy.after_reading.reply, busy.after_reading.delete) == (0.20, 0.40)
    assert busy.after_reading.nothing == pytest.approx(0.08)
    assert (busy.lists.count, busy.lists.cover, busy.lists.size) == (None, 0.5, medium.lists.size)
    assert busy.inbox_limit == 7
    assert busy.start_state == medium.start_state
    assert busy.calculated is None


def test_a_profile_starts_from_a_file_next_to_it_and_may_state_its_own_load(tmp_path: Path) -> None:
    """`from:` is relative to the file that says it; a calculated load of its own is kept."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "base.yaml").write_text("name: base\nfrom: loadsim-5.0/light\nbrowse: {per_day: 1}\n")
    (tmp_path / "one" / "top.yaml").write_text(
        "name: top\nfrom: base.yaml\nbrowse: {per_day: 2}\n"
        "calculated: {received: 1, sent: 2, new: 3, reply: 4, reply_all: 5, forward: 6, recipients: 7}\n"
    )
    top = load_profile("one/top.yaml", tmp_path)
    assert (top.browse.per_day, top.inbox_limit) == (2, 20)
    assert top.calculated is not None
    assert top.calculated.recipients == 7


WHOLE = yaml.safe_load((shipped("profiles") / "loadsim-5.5" / "medium.yaml").read_text(encoding="utf-8"))
SHARE = "a share such as 30% or 0.3, from 0% to 100%"
KIND = "one of the message kinds ups1K, ups2K, ups4K, "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "key", "expected"),
    [
        ("new_mail: {per_day: .inf}", "new_mail.per_day", "a number of at least 0, found '.inf'"),
        ("new_mail: {recipients: 3.5}", "new_mail.recipients", "a whole number of at least 1, found 3.5"),
        ("new_mail: {list_chance: 101%}", "new_mail.list_chance", f"{SHARE}, found '101%'"),
        ("new_mail: {save_sent: 1}", "new_mail.save_sent", "yes or no, found 1"),
        ("new_mail: []", "new_mail", "a mapping, found a list"),
        ("day: 0s", "day", "a duration above 0s, found '0s'"),
        ("after_reading: {reply: 60%}", "after_reading", "outcomes of at most 100% in total, found 132%"),
        ("after_browsing: {move: 70%, delete: 31%}", "after_browsing", "outcomes of at most 100% in total, found 101%"),
        ("messages: {ups3K: 1}", "messages.ups3K", KIND),
        ("messages: {ups1K: 9%}", "messages.ups1K", "a weight of at least 0, found '9%'"),
        (f"messages: {dict.fromkeys(KINDS, 0)}", "messages", "a weight above 0, found none"),
        ("message_sizes: {2K: 100%}", "message_sizes", "either messages or message_sizes, found both"),
        ("messages: null", "messages", "messages or message_sizes, found neither"),
        ("lists: {cover: 100%}", "lists", "either count or cover, found both"),
        ("lists: {count: null}", "lists", "either count or cover, found neither"),
        ("lists: {size: {min: 11}}", "lists.size", "a minimum of at most the average, found 11 above 10"),
        ("lists: {size: {max: 9}}", "lists.size", "an average of at most the maximum, found 10 above 9"),
        ("lists: {size: {min: 0}}", "lists.size.min", "lists of at least 1 member, found 0"),
        ("schedule: {file_size: {min: 5KB}}", "schedule.file_size.min", "a size such as 22K (of 1024 bytes), found "),
        ("calculated: {sent: 1}", "calculated.received", "a value, found nothing"),
        ("browsing: {per_day: 5}", "browsing", "one of the keys name, day, night, "),
    ],
)
def test_bad_rows_are_rejected(tmp_path: Path, override: str, key: str, expected: str) -> None:
    file = tmp_path / "own.yaml"
    named = "" if override.startswith("name") else "name: own\n"
    file.write_text(f"{named}from: loadsim-5.5/medium\n{override}\n")
    with pytest.raises(ConfigError) as refusal:
        load_profile(str(file))
    assert str(refusal.value).startswith(f"{file}: {key}: expected {expected}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("row", WHOLE)
def test_missing_rows_are_rejected(tmp_path: Path, row: str) -> None:
    """A file without a row that makes load is refused; one without a row that has a default is not."""
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in WHOLE.items() if key != row}))
    optional = {*("night", "empty_deleted_items_on_log_off", "inbox_limit", "after_browsing", "receipts", "calculated")}
    with nullcontext() if row in optional else pytest.raises(ConfigError, match=rf": {row}: expected "):
        load_profile(str(file))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("from: [a]\n", ": from: expected one of exchange/100, exchange/150, "),
        ("from: own.yaml\n", ": from: expected a profile that does not start from this one, found 'own.yaml'"),
    ],
)
def test_bad_bases_are_rejected(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refusal:
        load_profile(str(file))
    assert str(refusal.value).startswith(f"{file}{line}") and "\n" not in str(refusal.value)


def test_circular_profiles_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\nfrom: b.yaml\n")
    (tmp_path / "b.yaml").write_text("name: b\nfrom: a.yaml\n")
    with pytest.raises(ConfigError, match=r"/b\.yaml: from: expected .* found 'a.yaml'$"):
        load_profile("a.yaml", tmp_path)
