"""Tables of measurements of clusters, for docs/explanation/clusters.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.table import figure, table

Row = Mapping[str, Any]

PROCESSES = {"machine": "worker", "station": "controller"}
"""Names of processes, where the measurements have an older one."""


def same(row: Row) -> str:
    """Return the agreement of a cluster's run with one machine's."""
    same = row["same"]
    differences = [f"{what}: {', '.join(some)}" for what, some in same["differences"].items()]
    both = "{both:,} (of {one:,} and {other:,})"
    body = [
        ["users, each in one engine of the cluster", f"{same['users']:,}"],
        ["tasks due by the plan: user, task, microsecond", f"{same['due']:,}"],
        ["new messages: sender, id", f"{same['new_mail']:,}"],
        ["new messages in Sent Items, by doveadm: kind, digest of the body, To", f"{same['sent_items']:,}"],
        ["replies and forwards in both runs: sender, id, recipients", both.format(**same["answers"])],
        ["messages that users processed in both runs: user, id, action", both.format(**same["fates"])],
        ["**differences**", "; ".join(differences) or "none"],
    ]
    return table(["compared", f"{row['users']:,} users, {row['work_s']} s of a day of {row['day']}"], body)


def in_step(row: Row) -> str:
    """Return starts, clocks and control traffic of a cluster's run."""
    clocks, control = row["clocks"], row["control"]
    body = [
        ["true skew of the start instants sent to the four clients", f"{clocks['skew_ms']:.3f} ms"],
        ["true skew of their engines' starts", f"{clocks['begun_skew_ms']:.3f} ms"],
        ["true error of the controller's estimated clock (median, most)", _spread(clocks["wrong_ms"])],
        ["... reported error bound", _spread(clocks["claimed_ms"])],
        [
            "... readings, and those with a larger error than reported",
            f"{clocks['readings']}, {clocks['beyond_claim']}",
        ],
        ["a client to the controller", _rate(control, "to")],
        ["the controller to a client", _rate(control, "from")],
    ]
    return table(["what", "measured"], body)


def _spread(figures: Row) -> str:
    return f"{figures['median']:.3f}, {figures['most']:.3f} ms"


def _rate(control: Row, way: str) -> str:
    size, packets = control[f"{way}_station_bytes_per_s"], control[f"{way}_station_packets_per_s"]
    return f"{size:,.0f} bytes/s in {packets:.1f} packets/s"


def many(row: Row) -> str:
    """Return the figures of a run of many clients, and those of their processes."""
    control, clients = row["control"], row["clients"]
    down, up = (control[f"{way}_station_bytes_per_s"] * clients for way in ("from", "to"))
    body = [
        ["clients, engines, users", f"{clients}, {row['engines']}, {row['users']}"],
        ["every user in the log of exactly one engine with an end", "yes" if row["users_in_logs_once"] else "**no**"],
        ["engines that survived to the end", f"{row['ended']}"],
        ["lost users; files left at clients", f"{row['lost_users']}; {row['files_left_at_clients']}"],
        ["time until all clients have joined (CPU time)", f"{row['join_s']} s ({row['join_cpu_s']} s)"],
        [
            "from the run's command to the log-on; to the common start",
            f"{row['until_log_on_s']} s; {row['until_work_s']} s",
        ],
        ["from the end of the work to the summary", f"{row['after_work_s']} s"],
        ["verdict, exit status", f"{row['verdict']}, {row['status']}"],
        ["latest start as reported, largest uncertainty", f"{row['start_late_ms']} ms, {row['start_error_ms']} ms"],
        ["a client to the controller", _rate(control, "to")],
        ["the controller to a client", _rate(control, "from")],
        ["all clients together: to the controller, from it", f"{up / 1024:,.0f} KiB/s, {down / 1024:,.0f} KiB/s"],
    ]
    of_kinds = [
        [PROCESSES.get(kind, kind), f"{one['processes']}", f"{one['memory_mib']:.0f} MiB", f"{one['cpu_share']:.1%}"]
        for kind, one in row["processes"].items()
    ]
    return (
        table(["what", "measured"], body)
        + "\n\n"
        + table(["process", "number", "total memory", "share of a core, at work"], of_kinds)
    )


def lag(row: Row) -> str:
    """Return the lag of a client's engine and of one by itself."""
    body = []
    for name, title in (
        ("p50", "lag p50 ms"),
        ("p99", "lag p99 ms"),
        ("max", "longest lag ms"),
        ("cpu_share", "of a core"),
    ):
        alone, beside, ratio = row["alone"][name], row["cluster"][name], row["ratio"][name]
        body.append(
            [
                title,
                *(f"{each['median']} ({each['least']} to {each['most']})" for each in (alone, beside)),
                f"{ratio['ratio']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})",
            ]
        )
    return table([f"{row['pairs']} pairs of {row['work_s']} s", "alone", "in a cluster", "ratio, 95 % interval"], body)


def pull(rows: Sequence[Row]) -> str:
    """Return the rate of fetching logs by number of clients."""
    body = [[f"{row['clients']}", f"{row['mib']:,} MiB", f"{row['mib_per_s']:.0f} MiB/s"] for row in rows]
    return table(["clients at once", "data", "rate"], body)


def log_bytes(rows: Sequence[Row]) -> str:
    """Return the sizes of logs."""
    body = []
    for row in rows:
        for key, log, unit in (
            ("bytes_per_activity", row["profile"], "each"),
            ("engine_bytes_per_s", "engine with two idle users", "a second"),
            ("machine_bytes_per_s", "machine", "a second"),
            ("engine_bytes_per_cpu_s", "closed loop", "in a second of a core"),
        ):
            if key in row:
                body.append([log, figure(row.get("activities"), ",", " activities"), f"{row[key]:,} {unit}"])
    return table(["log", "of", "bytes"], body)
