"""The verdict on a storage test: published limits, the target, and reasons why a measurement is invalid.

Limits: Dell, "PowerEdge R510 ... Exchange 2010 Storage Solution" (ESRP, 2010), appendix A; "Jetstress 2010 Test Result
Evaluation" (2011). Only the findings on the generator, the cache and the length are our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.severity import Cause, Severity
from loadsim.findings.verdict import Verdict, by_severity
from loadsim.storage.recording import DatabaseFigures, Recording
from loadsim.storage.scenario import StorageScenario
from loadsim.storage.store import Io, summed

LOADED = ("performance", "stress")  # the tests whose load is judged
STRICT_MS, LENIENT_MS = 100.0, 200.0  # the limit of a sample's mean, in tests of up to `STRICT_S`, and in longer ones
STRICT_S = 6 * 3600.0
PUBLISHED_S = 2 * 3600.0  # the length of the published performance test
AVERAGE_MS = {Io.READ: 20.0, Io.LOG_WRITE: 10.0}  # the limits of the means over the window
MOST_CPU_SHARE = 0.8  # above it, threads wait for the interpreter lock
MOST_LAG_MS = 10.0
DISKS_FAILED = {Code.STORED_DAMAGED, Code.DISK_FAILED}  # even if the times are invalid
BY_TIMES = {Code.DISK_READS_SLOW, Code.DISK_READ_PEAK, Code.LOG_WRITES_SLOW, Code.LOG_WRITE_PEAK, Code.DISK_STALLED}
MOST_SINGLE_MS = 1000.0  # of a single read, write or sync: a sample's mean hides a stall
LEAST_MADE = 100  # a mean of fewer reads or log writes is not judged


def judge(recording: Recording) -> Verdict:
    """Return the verdict, with the most severe findings first."""
    loaded = recording.header.test in LOADED
    findings = [*_ended(recording, loaded), *(_load(recording) if loaded else ()), *_integrity(recording)]
    # It takes less to fail a test than to pass one.
    codes = {each.code for each in findings}
    outweighed = set(Cause) if codes & DISKS_FAILED else {Cause.TERMS} if codes & BY_TIMES else set()
    findings = [
        replace(each, severity=Severity.WARNING)
        if each.cause in outweighed or (outweighed and each.code is Code.STORAGE_SHORT)
        else each
        for each in findings
    ]
    findings.sort(key=lambda each: each.code is Code.BELOW_TARGET)  # after slow disks, which more threads do not help
    return Verdict(by_severity(findings))


def _ended(recording: Recording, loaded: bool) -> Iterator[Finding]:
    end = recording.end
    if end is None or (loaded and not any(end) and len(recording.counted) < recording.wanted):
        yield finding(Code.NO_END)
        return
    if not (recording.proved or end.failure or end.stopped):
        yield finding(Code.STORE_UNVERIFIED)
    if end.failure:
        yield finding(Code.FAULT_ENDED, why=end.failure)
    if end.stopped:
        yield finding(Code.STOPPED)
    if end.full:
        yield finding(Code.DISK_FULL)


def _load(recording: Recording) -> Iterator[Finding]:
    scenario, window_s = recording.scenario, recording.window_s
    if recording.window is None or not recording.window[1]:
        yield finding(Code.CACHE_NOT_FULL)
    if window_s < PUBLISHED_S:
        yield finding(Code.STORAGE_SHORT, length_s=window_s)
    peak_ms = STRICT_MS if scenario.duration_s <= STRICT_S else LENIENT_MS
    for database, mailboxes in zip(recording.databases, scenario.mailboxes_by_database, strict=True):
        target = scenario.target_iops * mailboxes / scenario.mailboxes
        if database.iops < target:
            yield finding(Code.BELOW_TARGET, database.name, achieved=database.iops, target=target)
        # 1. Was the generator the limit?
        if database.cpu_share > MOST_CPU_SHARE:
            yield finding(Code.WORKER_BUSY, database.name, cpu_share=database.cpu_share, limit_share=MOST_CPU_SHARE)
        if (database.lag_p99_ms or 0.0) > MOST_LAG_MS:
            yield finding(Code.WORKER_LATE, database.name, lag_p99_ms=database.lag_p99_ms, limit_ms=MOST_LAG_MS)
        # 2. Are the disks fast enough?
        for kind, few, slow, peak in (
            (Io.READ, Code.FEW_READS, Code.DISK_READS_SLOW, Code.DISK_READ_PEAK),
            (Io.LOG_WRITE, Code.FEW_LOG_WRITES, Code.LOG_WRITES_SLOW, Code.LOG_WRITE_PEAK),
        ):
            made, mean_ms, max_ms = (
                round(database.io[kind].per_s * window_s),
                database.io[kind].ms,
                database.io[kind].max_ms,
            )
            least = max(LEAST_MADE, _least_reads(scenario, database, mailboxes) if kind is Io.READ else 0)
            if made < least:
                yield finding(few, database.name, made=made, limit=least)
                continue
            if mean_ms is not None and mean_ms > AVERAGE_MS[kind]:
                yield finding(slow, database.name, mean_ms=mean_ms, limit_ms=AVERAGE_MS[kind])
            if max_ms is not None and max_ms > peak_ms:
                yield finding(peak, database.name, max_ms=max_ms, limit_ms=peak_ms)
        totals = summed([sample["io"] for sample in recording.samples_of(database.name)])
        slowest_ms = max(io.slowest_ns for io in totals.values()) / 1e6
        if slowest_ms > MOST_SINGLE_MS:
            yield finding(Code.DISK_STALLED, database.name, slowest_ms=slowest_ms, limit_ms=MOST_SINGLE_MS)


def _least_reads(scenario: StorageScenario, database: DatabaseFigures, mailboxes: int) -> int:
    """Return half the reads that miss a cache of twice the stated size: with fewer, another cache was involved."""
    stored_bytes = mailboxes * scenario.messages_per_mailbox * scenario.message_size
    missed_share = max(0.0, 1 - 2 * scenario.cache / stored_bytes)
    return round(database.operations.get("read", 0) * missed_share / 2)


def _integrity(recording: Recording) -> Iterator[Finding]:
    """Yield findings on failed operations and damage, including those before and after the window."""
    if not recording.header.survived:
        yield finding(Code.MACHINE_RESTARTED)
    names = [name for name, _ in recording.header.databases]
    for name in names:
        samples = recording.samples_of(name)
        failures = sum((Counter(sample["failures"]) for sample in samples), Counter[str]())
        for what, times in failures.items():
            yield finding(Code.DISK_FAILED, name, times=times, what=what)
        if count := sum(sample["damaged"] for sample in samples):
            places = tuple(place for sample in samples for place in sample["damages"])
            yield finding(Code.STORED_DAMAGED, name, damaged=count, places=places)
    if recording.kernel_errors:
        yield finding(Code.KERNEL_ERRORS, errors=recording.kernel_errors)
    for passes in (recording.checked, recording.proved):
        for name, verified in zip(names, passes, strict=bool(passes)):
            if verified.damaged:
                yield finding(Code.STORED_DAMAGED, name, damaged=verified.damaged, places=tuple(verified.damages))
