"""Compute the summary of a run from its logs: the figures of `score.json`, the verdict and the exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadsim.analysis.analyse import analyse
from loadsim.analysis.completeness import reported_sum
from loadsim.analysis.criteria import (
    Limits,
    Result,
    audit_results,
    criteria_of,
    default_weights,
    judge_each,
    less_strict,
    switched_off,
)
from loadsim.analysis.figures import Figures, GeneratorFigures, Lateness, Totals
from loadsim.analysis.generator.health import EngineHealth
from loadsim.analysis.generator.lateness import late_at_most
from loadsim.analysis.generator.limits import lag_limit_ms
from loadsim.analysis.generator.per_client import client_figures
from loadsim.analysis.monitors import monitor_findings
from loadsim.analysis.probes.resources import probe_places, ranked_resources
from loadsim.analysis.probes.statistics import probe_statistics
from loadsim.analysis.reasons import with_probe_reasons
from loadsim.analysis.score import FEW_HITS, DriverFigures, command_statistics
from loadsim.analysis.throughput import throughput
from loadsim.analysis.unserved import unserved
from loadsim.analysis.verdict import Facts, judge, limits_of, relaxed_limits
from loadsim.documents.json_values import to_json
from loadsim.errors import LogError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.next_step import next_step
from loadsim.findings.severity import Severity
from loadsim.findings.verdict import Tone, Verdict, by_severity
from loadsim.model.terms import STRESS, Window
from loadsim.scenario.day_shape import factor_of_window
from loadsim.statistics.intervals import SHORTEST_WINDOW_S
from loadsim.timinglog.header import RunLimits
from loadsim.timinglog.merge import check_window, find_logs, merge, window_of, with_audit
from loadsim.timinglog.reader import TimingLog, read_each

FULL_DAY_S = 28_800.0
"""The length of the day to which load-equivalents refer: 8 hours, as in the canonical profiles."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything computed from the logs of a run. `criteria` has the result of each criterion that is on."""

    verdict: Verdict
    criteria: Sequence[Result]
    figures: Figures

    @property
    def score(self) -> dict[str, Any]:
        """The content of `score.json`."""
        return {
            "verdict": {
                "validity": self.verdict.validity,
                "passed": self.verdict.passed,
                "causes": list(self.verdict.causes),
                "criteria": [_criterion(result) for result in self.criteria],
            },
            "findings": [one.document for one in self.verdict.findings],
            "next_step": next_step(self.verdict.findings),
            **to_json(self.figures),
        }

    @property
    def tone(self) -> Tone:
        """The rating of the verdict. A run on the embedded server, or by relaxed limits, is not good."""
        validity, passed = self.verdict.validity, self.verdict.passed
        if validity == "invalid" or passed is False:
            return "bad"
        allowing = {one.code for one in self.verdict.warnings} & {Code.RELAXED, Code.MAIL_FAULTS_ALLOWED}
        return "doubtful" if validity == "degraded" or self.figures.embedded or allowing else "good"

    @property
    def exit_status(self) -> int:
        """The exit status of the verdict: 0, 1 or 3."""
        return self.verdict.exit_status


def _criterion(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        **{limit: result.limits.get(limit) for limit in ("min", "max", "below")},
        "figure": to_json(result.figure),
        "passed": result.passed,
        "found": result.found,
        "wanted": result.wanted,
        "each": result.each,
    }


def _weights(log: TimingLog, given: Mapping[str, float] | None) -> Mapping[str, float]:
    """Return the given weights, or else those of a log. Raises `LogError` for a task that neither of them has."""
    in_log: Mapping[str, float] = log.header.weights or default_weights()
    if given is None:
        return in_log
    from loadsim.model.ports import ALL_TASKS  # for given weights only

    known = {*ALL_TASKS, *in_log, *log.strings}
    if unknown := sorted(task for task in given if task not in known):
        tasks = ", ".join(sorted({*ALL_TASKS, *in_log}))
        raise LogError(f"weights: expected tasks of loadsim or of the log ({tasks}), found {unknown[0]!r}")
    return given


def summarise(logs: Sequence[Path | str | TimingLog], **options: Any) -> Summary:
    """Merge the logs of a run and compute their summary: see `summary_of`, which also has the options.

    `logs` are logs, log files, patterns or run directories. Raises `LogError` for those that cannot be merged.
    """
    read = [log for log in logs if isinstance(log, TimingLog)]
    paths = [log for log in logs if not isinstance(log, TimingLog)]
    files = find_logs(paths)
    return summary_of(with_audit(merge([*read, *read_each(files)]), files), **options)


def summary_of(
    log: TimingLog,
    *,
    weights: Mapping[str, float] | None = None,
    begin_s: float | None = None,
    end_s: float | None = None,
    commands: bool = False,
    criteria: Path | Mapping[str, Limits | None] | None = None,
) -> Summary:
    """Compute the summary of a run from its merged log.

    Weights and window are those of the log's header unless given; `commands` adds the single protocol commands.
    `criteria`, or those of a scenario, replace the criteria of the run. Raises `LogError` for logs that cannot be read,
    an impossible window, or weights for a run without a score. Raises `ConfigError` for criteria whose figures the log
    does not have.
    """
    # 1. The window, the weights and the limits.
    window = window_of(log)
    window_s = Window(window.begin_s if begin_s is None else begin_s, window.end_s if end_s is None else end_s)
    check_window(log, window_s)
    stress = log.header.mode == STRESS
    if stress:
        if weights is not None:
            raise LogError("weights: expected a log of a canonical run, found a stress run's: it has no score")
        weights = {}
    weights = _weights(log, weights)
    limits = log.header.limits or RunLimits()

    # 2. The verdict.
    facts, figures, results, of_criteria = _judged(log, weights, window_s, criteria)
    verdict = judge(facts, results, limits)
    further = [
        *log.header.findings,
        *of_criteria,
        *monitor_findings(log, window_s),
        *([] if verdict.validity == "invalid" else _score_notes(figures)),
    ]
    verdict = Verdict(by_severity((*verdict.findings, *further)))

    # 3. Commands on request.
    if commands:
        figures = replace(figures, commands=command_statistics(log, window_s))
    return Summary(verdict, results, figures)


def _score_notes(figures: Figures) -> list[Finding]:
    """Return how exact the scores are not."""
    notes = []
    for name, module in figures.by_protocol.items():
        where = name if len(figures.by_protocol) > 1 else ""
        if module.provisional:
            notes.append(finding(Code.PROVISIONAL, where, limit=FEW_HITS, tasks=tuple(module.covers.few_hits)))
        if module.score_ms is not None and module.score_interval_ms is None:
            notes.append(_no_interval(module, figures.window_s, where))
    return notes


def _no_interval(module: DriverFigures, window_s: Window, where: str) -> Finding:
    if window_s.length_s < SHORTEST_WINDOW_S:
        return finding(Code.NO_INTERVAL, where, window_s=window_s.length_s, limit_s=SHORTEST_WINDOW_S)
    without = tuple(task.task for task in module.tasks if task.task in module.covers.scored and task.no_interval)
    return finding(Code.TASKS_WITHOUT_INTERVAL, where, tasks=without)


def _judged(
    log: TimingLog, weights: Mapping[str, float], window_s: Window, criteria: Path | Mapping[str, Limits | None] | None
) -> tuple[Facts, Figures, Sequence[Result], list[Finding]]:
    facts, figures, wanted, results = _results(log, weights, window_s, criteria)
    in_time, most_ms = results, figures.generator.lateness_limit_ms
    missed = [one.name.rpartition(".")[2] for one in results if not one.passed]
    if most_ms is not None and any(name.startswith(("response_", "unserved_")) for name in missed):
        in_time = _results(late_at_most(log, most_ms / 1000), weights, window_s, wanted)[-1]
    late = _missed_late(results, in_time, facts.engines, figures.generator.lag_limit_ms)
    facts = replace(facts, missed_late=late)
    results = with_probe_reasons(results, log, figures.probes, window_s) + audit_results(log.audit)
    changed = [finding(Code.CRITERIA_OFF, criteria=off)] if (off := switched_off(wanted, figures)) else []
    limits = relaxed_limits(facts, log.header.limits or RunLimits())
    zero = [task for task, weight in weights.items() if not (weight or facts.embedded) and task in default_weights()]
    if relaxed := (*limits, *less_strict(wanted, figures), *(f"weights.{task} 0" for task in zero)):
        changed.append(finding(Code.RELAXED, "", None if limits else Severity.NOTE, settings=relaxed))
    return facts, figures, results, changed


def _results(
    log: TimingLog, weights: Mapping[str, float], window_s: Window, criteria: Path | Mapping[str, Limits | None] | None
) -> tuple[Facts, Figures, Mapping[str, Limits | None], tuple[Result, ...]]:
    """Return facts, figures, all criteria, and the results of those on figures."""
    facts, figures = _figures(log, weights, window_s)
    if isinstance(criteria, Path):
        criteria = criteria_of(criteria, figures)
    wanted = log.header.criteria if criteria is None else criteria
    if not facts.stress and (found := unserved(log, window_s, weights, wanted)):
        facts = replace(facts, unserved=found)
        figures = replace(figures, unserved_users=found.users, unserved_share=found.share)
    return facts, figures, wanted, judge_each(wanted, figures)


def _missed_late(
    results: Sequence[Result], in_time: Sequence[Result], engines: Sequence[EngineHealth], most_lag_ms: float | None
) -> tuple[str, ...]:
    """Return the criteria that are missed only by the generator's lateness and lags beyond their limits.

    `in_time` has the results without that lateness, which is a part of response times. Lag is one of all times. Both
    are judged at the percentile of the criterion.
    """

    def lag_ms(name: str) -> float:
        percent = name.rpartition(".")[2].removeprefix("response_").replace("score_ms", "p95_ms")
        lags_ms = [engine.lags_ms.get(percent, 0.0) for engine in engines]
        return 0.0 if most_lag_ms is None else max([most_lag_ms, *lags_ms]) - most_lag_ms

    both = zip(results, in_time, strict=True)
    known = [(was, now, now.figure) for was, now in both if now.figure is not None]
    return tuple(
        was.name for was, now, ms in known if not was.passed and replace(now, figure=ms - lag_ms(now.name)).passed
    )


def _figures(log: TimingLog, weights: Mapping[str, float], window_s: Window) -> tuple[Facts, Figures]:
    # 1. The statistics of each driver. If there is only one, its figures are also those of the whole run.
    facts, late_ms = analyse(log, weights, window_s)
    header, length_s, drivers = log.header, window_s.length_s, facts.drivers
    only = next(iter(drivers.values())) if len(drivers) == 1 else None
    totals = Totals.of(drivers)

    # 2. The day, and the load-equivalent in users with a day of 8 h.
    day_s = float(header.day_s or FULL_DAY_S)
    night_s = float(header.night_s or 0)
    day_shape = header.day_shape or ()
    window_factor = factor_of_window(day_shape, window_s, day_s, night_s)
    compression = float(header.compression or FULL_DAY_S / day_s)
    load = facts.load
    made = 1.0 if load is None or load.share is None else min(1.0, load.share)

    # 3. The generator's limits.
    limits, fastest_ms = limits_of(header.limits or RunLimits(), facts.stress), facts.fastest_p95_ms
    engines = facts.engines

    # 4. The probes.
    probes = probe_statistics(log, window_s)
    return facts, Figures(
        run=log.sources[0].run or None,
        name=header.name,
        mode=header.mode,
        score_ms=only.score_ms if only else None,
        response_score_ms=only.response_score_ms if only else None,
        score_interval_ms=only.score_interval_ms if only else None,
        provisional=any(driver.provisional for driver in drivers.values()),
        users=facts.users,
        clients=len({source.client for source in log.sources if not source.is_monitor}),
        engines=sum(source.simulates for source in log.sources),
        window_s=window_s,
        plan_digest=header.plan_digest,
        server=header.server,
        embedded=header.embedded,
        submission=header.submission,
        profile_day_s=float(header.profile_day_s or round(day_s * compression, 6)),
        day_s=day_s,
        night_s=night_s,
        day_shape=day_shape,
        window_factor=window_factor,
        compression=compression,
        load_equivalent_users=None if facts.stress else round(facts.users * FULL_DAY_S / day_s * made * window_factor),
        received_share=header.planned_load.received_share if header.planned_load else None,
        offered_per_s=None if facts.stress else totals.planned / length_s,
        tasks_per_s=totals.hits / length_s,
        totals=totals,
        attempted_share=None if facts.stress else totals.attempted_share,
        done_share=None if facts.stress else totals.done_share,
        failed_share=totals.failed_share,
        sessions_lost=reported_sum(log, "sessions_lost"),
        sessions_restored=reported_sum(log, "sessions_restored"),
        lost_users=facts.lost_users,
        users_without_session=facts.users_without_session,
        down_share=facts.down_share,
        companions=facts.companions,
        log_ons=facts.log_ons.planned,
        logon_failed_share=facts.log_ons.failed_share,
        unserved_users=None,  # criteria decide who is: see `_judged`
        unserved_share=None,
        inbox=only.inbox if only else None,
        covers=only.covers if only else None,
        tasks=only.tasks if only else (),
        by_protocol=drivers,
        load=load,
        delivery=facts.delivery,
        lateness_p95_ms=Lateness(None, None, None) if facts.stress else Lateness(**late_ms),
        throughput=throughput(log, window_s, drivers, facts.delivery) if facts.stress else None,
        generator=GeneratorFigures.of(engines, lag_limit_ms(limits, fastest_ms), limits["generator_lateness_p95_ms"]),
        machines=facts.machines,
        per_client=client_figures(log, window_s, engines, limits, fastest_ms, generator_counts=facts.generator_counts),
        probes=probes,
        resources=ranked_resources(probes, probe_places(log)) or None if probes else None,
    )
