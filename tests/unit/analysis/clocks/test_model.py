"""Clocks of other machines, held against simulated ones of which everything is known."""

import asyncio
import time
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, combinations, pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadsim.analysis.clocks.model import MOST_RATE, WANDER, OtherClock, Reading
from loadsim.cluster.channel import read_clock, reading_of

SECOND = 10**9

few = settings(max_examples=40)


@dataclass(frozen=True)
class Wandering:
    """The truth: a clock that is `begin_ns` ahead when ours shows 0, and gains `rates_ppm` in seconds one by one."""

    begin_ns: int
    rates_ppm: tuple[int, ...]

    def shows_ns(self, at_ns: int) -> Fraction:
        """Return its exact reading at an instant of this clock. Beyond the simulated seconds its rate is even."""
        second = max(0, min(at_ns // SECOND, len(self.rates_ppm)))
        gained = sum(self.rates_ppm[:second]) * SECOND
        if second < len(self.rates_ppm):
            gained += self.rates_ppm[second] * max(0, at_ns - second * SECOND)
        return at_ns + self.begin_ns + Fraction(gained, 1_000_000)

    def trip(self, asked_ns: int, there_ns: int, back_ns: int) -> Reading:
        """The reading by a round trip that is so long on its ways; the other clock shows whole nanoseconds."""
        return reading_of(asked_ns, int(self.shows_ns(asked_ns + there_ns)), asked_ns + there_ns + back_ns)


SECONDS = 40
BEGINS = st.integers(-(10**16), 10**16)  # the uptimes of two machines differ by up to four months
DELAYS = st.integers(0, 3_000_000) | st.integers(0, 50_000)
INSTANTS = st.integers(0, SECONDS * SECOND)


@st.composite
def steady(draw: st.DrawFn) -> Wandering:
    """Clocks whose rate stays in a range as wide as `WANDER`, anywhere within what a clock can do."""
    low = draw(st.integers(-900, 800))
    rates = st.integers(low, low + round(WANDER * 1e6))
    return Wandering(draw(BEGINS), tuple(draw(st.lists(rates, min_size=SECONDS, max_size=SECONDS))))


@st.composite
def wild(draw: st.DrawFn) -> Wandering:
    """Clocks of any rates that a clock can have, each for some seconds."""
    stretches = draw(st.lists(st.tuples(st.integers(-1000, 1000), st.integers(1, 20)), min_size=1, max_size=SECONDS))
    rates = [rate for rate, lasts in stretches for _ in range(lasts)]
    return Wandering(draw(BEGINS), tuple((rates * SECONDS)[:SECONDS]))


@st.composite
def compared(draw: st.DrawFn, clocks: st.SearchStrategy[Wandering], least: int = 1) -> tuple[Wandering, list[Reading]]:
    """A clock, and readings of it by round trips of any asymmetry."""
    clock = draw(clocks)
    trips = st.lists(st.tuples(INSTANTS, DELAYS, DELAYS), min_size=least, max_size=12, unique_by=lambda trip: trip[0])
    return clock, [clock.trip(*trip) for trip in draw(trips)]


@example(Wandering(-1374, (729, 721) + (629,) * (SECONDS - 2)), [(763, 609, 0)])  # shows whole nanoseconds
@few
@given(steady(), st.lists(st.tuples(INSTANTS, DELAYS, DELAYS), min_size=1, max_size=20))
def test_a_readings_error_is_half_its_round_trip(clock: Wandering, delays: list[tuple[int, int, int]]) -> None:
    """However the delay was divided."""
    for asked_ns, there_ns, back_ns in delays:
        reading = clock.trip(asked_ns, there_ns, back_ns)
        assert abs(clock.shows_ns(reading.at_ns) - reading.there_ns) <= reading.error_ns
        half_ns = (there_ns + back_ns) / 2
        assert half_ns <= reading.error_ns <= half_ns * 1.001 + 3


@few
@given(steady(), INSTANTS, DELAYS, DELAYS)
def test_a_reading_can_be_inverted(clock: Wandering, at_ns: int, there_ns: int, back_ns: int) -> None:
    """The inverted reading is right within its error, too."""
    reading = clock.trip(at_ns, there_ns, back_ns)
    turned = reading.turned()
    # our clock showed turned.there_ns, give or take the error, when the other showed turned.at_ns
    low, high = turned.there_ns - turned.error_ns, turned.there_ns + turned.error_ns
    assert clock.shows_ns(low) <= turned.at_ns <= clock.shows_ns(high)


def test_an_empty_list_of_readings_is_rejected() -> None:
    with pytest.raises(ValueError, match="expected a reading of the other clock, found none"):
        OtherClock.of([])


@few
@given(compared(steady()), st.lists(INSTANTS, min_size=1, max_size=20))
def test_the_clock_is_within_the_stated_error(compared: tuple[Wandering, list[Reading]], instants: list[int]) -> None:
    """At, between, before and after readings, as long as the rate stays in its range."""
    clock, readings = compared
    other = OtherClock.of(readings)
    for at_ns in (*instants, *(reading.at_ns for reading in readings)):
        told = other.there(at_ns)
        assert told.at_ns == at_ns
        assert abs(clock.shows_ns(at_ns) - told.there_ns) <= told.error_ns
    for reading in readings:
        assert other.there(reading.at_ns).error_ns <= reading.error_ns + 1


@few
@given(compared(steady(), least=2), INSTANTS)
def test_another_reading_never_increases_the_error(compared: tuple[Wandering, list[Reading]], at_ns: int) -> None:
    """A disturbed round trip between good ones is not a step back; within the readings, that is."""
    _, readings = compared
    rest = sorted(readings, key=lambda reading: reading.error_ns)[:-1]
    fewer, all_of_them = OtherClock.of(rest), OtherClock.of(readings)
    begin_ns, end_ns = fewer.readings[0].at_ns, fewer.readings[-1].at_ns
    if begin_ns <= at_ns <= end_ns and all_of_them.wander == fewer.wander:
        assert all_of_them.there(at_ns).error_ns <= fewer.there(at_ns).error_ns + 2  # both are rounded


def test_drift_is_followed() -> None:
    """A clock that gains 40 millionths, read every 10 s to 50 us: its rate is found, and followed."""
    clock = Wandering(-123 * SECOND, (40,) * SECONDS)
    other = OtherClock.of(clock.trip(second * SECOND, 20_000, 80_000) for second in range(0, SECONDS, 10))
    assert other.rate == pytest.approx(40e-6, rel=1e-3)
    for at_ns in range(0, 30 * SECOND, SECOND // 7):
        told = other.there(at_ns)
        assert abs(clock.shows_ns(at_ns) - told.there_ns) < 31_000  # what is asymmetric stays
        assert told.error_ns <= 50_053 + WANDER * 10 * SECOND / 4
    without = Reading(0, -123 * SECOND, 50_000)
    assert abs(clock.shows_ns(30 * SECOND) - (without.there_ns + 30 * SECOND)) == 1_200_000


def proves(readings: list[Reading]) -> tuple[float, float]:
    """The highest rate that some two readings prove, and the lowest, exactly: of all pairs."""
    pairs = list(combinations(sorted(readings), 2))
    unsure = [Fraction(one.error_ns + other.error_ns, other.at_ns - one.at_ns) for one, other in pairs]
    rates = [Fraction(other.ahead_ns - one.ahead_ns, other.at_ns - one.at_ns) for one, other in pairs]
    highest = max(rate - more for rate, more in zip(rates, unsure, strict=True))
    return float(highest), float(min(rate + more for rate, more in zip(rates, unsure, strict=True)))


SLOW_AND_STEADY = Wandering(0, (-500,) * SECONDS)


@example((SLOW_AND_STEADY, [SLOW_AND_STEADY.trip(second * SECOND, 20_000, 20_000) for second in (0, 20, 39)]))
@few
@given(compared(wild(), least=2))
def test_the_drift_range_is_what_the_readings_prove(compared: tuple[Wandering, list[Reading]]) -> None:
    """By any two readings, also those that were left out; and no further than it did."""
    clock, readings = compared
    readings = list({reading.at_ns: reading for reading in readings}.values())
    other = OtherClock.of(readings)
    highest, lowest = proves(readings) if len(readings) > 1 else (0.0, 0.0)
    assert other.wander == pytest.approx(max(WANDER, highest - lowest), rel=1e-6)
    rates = (*clock.rates_ppm, 0)  # a trip may end after the last second
    assert other.wander <= max(WANDER, (max(rates) - min(rates)) * 1e-6) * (1 + 1e-6)
    assert other.most_rate == pytest.approx(MOST_RATE, rel=1e-6)


def assert_contradicts_none(readings: list[Reading]) -> None:
    """The time at each reading's instant agrees with that reading within both errors, and is as exact."""
    other = OtherClock.of(readings)
    for reading in readings:
        told = other.there(reading.at_ns)
        assert abs(told.there_ns - reading.there_ns) <= told.error_ns + reading.error_ns
        assert told.error_ns <= reading.error_ns + 1


GONE_AND_BACK = Wandering(0, (500,) * 20 + (-500,) * 20)
GOOD_ENDS = [(0, 25_000, 25_000), (20 * SECOND, 0, 4_000_000), (40 * SECOND, 25_000, 25_000)]


@example((GONE_AND_BACK, [GONE_AND_BACK.trip(*trip) for trip in GOOD_ENDS]))
@few
@given(compared(wild()))
def test_no_reading_is_contradicted(compared: tuple[Wandering, list[Reading]]) -> None:
    """With any drift of the clock, and any errors of the readings."""
    assert_contradicts_none(compared[1])


AHEAD = st.integers(-20_000_000, 20_000_000)
ERRORS = st.integers(1, 10_000_000) | st.integers(1, 100_000)


@example([(0, 0, 50_000), (1000, 5_000_000, 1_200_000)])  # faster than a clock can
@example([(0, 0, 50_000), (10_000, 0, 50_000), (15_000, 0, 800_000), (30_000, 0, 2_000_000)])  # see below
@few
@given(
    st.lists(
        st.tuples(st.integers(0, SECONDS * 1000), AHEAD, ERRORS),
        min_size=1,
        max_size=12,
        unique_by=lambda reading: reading[0],
    )
)
def test_no_reading_of_any_clock_is_contradicted(read: list[tuple[int, int, int]]) -> None:
    assert_contradicts_none([Reading(at * 10**6, at * 10**6 + ahead, error) for at, ahead, error in read])


def test_only_superseded_readings_are_dropped() -> None:
    """Beyond the best two a third has nothing to say; when a fourth, poor one is there, it lies between, and has."""
    best = [Reading(0, 0, 50_000), Reading(10 * SECOND, 10 * SECOND, 50_000)]
    third = Reading(15 * SECOND, 15 * SECOND, 800_000)
    fourth = Reading(30 * SECOND, 30 * SECOND, 2_000_000)
    assert OtherClock.of([*best, third]).readings == (*best,)
    assert OtherClock.of([*best, third, fourth]).readings == (*best, third, fourth)


def test_the_error_grows_beyond_the_readings() -> None:
    """One reading says nothing of the rate; two say as much as their errors leave, and clocks may wander."""
    once = OtherClock.of([Reading(0, 0, 100)])
    assert once.there(SECOND).error_ns == pytest.approx(100 + MOST_RATE * SECOND, abs=2)
    assert once.there(-SECOND).error_ns == pytest.approx(100 + MOST_RATE * SECOND, abs=2)
    twice = OtherClock.of([Reading(0, 0, 1000), Reading(10 * SECOND, 10 * SECOND + 100_000, 1000)])
    assert twice.there(20 * SECOND).there_ns == 20 * SECOND + 200_000
    assert twice.there(20 * SECOND).error_ns == pytest.approx(1000 + (2000 / 10e9 + WANDER) * 10e9, abs=2)


def test_arrays_of_instants_are_corrected_like_single_ones() -> None:
    """The array that logs are corrected by has, instant for instant, what the clock says of each."""
    readings = [Reading(10**16 + s * SECOND, s * (SECOND + 5000) + s * s, 1000 + s) for s in range(0, 100, 7)]
    other = OtherClock.of(readings)
    since_ns = np.arange(-20, 140, 0.3) * SECOND
    ahead_ns, errors_ns = other.ahead(since_ns)
    for since, ahead, error in zip(since_ns, ahead_ns, errors_ns, strict=True):
        told = other.there(10**16 + round(since))
        assert told.ahead_ns - readings[0].ahead_ns == pytest.approx(ahead, abs=1)
        assert told.error_ns == pytest.approx(error, abs=2)


@few
@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30, unique=True))
def test_the_other_clock_never_goes_back(seconds: list[int]) -> None:
    """Later instants are later there, too, with any readings."""
    other = OtherClock.of(Reading(s * SECOND, s * (SECOND + 300_000), 10_000 + s % 7) for s in seconds)
    told = [other.there(at_ns).there_ns for at_ns in accumulate([SECOND // 3] * 60)]
    assert all(one < following for one, following in pairwise(told))


def test_a_real_clock_is_read_over_a_real_connection() -> None:
    """Our own clock at the other end of a socket, shifted by an hour: found to the error that is told."""
    shift_ns = 3600 * SECOND

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(b"%d\n" % (time.monotonic_ns() + shift_ns))
        writer.close()

    async def work() -> Reading:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())

            async def ask() -> int:
                writer.write(b"?\n")
                return int(await reader.readline())

            reading = await read_clock(ask)
            writer.close()
            await writer.wait_closed()
            return reading

    reading = asyncio.run(work())
    assert abs(reading.ahead_ns - shift_ns) <= reading.error_ns


def test_the_shortest_round_trip_is_used() -> None:
    """Asked as often as was wished, by a clock that jumps: the reading is that of the trip which took least."""
    took_ns = iter([9000, 100, 5000])
    now_ns = 0

    def clock_ns() -> int:
        return now_ns

    async def ask() -> int:
        nonlocal now_ns
        now_ns += next(took_ns)
        return 10**6 + now_ns

    reading = asyncio.run(read_clock(ask, 3, clock_ns))
    assert reading == reading_of(9000, 10**6 + 9100, 9100)
    assert next(took_ns, None) is None
