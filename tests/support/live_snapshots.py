"""Snapshots of a run that lasts."""

from dataclasses import replace

from loadsim.engine.snapshot import LiveSnapshot

WORK = LiveSnapshot(
    phase="work",
    at_s=124.2,
    users=200,
    users_on=199,
    tasks={"READ": {"ok": 2113, "skipped": 7}, "SEND": {"ok": 420, "refused": 2, "timeout": 1}},
    accepted_undelivered=3,
    sessions_lost=1,
    generator_late_most_s=0.0031,
    service_times={"READ": {"20": 2000, "25.1": 113}, "SEND": {"50.1": 400, "inf": 20}},
    service_s={"READ": 40.0, "SEND": 20.0},
    failures={"SEND": {"450 RCPT": 2, "no answer to DATA": 1}},
    loop_timed=2533,
    late_busy_s=20.0,
    late_down_s=4.0,
    late_generator_s=0.5,
    lag_p99_ms=0.44,
    lag_max_ms=2.0,
    cpu_share=0.123,
    rss_bytes=96 * 2**20,
)

BEFORE = replace(
    WORK,
    at_s=64.2,
    tasks={"READ": {"ok": 1075}, "SEND": {"ok": 220}},
    service_times={"READ": {"20": 1075}, "SEND": {"50.1": 220}},
    loop_timed=1295,
    late_busy_s=10.0,
    late_down_s=4.0,
    late_generator_s=0.25,
)
"""A minute before."""
