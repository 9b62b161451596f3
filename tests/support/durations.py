"""The costs of a test run: its slowest tests and files, and the CPU time of each file with its processes."""

import resource
from collections import defaultdict
from collections.abc import Iterator

import pytest

SHOWN = 40

_spent_s = 0.0
"""The CPU time of this process and of its children that have exited, at the end of the last phase of a test."""


def _cpu_s() -> float:
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pytest_collection_finish() -> None:
    """Count from here on: collection belongs to no file."""
    global _spent_s
    _spent_s = _cpu_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[pytest.TestReport]:
    """Add the CPU time of this phase to its report; pytest-xdist carries it to the first process."""
    global _spent_s
    report: pytest.TestReport = yield
    before_s, _spent_s = _spent_s, _cpu_s()
    report.cpu_s = _spent_s - before_s  # type: ignore[attr-defined]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the slowest tests and files of a run of several files."""
    tests: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                for totals in tests[report.nodeid], files[report.nodeid.partition("::")[0]]:
                    totals[0] += report.duration
                    totals[1] += getattr(report, "cpu_s", 0.0)
    if len(files) < 2:
        return
    for what, costs in ("tests", tests), ("files", files):
        terminalreporter.section(f"slowest {what}: seconds, CPU seconds with processes")
        for name, (wall_s, cpu_s) in sorted(costs.items(), key=lambda each: -max(each[1]))[:SHOWN]:
            terminalreporter.write_line(f"{wall_s:8.2f} {cpu_s:8.2f}  {name}")
    wall_s, cpu_s = (sum(each[at] for each in files.values()) for at in (0, 1))
    terminalreporter.write_line(f"{wall_s:8.2f} {cpu_s:8.2f}  all of {len(tests)} tests in {len(files)} files")
