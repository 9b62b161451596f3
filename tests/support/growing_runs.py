"""Snapshots of a run that goes on."""

from dataclasses import replace

from live_snapshots import WORK

from loadsim.engine.snapshot import LiveSnapshot


def second(
    at_s: float | None,
    done: int,
    failed: int = 0,
    bucket: str = "20",
    task: str = "READ",
    phase: str = "work",
    lag_ms: float | None = 0.4,
    cpu_share: float | None = 0.1,
) -> LiveSnapshot:
    """A run that has done so many tasks of one name until then, all in one bucket."""
    return replace(
        WORK,
        phase=phase,
        at_s=at_s,
        tasks={task: {"ok": done, "refused": failed}, "LOGON": {"ok": 200}},
        service_times={task: {bucket: done}, "LOGON": {"100": 200}},
        service_s={},
        failures={task: {"450 RCPT": failed}} if failed else {},
        loop_timed=done + 200,
        late_busy_s=0.0,
        late_down_s=0.0,
        late_generator_s=done * 0.001,
        lag_p99_ms=lag_ms,
        lag_max_ms=lag_ms,
        cpu_share=cpu_share,
    )
