"""Remedies for a run with too few tasks in its window: settings with which a plan has enough of them.

A remedy is tried by planning, if that takes a few seconds at most. Otherwise, it is computed from the planned counts,
with a margin for chance. None is offered if neither can be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, inf, sqrt

from loadsim.dryrun.plan import make_plan
from loadsim.errors import ConfigError
from loadsim.model.accounts import AccountPattern, AccountTable
from loadsim.model.run_times import at_least, in_words, resolve_run, rounded_up, typed
from loadsim.model.scenario import Scenario
from loadsim.model.terms import MOST_USERS, STRESS, Window
from loadsim.model.yaml_reader import Origin
from loadsim.timinglog.planned_load import PlannedLoad

MOST_TRIED_TASKS = 60_000
"""The most tasks of a plan that tries more days: about 3 s, at 20,000 planned tasks per second on one core. It saves
time, since a computed number of days is up to twice as high."""

MOST_TRIED_FOR_USERS = 20_000
"""The most tasks of a plan that tries more users: a computed number of them makes the run no longer."""

MOST_TRIES = 5
"""The most plans for one remedy. Two suffice, unless the first plan has fewer than ten of the scarcest task."""

LEAST_STEP = 1.5
"""The least growth from one plan to the next for a better count, if the remedy itself would take too long to plan."""

MOST_DAYS = 100
"""The most days that are offered: more are no remedy, because more users have the same tasks in less time."""

LARGEST_STEP = 8.0
"""The largest growth from one plan to the next: a few tasks say little about the number that is needed."""

SURE_HITS = 40
"""With at least this number of the scarcest task, a remedy may be computed instead of tried."""

MARGIN = 3.0
"""The margin of a computed remedy, in standard deviations."""

LATER_SHARE = 0.8
"""The least share of a day's tasks that later days have: users read the mail of the start state on the first day.
Measured: 81 % of REPLY ALL, by Heavy users of LoadSim 5.5 without lists, in days 2.5 to 7.5 of 10."""

Planned = Callable[[Scenario], PlannedLoad]
"""Returns the planned load of a scenario."""


def plan_of(scenario: Scenario) -> PlannedLoad:
    """Return the planned load of a scenario, which this process plans."""
    return make_plan(scenario).load()


def scored_in_window(scenario: Scenario, load: PlannedLoad) -> dict[str, int]:
    """Return the number of each task that is due in the window, of those with a weight that the run has at all."""
    run = scenario.run
    planned = load.in_window(Window(run.warm_up_s, run.warm_up_s + run.window_s))
    return {task: count for task, count in planned.items() if scenario.weights.get(task) and any(load.tasks[task])}


def remedies(
    scenario: Scenario, load: PlannedLoad | None, needed: int, *, users: bool = True, planned: Planned = plan_of
) -> Iterator[Scenario]:
    """Yield scenarios that differ in a few settings, each with a window that is long enough, and enough hits in it.

    `load` is the planned load of `scenario` (None: unknown), `needed` the least number of hits for each scored task.
    Without `users`, none has more users. A scenario with more days comes before one with more users.
    """
    if load is not None and (scenario.run.mode == STRESS or not scored_in_window(scenario, load)):
        load = None  # no task is scored
    if wider := _with_wider_window(scenario, load, needed):
        yield wider
    base = scenario
    if scenario.run.window_s < scenario.limits.window_s:
        longer_day = None if wider else _with_longer_day(scenario)
        if longer_day is None:
            return
        base = longer_day
        if load is None:
            yield base
            return
        # A day has the same tasks at any length, but for chance.
        tried = _tasks(load) <= MOST_TRIED_TASKS
        load = planned(base) if tried else replace(load, duration_s=base.duration_s)
        least = _least(base, load)
        if least - (0 if tried else MARGIN * sqrt(least)) >= needed:
            yield base
            return
    if load is None:
        return
    if longer := _grown(base, load, needed, _with_days, LATER_SHARE, MOST_TRIED_TASKS, planned):
        yield longer
    if users and (larger := _grown(base, load, needed, _with_users, 1.0, MOST_TRIED_FOR_USERS, planned)):
        yield larger


def settings(scenario: Scenario, remedy: Scenario) -> list[str]:
    """Return the settings that make a remedy of a scenario, such as `run.days=3`."""
    before, after = scenario.stated_run, remedy.stated_run
    found = [
        f"topology.{at}.users={group.users}"
        for at, group in enumerate(remedy.topology)
        if group.users != scenario.topology[at].users
    ]
    if after.days != before.days:
        found.append(f"run.days={after.days}")
    for key in ("day_length", "duration", "warm_up", "window"):
        value_s = getattr(after, f"{key}_s")
        if value_s is not None and value_s != getattr(before, f"{key}_s"):
            found.append(f"run.{key}={typed(value_s)}")
    return found


def options(scenario: Scenario, remedy: Scenario) -> str:
    """Return the options of a command that make a remedy of a scenario, such as `--set run.days=3`."""
    return " ".join(f"--set {setting}" for setting in settings(scenario, remedy))


def in_text(scenario: Scenario, found: Iterator[Scenario]) -> str:
    """Return remedies in words, each with its options; "" without any."""
    shown = [_in_words(scenario, remedy) for remedy in found]
    return f"take {', or '.join(shown)}" if shown else ""


def _in_words(scenario: Scenario, remedy: Scenario) -> str:
    before, after = scenario.stated_run, remedy.stated_run
    parts = []
    if after.day_length_s != before.day_length_s:
        parts.append(f"a day of {_length(remedy.run.day_length_s)}")
    if after.days != before.days:
        parts.append(f"{after.days} days")
    if after.duration_s != before.duration_s:
        parts.append(f"a run of {_length(remedy.duration_s)}")
    if after.window_s != before.window_s:
        parts.append(f"a window of {_length(remedy.run.window_s)}")
    if remedy.users != scenario.users:
        parts.append(f"{remedy.users:,} users")
    takes = f"; the run takes {_length(remedy.duration_s)}" if remedy.duration_s != scenario.duration_s else ""
    return f"{' and '.join(parts)} ({options(scenario, remedy)}{takes})"


def _length(value_s: float) -> str:
    """Return a duration exactly if that takes few digits."""
    exact = in_words(value_s)
    return exact if float(exact.split()[0]) < 200 and len(exact) < len("12.5 min") else f"about {at_least(value_s)}"


# --- changes of a scenario --------------------------------------------------------------------------------------


def _with_run(scenario: Scenario, **changes: float | int | None) -> Scenario | None:
    """Return a scenario with other stated times of its run; None if they do not fit together."""
    section = replace(scenario.stated_run, **changes)  # type: ignore[arg-type]  # each field has its own type
    try:
        run = resolve_run(section, scenario.users, scenario.topology[0].profile, Origin(scenario.name))
    except ConfigError:
        return None
    return replace(scenario, run=run, stated_run=section)


def _with_wider_window(scenario: Scenario, load: PlannedLoad | None, needed: int) -> Scenario | None:
    """Return a scenario whose window ends later in the run, or in its day if nights follow days."""
    run, shortest_s = scenario.run, scenario.limits.window_s
    end_s = run.duration_s
    if run.night_length_s:
        cycle_s = run.day_length_s + run.night_length_s
        end_s = min(run.warm_up_s // cycle_s * cycle_s + run.day_length_s, end_s)
    longest_s = end_s - run.warm_up_s

    def sufficient(window_s: float) -> bool:
        wider = replace(scenario, run=replace(run, window_s=window_s))
        return window_s >= shortest_s and (load is None or _least(wider, load) >= needed)

    if longest_s <= run.window_s or not sufficient(longest_s):
        return None
    if sufficient(shortest_s) and shortest_s > run.window_s:
        return _with_run(scenario, window_s=shortest_s)
    # A longer window has at least the same tasks.
    too_short_s, window_s = run.window_s, longest_s
    while window_s - too_short_s > 0.01 * window_s:
        middle_s = (too_short_s + window_s) / 2
        too_short_s, window_s = (too_short_s, middle_s) if sufficient(middle_s) else (middle_s, window_s)
    window_s = min(rounded_up(max(window_s, shortest_s)), longest_s)
    return _with_run(scenario, window_s=window_s) if sufficient(window_s) else None


def _with_longer_day(scenario: Scenario) -> Scenario | None:
    """Return a scenario whose times are longer by the factor by which its window is too short."""
    run, stated, shortest_s = scenario.run, scenario.stated_run, scenario.limits.window_s
    factor = shortest_s / run.window_s
    changes = {} if stated.window_s is None else {"window_s": shortest_s}
    if stated.duration_s is None:
        changes["day_length_s"] = rounded_up(run.day_length_s * factor)
    else:
        changes["duration_s"] = rounded_up(run.duration_s * factor)
    longer = _with_run(scenario, **changes)
    return longer if longer and longer.run.window_s >= shortest_s else None


def _with_days(scenario: Scenario, factor: float) -> Scenario | None:
    """Return a scenario with more days; with nights, None, because the window lies in one day."""
    run, stated = scenario.run, scenario.stated_run
    if run.night_length_s or factor * run.duration_s > MOST_DAYS * run.day_length_s:
        return None
    changes: dict[str, float]
    if stated.duration_s is None:
        days = ceil((stated.days or 1) * factor)
        changes, duration_s = {"days": days}, days * run.day_length_s
    else:
        duration_s = rounded_up(run.duration_s * factor)
        changes = {"duration_s": duration_s}
    if stated.window_s is not None:  # the further days belong to the window
        changes |= {"warm_up_s": run.warm_up_s, "window_s": run.window_s + duration_s - run.duration_s}
    return _with_run(scenario, **changes)


def _with_users(scenario: Scenario, factor: float) -> Scenario | None:
    """Return a scenario with more users in each group; None if it has no accounts, or no mailboxes, for them."""
    if factor * scenario.users > MOST_USERS:
        return None
    single = len(scenario.topology) == 1
    topology = tuple(
        replace(group, users=_two_digits(group.users * factor) if single else ceil(group.users * factor))
        for group in scenario.topology
    )
    larger = _with_run(replace(scenario, topology=topology))
    if larger is None or larger.users > min(MOST_USERS, scenario.mailbox.population or MOST_USERS):
        return None
    accounts = scenario.accounts
    if isinstance(accounts, AccountTable) and larger.users > len(accounts.rows):
        return None
    if isinstance(accounts, AccountPattern) and accounts.problem(scenario.domain, larger.users):
        return None
    return larger


def _two_digits(value: float) -> int:
    exact = ceil(value)
    unit = int(10 ** max(len(str(exact)) - 2, 0))
    return ceil(exact / unit) * unit


# --- the size that suffices -------------------------------------------------------------------------------------


def _least(scenario: Scenario, load: PlannedLoad) -> int:
    """Return the number of the scarcest scored task in the window."""
    return min(scored_in_window(scenario, load).values(), default=0)


def _tasks(load: PlannedLoad) -> int:
    return sum(map(sum, load.tasks.values()))


def _grown(
    base: Scenario,
    load: PlannedLoad,
    needed: int,
    change: Callable[[Scenario, float], Scenario | None],
    later_share: float,
    most_tasks: int,
    planned: Planned,
) -> Scenario | None:
    """Return a scenario, grown by `change`, whose window has enough of each scored task; None if none is found.

    A plan that tries one has at most `most_tasks`.
    """
    size, scenario = 1.0, base
    for _ in range(MOST_TRIES):
        # Find the next size: the one that should suffice, or the largest that can be planned.
        least = _least(scenario, load)
        wanted = max(size * min((needed + sqrt(needed)) / (least + 0.5), LARGEST_STEP), size * 1.01)
        grown = change(base, wanted)
        most = size * most_tasks / _tasks(load)
        if grown is not None and _size(grown, base) > most:
            if least >= SURE_HITS:
                return change(base, size * _sure_factor(least, needed, later_share))
            grown = change(base, most / LEAST_STEP) if most > size * LEAST_STEP**2 else None
        if grown is None:
            return None

        # Try it.
        try:
            load = planned(grown)
        except ConfigError:
            return None
        if _least(grown, load) >= needed:
            return grown
        size, scenario = _size(grown, base), grown
    return None


def _size(grown: Scenario, base: Scenario) -> float:
    """Return the users and their time of a scenario as a multiple of those of another one."""
    return grown.users * grown.run.active_s / (base.users * base.run.active_s)


def _sure_factor(least: int, needed: int, later_share: float) -> float:
    """Return the factor by which a count has to grow so that chance hardly makes it too small.

    The smallest x with later_share * n * x - `MARGIN` * sqrt(n * x * (1 + x)) >= needed, for a count of n: both counts
    are random, with the variance of Poisson's distribution. inf if there is none.
    """
    mean, variance = later_share * least, MARGIN**2 * least
    square, linear = mean**2 - variance, 2 * mean * needed + variance
    if square <= 0:
        return inf
    return (linear + sqrt(linear**2 - 4 * square * needed**2)) / (2 * square)
