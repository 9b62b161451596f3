"""Compute the summary of a run from its logs: the figures of `score.json`, the verdict and the exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadsim.analysis.analyse import Measured, RunTerms, measure
from loadsim.analysis.criteria import (
    Limits,
    Result,
    audit_results,
    default_weights,
    judge_each,
    less_strict,
    switched_off,
)
from loadsim.analysis.generator.lateness import late_at_most
from loadsim.analysis.reasons import monitor_findings, with_probe_reasons
from loadsim.analysis.score import PROVISIONAL_HITS, command_statistics
from loadsim.analysis.verdict import judge, limits_of, relaxed_limits
from loadsim.documents.json_values import to_json
from loadsim.errors import LogError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.next_step import next_step
from loadsim.findings.severity import Severity
from loadsim.findings.verdict import Tone, Verdict, by_severity
from loadsim.model.figures import DriverFigures, Figures
from loadsim.model.mail_program import OUTLOOK_LIKE
from loadsim.model.terms import JMAP_POLL, STRESS, Window
from loadsim.statistics.intervals import SHORTEST_WINDOW_S
from loadsim.timinglog.merge import check_window, find_logs, merge, window_of, with_audit
from loadsim.timinglog.reader import TimingLog, read_each


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
        """The rating of the verdict. A run on the embedded server, or with relaxed limits, is not good."""
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
    """Return the given weights, or else those of the log. Raises `LogError` for unknown tasks."""
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
    """Merge the logs of a run and compute their summary, with the options of `summary_of`.

    `logs` are logs, log files, patterns or run directories. Raises `LogError` if they cannot be merged.
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

    Weights and window default to those of the log's header; `commands` adds single protocol commands. `criteria`, or
    those of a scenario file, replace the run's criteria. Raises `LogError` for logs that cannot be read, an impossible
    window, or weights for a run without a score. Raises `ConfigError` for criteria on figures that the log does not
    have.
    """
    # 1. The window, the weights and the limits.
    window = window_of(log)
    window_s = Window(window.begin_s if begin_s is None else begin_s, window.end_s if end_s is None else end_s)
    check_window(log, window_s)
    if log.header.mode == STRESS:
        if weights is not None:
            raise LogError("weights: expected a log of a canonical run, found a stress run's: it has no score")
        weights = {}
    terms = RunTerms(window_s, _weights(log, weights), limits_of(log.header))

    # 2. The figures, and their criteria.
    measured = measure(log, terms, criteria)
    results = judge_each(measured.criteria, measured.figures)
    missed_late = _missed_late(log, terms, measured, results)
    results = with_probe_reasons(results, log, measured.figures.probes, window_s) + audit_results(log.audit)

    # 3. The verdict.
    figures = measured.figures
    verdict = judge(figures, measured.facts, results, terms.limits, missed_late)
    further = [
        *log.header.findings,
        *_changed(terms, measured),
        *monitor_findings(log, window_s),
        *([finding(Code.NOT_PUSHED, poll_s=OUTLOOK_LIKE.poll_s)] if JMAP_POLL in log.strings else []),
        *([] if verdict.validity == "invalid" else _score_notes(figures)),
    ]
    if commands:
        figures = replace(figures, commands=command_statistics(log, window_s))
    return Summary(Verdict(by_severity((*verdict.findings, *further))), results, figures)


def _changed(terms: RunTerms, measured: Measured) -> list[Finding]:
    """Return findings on criteria, limits and weights that are off or less strict than the defaults."""
    criteria, figures = measured.criteria, measured.figures
    changed = [finding(Code.CRITERIA_OFF, criteria=off)] if (off := switched_off(criteria, figures)) else []
    limits = relaxed_limits(figures, terms.limits)
    zero = [name for name, weight in terms.weights.items() if not (weight or figures.embedded)]
    weights = [f"weights.{name} 0" for name in zero if name in default_weights()]
    if relaxed := (*limits, *less_strict(criteria, figures), *weights):
        changed.append(finding(Code.RELAXED, "", None if limits else Severity.NOTE, settings=relaxed))
    return changed


def _score_notes(figures: Figures) -> list[Finding]:
    """Return notes on scores that are too uncertain."""
    notes = []
    for name, driver in figures.by_protocol.items():
        where = name if len(figures.by_protocol) > 1 else ""
        if driver.provisional:
            notes.append(finding(Code.PROVISIONAL, where, limit=PROVISIONAL_HITS, tasks=tuple(driver.covers.few_hits)))
        if driver.score_ms is not None and driver.score_interval_ms is None:
            notes.append(_no_interval(driver, figures.window_s, where))
    return notes


def _no_interval(driver: DriverFigures, window_s: Window, where: str) -> Finding:
    if window_s.length_s < SHORTEST_WINDOW_S:
        return finding(Code.NO_INTERVAL, where, window_s=window_s.length_s, limit_s=SHORTEST_WINDOW_S)
    without = tuple(task.task for task in driver.tasks if task.task in driver.covers.scored and task.no_interval)
    return finding(Code.TASKS_WITHOUT_INTERVAL, where, tasks=without)


def _missed_late(log: TimingLog, terms: RunTerms, measured: Measured, results: Sequence[Result]) -> tuple[str, ...]:
    """Return the criteria that are missed only because the generator's lateness or lag exceeded its limit.

    Lateness is part of response times, lag of all times that the loop took. Both are judged at the percentile of the
    criterion.
    """
    generator, in_time = measured.figures.generator, results
    missed = [one.name.rpartition(".")[2] for one in results if not one.passed]
    if generator.lateness_limit_ms is not None and any(name.startswith(("response_", "unserved_")) for name in missed):
        same = measure(late_at_most(log, generator.lateness_limit_ms / 1000), terms, measured.criteria)
        in_time = judge_each(same.criteria, same.figures)

    def lag_ms(name: str) -> float:
        percent = name.rpartition(".")[2].removeprefix("response_").replace("score_ms", "p95_ms")
        lags_ms = [engine.lags_ms.get(percent, 0.0) for engine in measured.facts.engines]
        most_ms = generator.lag_limit_ms if generator.loop_share else None
        return 0.0 if most_ms is None else max([most_ms, *lags_ms]) - most_ms

    both = zip(results, in_time, strict=True)
    known = [(was, now, now.figure) for was, now in both if now.figure is not None]
    return tuple(
        was.name for was, now, ms in known if not was.passed and replace(now, figure=ms - lag_ms(now.name)).passed
    )
