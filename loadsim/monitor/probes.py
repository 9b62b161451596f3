"""Probes (entry points of the group `loadsim.probes`): figures sampled each second of a run.

Each probe runs in its own thread, in the process that coordinates a machine's engines. If it blocks or fails, only its
samples are missing. It is also opened in a thread, with a time limit. Its figures appear in the machine's log and the
report, never in a score.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any

from loadsim.analysis.probes.statistics import FIGURES, PROBE
from loadsim.documents.schema import with_nearest
from loadsim.engine.run_log import RunLog
from loadsim.errors import ConfigError, together
from loadsim.model.ports import Clock, Probe, Services
from loadsim.model.terms import FIGURE_NAME
from loadsim.monitor.cpu_affinity import leave_real_time_priority
from loadsim.plugins import Plugin, first_line, names, plugin

EACH_S = 1.0
"""The time between two samples. A probe that takes longer is sampled as often as possible."""

LONGEST_OPENING_S = 30.0
"""The longest time that a probe may take to open."""

HUNG_S = 5.0
"""At the end of a run, a sample under way for this long counts as a failure, as does any first sample under way."""

MOST_FIGURES = 160
"""The most figures of a probe. The probe `host` has at most 102."""
LONGEST_TEXT = 200
FIRST_USER = 1

_LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class OpenedProbe:
    """A probe ready to be sampled, with its key in the scenario, and the package it comes from."""

    name: str
    origin: str
    sample: Probe


def check_probes(origin: str, probes: Mapping[str, Mapping[str, Any]]) -> None:
    """Import probes, and check their settings' names; `origin` is where they are configured, for errors.

    Raises a single `ConfigError` for all faults.
    """
    problems = []
    for name, settings in probes.items():
        try:
            _check_settings(name, _installed_probe(origin, name).load(), settings)
        except ConfigError as error:
            problems.append(error)
    if problems:
        raise together(problems)


async def open_probes(
    origin: str, probes: Mapping[str, Mapping[str, Any]], services: Services, limit_s: float = LONGEST_OPENING_S
) -> tuple[OpenedProbe, ...]:
    """Open checked probes for a server, one after another; `origin` is where they are configured, for errors.

    Raises `ConfigError` if one cannot be opened within `limit_s`.
    """
    return tuple(
        [
            await _opened_in_time(name, _installed_probe(origin, name), services, settings, limit_s)
            for name, settings in probes.items()
        ]
    )


def _installed_probe(origin: str, name: str) -> Plugin:
    """Return a key's probe: `NAME`, or `NAME/LABEL` if several have the same name."""
    kind, slash, label = name.partition("/")
    if slash and not _LABEL.fullmatch(label):
        expected = f"a label of a-z, 0-9, _ and - after {kind}/"
        raise ConfigError(f"{origin}: probes: expected {expected}, found {label!r:.60}")
    probe = plugin("probe", kind)
    if probe is None:
        raise ConfigError(f"{origin}: probes: expected installed probes ({names('probe')}), found {kind!r}")
    return probe


async def _opened_in_time(
    name: str, probe: Plugin, services: Services, settings: Mapping[str, Any], limit_s: float
) -> OpenedProbe:
    """Open a probe in a thread, as one that blocks would keep the event loop from handling signals."""
    opened: Future[OpenedProbe] = Future()
    opened.set_running_or_notify_cancel()  # so that the time limit does not cancel it

    def open_it() -> None:
        try:
            opened.set_result(_opened(name, probe, services, settings))
        except ConfigError as error:
            opened.set_exception(error)

    # A daemon, as in `_Sampler`.
    threading.Thread(target=open_it, name=f"opening of probe {name}", daemon=True).start()
    try:
        async with asyncio.timeout(limit_s):
            return await asyncio.wrap_future(opened)
    except TimeoutError:
        expected = f"{probe.entry.value} of {probe.origin} to open within {limit_s:.0f} s"
        raise ConfigError(f"probe {name}: expected {expected}, found it still at work") from None


def _opened(name: str, probe: Plugin, services: Services, settings: Mapping[str, Any]) -> OpenedProbe:
    """Open a probe in this thread, which is not the main one, so signals raise nothing in it. Raises `ConfigError`."""
    expected = f"probe {name}: expected {probe.entry.value} of {probe.origin}"
    try:
        sample = probe.load()(services, **settings)
    except ConfigError as error:
        line = str(error).removeprefix(f"probe {probe.name}: ").removeprefix(f"probe {name}: ")
        raise ConfigError(f"probe {name}: {line}") from None
    except BaseException as error:  # noqa: BLE001 - others' packages may raise anything
        raise ConfigError(f"{expected} to take its settings, found {_text(error)}") from None
    if not callable(sample):
        raise ConfigError(f"{expected} to return a function, found {sample!r:.60}")
    return OpenedProbe(name, probe.origin, sample)


def _check_settings(name: str, opener: Callable[..., Probe], settings: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a setting that a probe's function does not accept."""
    try:
        parameters = list(signature(opener).parameters.values())[1:]
    except (TypeError, ValueError):  # not callable, or written in C
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    for key in settings:
        if key not in known:
            expected = f"one of the settings {', '.join(known)}" if known else "no settings"
            raise ConfigError(f"probe {name}: expected {expected}, found {with_nearest(key, known)}")


def _text(error: BaseException) -> str:
    return first_line(error)[:LONGEST_TEXT]


def checked(figures: object) -> dict[str, float]:
    """Return a sample's figures. Raises `ValueError` for anything but finite numbers by name."""
    if not isinstance(figures, Mapping) or len(figures) > MOST_FIGURES:
        raise ValueError(f"expected a mapping of at most {MOST_FIGURES} figures")
    for name, figure in figures.items():
        if not isinstance(name, str) or not FIGURE_NAME.fullmatch(name):
            raise ValueError(f"expected names of a-z, 0-9 and _, found {name!r:.60}")
        if isinstance(figure, bool) or not isinstance(figure, int | float) or not math.isfinite(figure):
            raise ValueError(f"{name}: expected a finite number, found {figure!r:.60}")
        if abs(figure) > 1e15:  # the limit of a log's samples
            raise ValueError(f"{name}: expected a number of at most 1e15, found {figure:g}")
    return dict(figures)


FIRST_SAMPLES = 3
"""The number of samples after which a probe's figures are known. The first has no rates of counters."""

OnFigures = Callable[[str, Collection[str]], None]
"""Takes a probe's name, and the names of the figures in its first samples."""

OnSample = Callable[[str, Mapping[str, float]], None]
"""Takes a probe's name, and a sample's figures."""


class _Sampler:
    """Samples a probe in a thread until `end`, and records each sample in the event loop."""

    def __init__(
        self,
        probe: OpenedProbe,
        log: RunLog,
        clock: Clock,
        each_s: float,
        hung_s: float,
        on_figures: OnFigures,
        on_sample: OnSample,
    ) -> None:
        self.probe = probe
        self.samples = self.failures = 0
        self.last_failure: str | None = None
        self._figures: set[str] = set()  # in the first samples
        self._on_figures = on_figures
        self._on_sample = on_sample
        self._log = log
        self._clock = clock
        self._each_s = each_s
        self._hung_s = hung_s
        self._asked_s: float | None = None  # the start of a sample that has not returned
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        # A daemon: a probe that never returns must not keep the process from exiting.
        threading.Thread(target=self._sample_until_end, name=f"probe {probe.name}", daemon=True).start()

    def end(self) -> None:
        """Stop sampling. A sample that hangs is a failure."""
        self._ended.set()
        asked_s = self._asked_s
        if asked_s is None:
            return
        waited_s = time.monotonic() - asked_s
        if waited_s >= self._hung_s or not self.samples + self.failures:
            self.failures += 1
            self.last_failure = f"did not return for {waited_s:.0f} s"

    def facts(self) -> dict[str, Any]:
        return {
            "package": self.probe.origin,
            "samples": self.samples,
            "failures": self.failures,
            "last_failure": self.last_failure,
        }

    def _sample_until_end(self) -> None:
        leave_real_time_priority()
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            at_ns, figures, failure = self._clock.now_ns(), {}, None
            self._asked_s = time.monotonic()
            try:
                figures = checked(self.probe.sample())
            except BaseException as error:  # noqa: BLE001 - even SystemExit ends only this sample
                failure = _text(error)
            self._asked_s = None
            with suppress(RuntimeError):  # the loop is closed: the run is over
                self._loop.call_soon_threadsafe(self._record, at_ns, figures, failure)
            due = max(due + self._each_s, time.monotonic())

    def _record(self, at_ns: int, figures: Mapping[str, float], failure: str | None) -> None:
        if self._ended.is_set():
            return  # the log may be closed
        if failure is not None:
            self.failures += 1
            self.last_failure = failure
            return
        self.samples += 1
        self._log.health({"at_ns": at_ns, PROBE: self.probe.name, FIGURES: figures})
        self._on_sample(self.probe.name, figures)
        if self.samples <= FIRST_SAMPLES:
            self._figures |= figures.keys()
            if self.samples == FIRST_SAMPLES:
                self._on_figures(self.probe.name, self._figures)


@contextmanager
def sampled(
    probes: tuple[OpenedProbe, ...],
    log: RunLog,
    clock: Clock,
    each_s: float = EACH_S,
    hung_s: float = HUNG_S,
    on_figures: OnFigures = lambda probe, figures: None,
    on_sample: OnSample = lambda probe, figures: None,
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Record samples of the probes in the machine's log during the block, and at its end the fact `probes`.

    In the event loop, `on_sample` is called with each sample, and `on_figures` with the names of the figures in each
    probe's first `FIRST_SAMPLES`.

    Needs a running event loop. Yields a function that returns this fact for the samples so far.
    """
    samplers = [_Sampler(probe, log, clock, each_s, hung_s, on_figures, on_sample) for probe in probes]

    def facts() -> dict[str, Any]:
        return {sampler.probe.name: sampler.facts() for sampler in samplers}

    try:
        yield facts
    finally:
        for sampler in samplers:
            sampler.end()
        if samplers:
            log.facts({"probes": facts()})
