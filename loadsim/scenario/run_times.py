"""The times of a run: days, nights, warm-up and window, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass

from loadsim.documents.schema import LONGEST_S
from loadsim.documents.yaml_reader import Origin
from loadsim.findings.formats import length
from loadsim.model.terms import CANONICAL, STRESS
from loadsim.scenario.profile import Profile
from loadsim.scenario.sections import RunSection

PARTS = ("warm-up", "window", "after-window")
"""The parts of the work, in order; the last is the time that remains if the window ends before the work does."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """A run's times: `duration_s`, in days of `day_length_s`; log-ons take `ramp_up_s` before the common start.

    A night of `night_length_s` follows each day; a day and its night are a cycle. The window begins `warm_up_s` after
    the common start and lasts `window_s`; tasks due in it are scored. In `mode` stress, users do their planned
    activities one after another, without pauses or nights. `day_shape` has the weights of equal parts of each day; if
    it is empty, the day is flat. So has `ramp_shape` for log-ons in the ramp-up.
    """

    day_length_s: float
    duration_s: float
    ramp_up_s: float
    warm_up_s: float
    window_s: float
    seed: int = 1
    mode: str = CANONICAL
    night_length_s: float = 0.0
    day_shape: tuple[float, ...] = ()
    ramp_shape: tuple[float, ...] = ()

    @property
    def cycles(self) -> float:
        return self.duration_s / (self.day_length_s + self.night_length_s)

    def part_at(self, at_s: float) -> str:
        """Return the part of the work, one of `PARTS`, at this time since the common start."""
        if at_s < self.warm_up_s:
            return "warm-up"
        end_s = self.warm_up_s + self.window_s
        return "window" if at_s < end_s or end_s >= self.duration_s else "after-window"

    @property
    def active_s(self) -> float:
        """The length of the run without nights."""
        if not self.night_length_s:
            return self.duration_s
        cycles, rest_s = divmod(self.duration_s, self.day_length_s + self.night_length_s)
        return cycles * self.day_length_s + min(rest_s, self.day_length_s)

    @property
    def days(self) -> float:
        """The length of the run without nights, in days."""
        return self.active_s / self.day_length_s


def seconds(value: float) -> str:
    """Write a duration exactly, as in a file."""
    return f"{value:.0f}s" if value == int(value) else f"{value:.17f}".rstrip("0") + "s"


def resolve_run(shape: RunSection, users: int, profile: Profile, origin: Origin) -> RunTimes:
    """Fill in the lengths that the scenario leaves open, and check that the window lies within a day.

    The published procedure for an 8-hour run discards the first 2 hours and scores 4: a quarter and a half. With
    nights, these are fractions of one day: a rate over days and nights would describe neither.
    """
    # Compute the lengths of day, night and run.
    day_length_s = profile.day_s if shape.day_length_s is None else shape.day_length_s
    night_length_s = 0.0 if shape.mode == STRESS else profile.night_s * day_length_s / profile.day_s
    cycle_s, days = day_length_s + night_length_s, shape.days or 1
    duration_s = days * cycle_s if shape.duration_s is None else shape.duration_s
    if duration_s > LONGEST_S:
        expected = f"a run of at most {length(LONGEST_S)}"
        raise origin.error_saying(("run", "days"), expected, f"{days:,} days of {length(cycle_s)}")

    # Find the time in which the window must lie: the run, or one of its days.
    begin_s, end_s, within = 0.0, duration_s, f"the run of {length(duration_s)}"
    if night_length_s:
        last_whole = (duration_s + night_length_s) // cycle_s - 1
        number = max(0.0, last_whole) if shape.warm_up_s is None else shape.warm_up_s // cycle_s
        begin_s = number * cycle_s
        end_s = min(begin_s + day_length_s, duration_s)
        within = f"a day of {length(day_length_s)}, before its night"

    # Place the window in it.
    length_s = end_s - begin_s
    warm_up_s = begin_s + length_s / 4 if shape.warm_up_s is None else shape.warm_up_s
    window_s = min(length_s / 2, end_s - warm_up_s) if shape.window_s is None else shape.window_s
    if window_s <= 0 or warm_up_s + window_s > end_s + 1e-9:
        if shape.window_s is None:
            expected, found = f"a warm-up that leaves time for a window within {within}", length(warm_up_s)
        else:
            default = "" if shape.warm_up_s is not None else " (by default)"
            expected = f"warm_up and window to end within {within}"
            found = f"{length(warm_up_s)}{default} and {length(shape.window_s)}"
        raise origin.error_saying(("run", "window" if shape.window_s else "warm_up"), expected, found)
    return RunTimes(
        day_length_s=day_length_s,
        duration_s=duration_s,
        ramp_up_s=max(1.0, users / 50) if shape.ramp_up_s is None else shape.ramp_up_s,
        warm_up_s=warm_up_s,
        window_s=window_s,
        seed=shape.seed,
        mode=shape.mode,
        night_length_s=night_length_s,
        day_shape=shape.day_shape,
        ramp_shape=shape.ramp_shape,
    )
