"""Figures of `score.json`, computed a second time from `loadsim log export csv`, as the documentation defines them.

Nothing of loadsim is imported: what is read are its four CSV exports, a run's `scenario.yaml` and what
`loadsim plan --json` prints. So the results are of one whole run, on one machine, of one driver, in canonical
mode. Times are whole microseconds throughout, as the exports have them.

Left out are intervals and all texts. What the exports do not hold is taken as in a run that went to its end: no engine
died or began late, no log is damaged, and no message is unwatched.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from recompute_numbers import (
    INF,
    P95,
    PERCENTILES,
    Figures,
    Row,
    duration_of,
    duration_s,
    mean_of,
    nearest_rank,
    share,
    times_of,
    us,
    us_of_ms,
)

SPANS = ("PROCESS INBOX", "NO SESSION", "DELIVERY RECEIPT")
WITHOUT_WINDOW = ("LOGON", "FIRST SYNC", "LOGOFF")
NOT_OF_THE_PLAN = (*WITHOUT_WINDOW, "SYNC", "TRACK RECEIPT")
FAILED = ("refused", "lost", "timeout")

Key = tuple[str, str]
"""A message and its recipient."""
OWN_FAULT = "generator"
PUBLISHED_DAY_S = 8 * 3600


@dataclass(frozen=True, slots=True)
class Exports:
    """A run: exports, resolved scenario, the plan if it knew one, the audit, and a profile's day in seconds."""

    tasks: list[Row]
    mails: list[Row]
    commands: list[Row]
    health: list[Row]
    scenario: Mapping[str, Any]
    plan: Mapping[str, Any] | None
    audit: Mapping[str, Any] | None
    profile_day_s: float


def counts_of(rows: Sequence[Row]) -> Figures:
    """Return how many of these tasks were planned, attempted, done and so on, and the shares."""
    outcomes = Counter(row["outcome"] for row in rows)
    failed, planned = sum(outcomes[each] for each in FAILED), len(rows)
    attempted = planned - outcomes["skipped"]
    return {
        "planned": planned,
        "attempted": attempted,
        "done": outcomes["ok"] + failed,
        "failed": failed,
        "generator_failed": outcomes[OWN_FAULT],
        "unfinished": outcomes["unfinished"],
        "skipped": outcomes["skipped"],
        "attempted_share": share(attempted, planned),
        "done_share": share(outcomes["ok"], planned),
        "failed_share": share(failed, planned),
    }


def task_figures(name: str, rows: Sequence[Row], weight: float, window_s: float) -> Figures:
    """Return what the score table has of one task."""
    outcomes = Counter(row["outcome"] for row in rows)
    service = times_of([us_of_ms(row["service_ms"]) for row in rows if row["outcome"] == "ok"])
    response = times_of([us_of_ms(row["response_ms"]) if row["outcome"] == "ok" else INF for row in rows])
    counts = counts_of(rows)
    kinds = Counter((row["outcome"], row["error"]) for row in rows if row["outcome"] in (*FAILED, OWN_FAULT))
    return {
        "task": name,
        "weight": weight,
        "hits": outcomes["ok"],
        **counts,
        **{outcome: outcomes[outcome] for outcome in FAILED},
        "done_per_s": None if name in WITHOUT_WINDOW else outcomes["ok"] / window_s,
        **service,
        **{f"response_{each}": response[each] for each in (*PERCENTILES, "max_ms")},
        "failures": {f"{outcome} {kind}": times for (outcome, kind), times in kinds.items()},
    }


def weighted(tasks: Iterable[Figures], figure: str) -> float | None:
    parts = [(task["weight"], task[figure]) for task in tasks]
    return sum(weight * time for weight, time in parts) / sum(weight for weight, _ in parts) if parts else None


def unserved_figures(
    rows: Iterable[Row],
    took_us: Mapping[Key, float],
    at_us: Mapping[Key, int],
    criteria: Mapping[str, Any],
    begin_us: int,
    end_us: int,
) -> Figures:
    """Return the users whose scored tasks, which `rows` are, or mail, came late or failed beyond chance."""

    def most(limits: Mapping[str, float] | None) -> float:
        return min((limits[name] for name in ("max", "below") if name in (limits or {})), default=INF)

    def beyond(parts: Sequence[Sequence[bool]], allowed: float) -> bool:
        share = sum(sum(bad) / len(bad) for bad in parts) / len(parts)
        if allowed >= 1 or share <= allowed:
            return False
        both = ((share, allowed), (1 - share, 1 - allowed))
        unlikely = sum(each * math.log(each / limit) if limit else INF for each, limit in both if each)
        return len(parts) * unlikely >= math.log(1000)

    def late(row: Row) -> bool:
        scored = criteria.get("tasks.scored.response_p95_ms")
        limit_ms = most(criteria.get(f"tasks.{row['task']}.response_p95_ms", scored))
        return (us_of_ms(row["response_ms"]) if row["outcome"] == "ok" else INF) > 1000 * limit_ms

    def by_user(each: Iterable[tuple[str, int, Any]]) -> dict[str, list[list[Any]]]:
        found: defaultdict[str, defaultdict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for user, at, what in each:
            found[user][(at - begin_us) * 60 // (end_us - begin_us)].append(what)
        return {user: [*parts.values()] for user, parts in found.items() if len(parts) >= 3}

    tasks = by_user((row["user"], us(row["scheduled_s"]), row) for row in rows if row["outcome"] != OWN_FAULT)
    mail = by_user((key[1], at_us[key], took) for key, took in took_us.items())
    bad = {
        user
        for user, parts in tasks.items()
        if beyond([[late(row) for row in part] for part in parts], 0.05)
        or beyond([[row["outcome"] in FAILED for row in part] for part in parts], most(criteria.get("failed_share")))
    }
    most_us = 1000 * most(criteria.get("delivery.p95_ms"))
    waiting = {u for u, parts in mail.items() if beyond([[took > most_us for took in part] for part in parts], 0.05)}
    shares = [len(users) / len(judged) for users, judged in ((bad, tasks), (waiting, mail)) if judged]
    return {"unserved_users": len(bad | waiting), "unserved_share": max(shares, default=0)}


def score_figures(tasks: Mapping[str, Figures], weights: Mapping[str, float]) -> Figures:
    weighty = [name for name, weight in weights.items() if weight]
    due = [tasks[name] for name in weighty if name in tasks and tasks[name]["planned"]]
    scored = [task for task in due if task["hits"]]
    few = [task["task"] for task in scored if task["hits"] < 300]
    return {
        "score_ms": weighted(scored, "p95_ms"),
        "response_score_ms": weighted(due, "response_p95_ms"),
        "provisional": bool(few),
        "covers": {
            "scored": {task["task"] for task in scored},
            "without_hits": {task["task"] for task in due if not task["hits"]},
            "not_planned": set(weighty) - {task["task"] for task in due},
            "few_hits": set(few),
        },
    }


def inbox_figures(spans: Sequence[Row]) -> Figures | None:
    if not spans:
        return None
    done = sum(span["outcome"] == "ok" for span in spans)
    times = [us_of_ms(span["response_ms"]) if span["outcome"] == "ok" else INF for span in spans]
    return {"processings": len(spans), "done": done, "unfinished": len(spans) - done, **times_of(times)}


def receipt_figures(spans: Sequence[Row]) -> dict[str, Figures]:
    """Return the figures of delivery receipts, which are left out if none was planned."""
    if not spans:
        return {}
    requested = [span for span in spans if span["outcome"] != "skipped"]
    arrived = [span for span in spans if span["outcome"] == "ok"]
    times = [us_of_ms(span["response_ms"]) if span["outcome"] == "ok" else INF for span in requested]
    counts = {"planned": len(spans), "requested": len(requested), "arrived": len(arrived)}
    return {"receipts": {**counts, **times_of(times)}}


def lateness_figures(tasks: Sequence[Row]) -> Figures:
    """Return the 95th percentile of each cause, over tasks of the plan that began."""
    begun = [row for row in tasks if row["started_s"] and row["task"] not in NOT_OF_THE_PLAN]
    return {
        cause: nearest_rank([us_of_ms(row[f"late_{column}_ms"]) for row in begun], P95) if begun else None
        for cause, column in (("busy", "busy"), ("down", "down"), ("generator", "own"))
    }


def session_figures(tasks: Sequence[Row], users: int, begin_us: int, end_us: int, work_us: int) -> Figures:
    """Return how many sessions broke, how long users had none in the window, and how log-ons went.

    `work_us` is when the last day ended.
    """
    log_ons = [row for row in tasks if row["task"] == "LOGON" and row["outcome"] != "skipped"]
    on = Counter(row["user"] for row in log_ons if row["outcome"] == "ok")
    gaps = [row for row in tasks if row["task"] == "NO SESSION"]
    spans = [(us(row["scheduled_s"]), us(row["scheduled_s"]) + us_of_ms(row["response_ms"])) for row in gaps]
    down_us = sum(max(0.0, min(until_us, end_us) - max(from_us, begin_us)) for from_us, until_us in spans)
    # Sessions that loadsim ended, as a task still ran when the time for it was over, did not break.
    cut_off = {row["user"] for row in tasks if row["outcome"] == "unfinished" and row["task"] not in SPANS}
    ended = [row for row in gaps if row["user"] in cut_off and us(row["scheduled_s"]) >= work_us]
    restored = sum(times - 1 for times in on.values()) - sum(row["outcome"] == "ok" for row in ended)
    never_back = sum(row["outcome"] != "ok" and row["user"] in on and row not in ended for row in gaps)
    # After the users were told to log off, in the last look for mail or in the log-off, no gap begins.
    last_gap_us = {row["user"]: us(row["scheduled_s"]) for row in sorted(gaps, key=lambda row: us(row["scheduled_s"]))}
    at_end = sum(
        row["task"] in ("SYNC", "LOGOFF")
        and row["outcome"] in ("lost", "timeout")
        and last_gap_us.get(row["user"], -INF) + 1000 < us(row["scheduled_s"]) + us_of_ms(row["response_ms"])
        for row in tasks
    )
    return {
        "sessions_lost": restored + never_back + at_end,
        "sessions_restored": restored,
        "lost_users": 0,
        "users_without_session": sum(from_us <= work_us < until_us for from_us, until_us in spans),
        "down_share": down_us / (users * (end_us - begin_us)),
        "companions": None,  # the runs that are recomputed have none
        "log_ons": len(log_ons),
        "logon_failed_share": share(sum(row["outcome"] in FAILED for row in log_ons), len(log_ons)),
    }


def load_figures(
    tasks: Sequence[Row], plan: Mapping[str, Any] | None, begin_us: int, end_us: int, hour_s: float
) -> Figures | None:
    """Return what was made of the plan's load in a window that begins and ends with hours of the profiles' day."""
    if plan is None:
        return None
    first, last = begin_us / 1e6 / hour_s, end_us / 1e6 / hour_s
    assert first.is_integer() and last.is_integer()
    planned: Counter[str] = Counter()
    for hour in plan["by_hour"]:
        if first <= hour["hour"] < last:
            planned.update(hour["tasks"])
    made = Counter(row["task"] for row in tasks if row["outcome"] not in ("skipped", OWN_FAULT))
    names = [name for name in planned | made if name not in NOT_OF_THE_PLAN]
    by_task = {name: {"planned": planned[name], "made": made[name]} for name in names}
    counting = sum(min(task["made"], task["planned"] * 105 // 100) for task in by_task.values())
    all_planned = sum(task["planned"] for task in by_task.values())
    return {"planned": all_planned, "made": counting, "share": share(counting, all_planned), "tasks": by_task}


def delivery_figures(
    mails: Sequence[Row], begin_us: int, end_us: int, audited: bool
) -> tuple[Figures, Mapping[Key, float], Mapping[Key, int]]:
    """Return the figures of accepted messages, each counted once per recipient.

    Then those of the window: how long each took, infinite if it never came, and when it was accepted.
    """
    accepted_us: dict[Key, int] = {}
    addressed: dict[Key, str] = {}
    sights: defaultdict[Key, list[tuple[int, str]]] = defaultdict(list)
    senders: dict[Key, str] = {}
    got_own = any(row["event"] in ("seen", "found") and row["user"] == row["sender"] for row in mails)
    for row in mails:
        key = (row["message"], row["user"])
        if row["event"] == "accepted":
            senders.setdefault(key, row["sender"])
            accepted_us.setdefault(key, us(row["at_s"]))
            addressed.setdefault(key, row["folder"])
        elif row["event"] in ("seen", "found"):
            sights[key].append((us(row["at_s"]), row["event"]))
    first = {key: min(events) for key, events in sights.items()}
    own = [key for key, sender in senders.items() if key[1] == sender and addressed[key] == "list"]
    left_out = [] if got_own else own
    for key in left_out:
        del accepted_us[key], addressed[key]
    asked = {key: at_us for key, at_us in accepted_us.items() if begin_us <= at_us < end_us}
    came = {key: first[key][0] - at_us for key, at_us in asked.items() if key in first}
    accepted = {message for message, _ in accepted_us}
    # Copies beyond the first, and those in a mailbox for which the message was not accepted at all.
    extra = [len(events) - (key in accepted_us) for key, events in sights.items() if key[0] in accepted]
    early = [-took_us for took_us in came.values() if took_us < 0]

    def faults(event: str) -> int:
        return len({(row["message"], row["user"], row["folder"]) for row in mails if row["event"] == event})

    stored = sum(row["event"] in ("moved", "copied", "deleted", "saved") for row in mails)
    lost = [key for key in accepted_us if key not in first]
    took_us = {key: max(came.get(key, INF), 0) for key in asked}
    figures = {
        "accepted": len(asked),
        "delivered": len(came),
        "found": sum(first[key][1] == "found" for key in came),
        "undelivered": len(asked) - len(came),
        "unwatched": 0,
        "undelivered_at_end": len(lost),
        "duplicates": sum(extra) + faults("doubled"),
        "missing": faults("missing") or (None if faults("unlisted") > stored / 100 and not audited else 0),
        "unlisted": faults("unlisted"),
        "altered": faults("altered"),
        "left_out": len(left_out),
        "early": len(early),
        "earliest_ms": max(early) / 1000 if early else None,
        "clock_error_ms": 0,
        **times_of([*took_us.values()]),
    }
    return figures, took_us, asked


def engine_health(samples: Sequence[Row], begin_us: int, end_us: int) -> Figures:
    lags, inside, weights = [], [], []
    for before, row in zip([None, *samples], samples, strict=False):
        at_us, at_ns = us(row["at_s"]), int(row["at_ns"])
        if begin_us <= at_us < end_us:
            inside.append(row)
            weights.append(at_ns - int(before["at_ns"]) if before else 0)
        if row["lags_us"]:
            seen_us = np.array(row["lags_us"].split(), dtype=int)
            first_ns = round(float(row["at_s"]) * 1e9) - at_ns + int(row["lags_from_ns"])
            due_ns = first_ns + 10_000_000 * np.arange(len(seen_us))
            lags += seen_us[(1000 * begin_us <= due_ns) & (due_ns < 1000 * end_us)].tolist()
    return {
        "lag_p50_ms": nearest_rank(lags, PERCENTILES["p50_ms"]) if lags else None,
        "lag_p99_ms": nearest_rank(lags, PERCENTILES["p99_ms"]) if lags else None,
        "lag_max_ms": max(lags) / 1000 if lags else None,
        "cpu_share": mean_of(inside, "cpu_share", weights) if any(weights) else None,
        "rss_bytes": max((int(row["rss_bytes"]) for row in inside), default=None),
        "open_files": max((int(row["open_files"]) for row in inside), default=None),
        "gc_max_ms": max((float(row["gc_max_ms"]) for row in inside), default=None),
        "clock_steps": sum(bool(row.get("clock_step_ms")) for row in inside) if lags else None,
    }


def timing_figures(tasks: Sequence[Row]) -> Figures:
    """Return what noted the ends of the hits of the plan's tasks, and which part of their time was the generator's."""
    hits = [row for row in tasks if row["outcome"] == "ok" and row["task"] not in NOT_OF_THE_PLAN]
    clocks = Counter(row["clock"] for row in hits)
    by_task = defaultdict(list)
    for row in hits:
        by_task[row["protocol"], row["task"]].append(row["clock"] == "loop")
    between_us = sum(us_of_ms(row["late_between_ms"]) for row in hits)
    return {
        **{f"{clock}_share": share(clocks[clock], len(hits)) for clock in ("kernel", "bound")},
        "loop_share": max(map(loop_share, by_task.values()), default=None),
        "between_share": share(between_us, between_us + sum(us_of_ms(row["service_ms"]) for row in hits)),
    }


def loop_share(looped: Sequence[bool]) -> float:
    """Return a task's share of hits timed by the event loop; one of twenty or more does not count."""
    return 0.0 if len(looped) >= 20 and sum(looped) == 1 else sum(looped) / len(looped)


def generator_figures(
    timing: Figures,
    health: Sequence[Row],
    limits: Mapping[str, Any],
    fastest_ms: float | None,
    begin_us: int,
    end_us: int,
) -> Figures:
    """Return the worst of any engine, figure by figure, and what its lag may be: more if the loop timed hardly any."""
    engines = defaultdict(list)
    for row in health:
        if row["engine"] != "machine":
            engines[row["client"], row["engine"]].append(row)
    each = [engine_health(samples, begin_us, end_us) for samples in engines.values() or [[]]]
    worst = {name: max((one[name] for one in each if one[name] is not None), default=None) for name in each[0]}
    allowed = [] if limits["lag_p99_ms"] is None else [limits["lag_p99_ms"]]
    if limits["lag_share"] is not None and fastest_ms is not None:
        allowed.append(max(2.0, limits["lag_share"] * fastest_ms))
    if timing["loop_share"] is not None and timing["loop_share"] <= 0.01:
        allowed = [] if limits["lateness_p95_ms"] is None else [limits["lateness_p95_ms"]]
    own = {"lag_limit_ms": min(allowed, default=None), "lateness_limit_ms": limits["lateness_p95_ms"]}
    return timing | worst | own


def machine_figures(samples: Sequence[Row], health: Sequence[Row], begin_us: int, end_us: int) -> Figures:
    """Return how a machine was in the window; `health` has the samples of all its engines."""
    inside = [row for row in samples if begin_us <= us(row["at_s"]) < end_us]
    engines = defaultdict(list)
    for row in health:
        if row["engine"] != "machine" and row["client"] == inside[0]["client"]:
            engines[row["engine"]].append(row)
    shares = [engine_health(each, begin_us, end_us)["cpu_share"] for each in engines.values()]
    cores = len(inside[0]["core_shares"].split())
    return {
        "name": inside[0]["client"],
        "cores": cores,
        "cpu_share": mean_of(inside, "cpu_share"),
        "stolen_share": mean_of(inside, "stolen_share"),
        "engines_share": sum(shares) / cores,
        "memory_available_bytes": min(int(row["memory_available_bytes"]) for row in inside),
        "segments_sent": sum(int(row["segments_sent"]) for row in inside),
        "segments_sent_again": sum(int(row["segments_sent_again"]) for row in inside),
    }


def command_figures(commands: Sequence[Row], begin_us: int, end_us: int) -> dict[str, Figures]:
    """Return each protocol command that began in the window, by its name."""
    named = defaultdict(list)
    for row in commands:
        if begin_us <= us(row["started_s"]) < end_us:
            named[row["command"]].append(row)
    figures = {}
    for name, rows in named.items():
        hits = [us_of_ms(row["took_ms"]) for row in rows if row["outcome"] == "ok"]
        failed = sum(row["outcome"] not in ("ok", OWN_FAULT) for row in rows)
        figures[name] = {"command": name, "hits": len(hits), "failed": failed, **times_of(hits)}
    return figures


def criteria_figures(figures: Figures, criteria: Mapping[str, Any], due: Iterable[str]) -> dict[str, Figures]:
    wanted = {name: limits for name, limits in criteria.items() if "tasks.scored." not in name}
    each = set()
    for name, limits in criteria.items():
        for task in due if name.startswith("tasks.scored.") else ():
            of_task = name.replace(".scored.", f".{task}.")
            if of_task not in wanted:
                wanted[of_task] = limits
                each.add(of_task)
    results = {}
    for name, limits in wanted.items():
        if limits is None:
            continue
        figure: Any = figures
        for part in name.split("."):
            figure = figure.get(part) if figure is not None else None
        passed = figure is not None and not math.isinf(figure)
        passed &= limits.get("min") is None or (figure is not None and figure >= limits["min"])
        passed &= limits.get("max") is None or (figure is not None and figure <= limits["max"])
        passed &= limits.get("below") is None or (figure is not None and figure < limits["below"])
        kept = {each: limits.get(each) for each in ("min", "max", "below")}
        results[name] = {"name": name, **kept, "figure": figure, "passed": passed, "each": name in each}
    return results


def causes(figures: Figures, limits: Mapping[str, Any], due: Iterable[str], embedded: bool) -> set[str]:
    """Return the kinds of the reasons for which a run is invalid."""
    begin_s, end_s = figures["window_s"]
    made, attempted = shares(figures)
    generator, own = figures["generator"], limits["generator"]

    def above(figure: float | None, limit: float | None) -> bool:
        return figure is not None and limit is not None and figure > limit

    late = (
        above(figures["lateness_p95_ms"]["generator"], own["lateness_p95_ms"])
        or above(generator["lag_p99_ms"], generator["lag_limit_ms"])
        or above(generator["cpu_share"], own["cpu"])
    )
    few = [figures["tasks"][task] for task in due if figures["tasks"][task]["hits"] < limits["hits"]]
    missing = attempted < limits["done"] or made < limits["load"] or not figures["covers"]["scored"]
    # A slow server's users have less mail to answer: of complete logs, the plan says if there would have been enough.
    plan = figures["load"]["tasks"] if figures["load"] else {}
    rare = [
        task["task"]
        for task in few
        if plan.get(task["task"], task)["planned"] < limits["hits"]
        or (task["planned"] < limits["hits"] and (task["task"] not in plan or made >= limits["load"]))
    ]
    found = {
        "generator": late and not embedded,
        "load": missing or len(rare) < len(few),
        "terms": end_s - begin_s < duration_s(limits["window"]) or bool(rare),
    }
    return {cause for cause, holds in found.items() if holds}


def shares(figures: Figures) -> tuple[float, float]:
    """Return the share of the plan's load that was made, and that of the due tasks that were begun."""
    made = figures["load"]["share"] if figures["load"] and figures["load"]["share"] is not None else 1.0
    return made, 1.0 if figures["attempted_share"] is None else figures["attempted_share"]


def validity(figures: Figures, invalid: bool) -> str:
    made, attempted = shares(figures)
    bounds = (figures["generator"]["bound_share"] or 0) > 0.02
    return "invalid" if invalid else "degraded" if attempted < 0.995 or made < 0.98 or bounds else "valid"


def received_share(plan: Mapping[str, Any] | None) -> float | None:
    """Return the received mail of a plan divided by the published one; None if no profile has one."""
    groups = [each for each in plan["by_profile"].values() if each["calculated"]] if plan else []
    received, published = (
        sum(each["users"] * each[load]["received"] for each in groups) for load in ("per_user", "calculated")
    )
    return share(received, published) if groups else None


def recompute(run: Exports) -> Figures:
    """Return the figures of `score.json` under its names; lists of tasks, criteria and the like go by their names."""
    scenario, own = run.scenario, run.scenario["run"]
    day_s, begin_s = duration_s(own["day_length"]), duration_s(own["warm_up"])
    window_s = duration_s(own["window"])
    begin_us, end_us = round(begin_s * 1e6), round((begin_s + window_s) * 1e6)
    users = sum(group["users"] for group in scenario["topology"])
    (driver,) = {group["protocol"] for group in scenario["topology"]}
    weights = scenario["weights"]

    inside = [row for row in run.tasks if begin_us <= us(row["scheduled_s"]) < end_us]
    named = defaultdict(list)
    for row in run.tasks:
        if row["task"] in WITHOUT_WINDOW:
            named[row["task"]].append(row)
    for row in inside:
        if row["task"] not in (*SPANS, *WITHOUT_WINDOW):
            named[row["task"]].append(row)
    tasks = {name: task_figures(name, rows, weights.get(name, 0), window_s) for name, rows in named.items()}
    counted = [row for name, rows in named.items() if name not in WITHOUT_WINDOW for row in rows]

    score = score_figures(tasks, weights)
    due = score["covers"]["scored"] | score["covers"]["without_hits"]
    inbox = inbox_figures([row for row in inside if row["task"] == "PROCESS INBOX"])
    receipts = receipt_figures([row for row in inside if row["task"] == "DELIVERY RECEIPT"])
    load = load_figures(counted, run.plan, begin_us, end_us, 3600 * day_s / run.profile_day_s)
    made = load["share"] if load and load["share"] is not None else 1.0
    machines = defaultdict(list)
    for row in run.health:
        if row["engine"] == "machine":
            machines[row["client"]].append(row)
    counts = counts_of(counted)
    achieved_per_s = sum(row["outcome"] == "ok" for row in counted) / window_s
    delivered, *mail = delivery_figures(run.mails, begin_us, end_us, run.audit is not None)
    figures = {
        **score,
        **counts,
        **session_figures(run.tasks, users, begin_us, end_us, round(duration_of(own) * 1e6)),
        **unserved_figures(
            (row for row in counted if weights.get(row["task"], 0)), *mail, scenario["criteria"], begin_us, end_us
        ),
        "users": users,
        "clients": len({row["client"] for row in run.tasks}),
        "engines": len({(row["client"], row["engine"]) for row in run.tasks}),
        "window_s": [begin_s, begin_s + window_s],
        "profile_day_s": run.profile_day_s,
        "day_s": day_s,
        "night_s": 0,
        "day_shape": [],
        "window_factor": 1,
        "compression": run.profile_day_s / day_s,
        "load_equivalent_users": round(users * PUBLISHED_DAY_S / day_s * min(made, 1)),
        "received_share": received_share(run.plan),
        "offered_per_s": counts["planned"] / window_s,
        "tasks_per_s": achieved_per_s,
        "load": load,
        "tasks": tasks,
        "inbox": inbox,
        **receipts,
        "by_protocol": {driver: {**score, "inbox": inbox, **receipts, "users": users, "tasks": tasks}},
        "delivery": delivered,
        "lateness_p95_ms": lateness_figures(counted),
        "generator": generator_figures(
            timing_figures(counted),
            run.health,
            scenario["limits"]["generator"],
            min((tasks[name]["p95_ms"] for name in score["covers"]["scored"]), default=None),
            begin_us,
            end_us,
        ),
        "machines": {
            name: machine_figures(samples, run.health, begin_us, end_us) for name, samples in machines.items()
        },
        "commands": command_figures(run.commands, begin_us, end_us),
    }
    limits, found = dict(scenario["criteria"]), dict(figures)
    if run.audit is not None:
        allowed = run.scenario["run"].get("audit_allow", ())
        limits |= {"audit.faults": {"max": 0}, "audit.unknown_share": {"max": 0.01}}
        unknown_share = run.audit["unknown"] / run.audit["messages"]
        found["audit"] = {
            "faults": sum(times for code, times in run.audit["counts"].items() if code not in allowed),
            "unknown_share": unknown_share,
        }
    criteria = criteria_figures(found, limits, due)
    why = causes(figures, scenario["limits"], due, scenario["server"] == "embedded")
    return figures | {
        "verdict": {
            "validity": validity(figures, bool(why)),
            "causes": why,
            "passed": all(each["passed"] for each in criteria.values()),
            "criteria": criteria,
        }
    }
