"""The live view of a run: the screen at any width, plain lines, terminals of all kinds."""

import io
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_snapshots import BEFORE, WORK
from patience import PATIENCE_S
from rich.console import Console
from stderr_terminal import terminal_on_stderr
from virtual_runs import QUIET, scenario_of

from loadsim.cli.live.figures import LiveFigures, LiveRun
from loadsim.cli.live.run_view import RunView
from loadsim.cli.live.view import screenful
from loadsim.engine.snapshot import LiveSnapshot, of_a_lost_engine
from loadsim.scenario.scenario import Scenario


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return scenario_of(tmp_path_factory.mktemp("scenario"), (QUIET, 200), day="300s")


def figures_of(
    scenario: Scenario, *snapshots: LiveSnapshot, clients: Mapping[str, LiveSnapshot] | None = None
) -> LiveFigures:
    live = LiveRun(scenario)
    live.stage("load")
    for snapshot in snapshots:
        live.snapshot(snapshot, clients or {})
    return live.figures


def drawn(figures: LiveFigures, columns: int = 120, encoding: str = "utf-8", height: int = 50) -> list[str]:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    Console(file=out, width=columns, height=height).print(screenful(figures, columns))
    out.flush()
    return [line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()]


def cells(lines: list[str]) -> dict[str, list[str]]:
    split = [re.split(r"  +", line.strip()) for line in lines]
    return {first: rest for first, *rest in split}


def test_the_screen_shows_all_figures(scenario: Scenario) -> None:
    """Phase and time left, users, rates, lateness by cause, the generator, failures by kind, tasks with their times."""
    lines = cells(drawn(figures_of(scenario, BEFORE, WORK)))
    assert lines["window"][-1] == "0:02:04 of the run's 0:05:00, 0:02:56 left"
    assert lines["Users"] == ["199 of 200 on, 1 session lost, 3 messages in transit"]
    # 1038 READs and 200 SENDs in a minute, and three that failed: 1241 in 60 s
    assert lines["Tasks"] == ["2,533 done, 3 failed; lately 20.7 a second, 0.2% failed"]
    late = "user busy 8.1 ms, session down 0.0 ms, generator 0.2 ms (mean, lately); generator 3.1 ms (worst)"
    assert lines["Late"] == [late]
    # 10 % of READ's 22 ms, as in the verdict
    generator = "event loop 0.4 ms late (99th percentile, limit 2.2 ms), 12% of a core (limit 90%), 96 MiB"
    assert lines["Generator"] == [generator]
    assert lines["Failures"] == ["SEND: 450 RCPT (2); SEND: no answer to DATA (1)"]
    assert lines["Task"] == ["done", "failed", "lately/s", "95th, about"]
    assert lines["READ"] == ["2,113", "0", "17.3", "22 ms"]  # 925 within 20 ms and 113 within 25.1: the 987th is amid
    assert lines["SEND"] == ["420", "3", "3.3", "over 100 s"]  # twenty of two hundred


@pytest.mark.parametrize(
    ("columns", "row"),
    [(120, ["199 of 200", "work", "2,533", "3", "0.4 ms", "12%"]), (30, ["199 of 200", "work"]), (12, [])],
)
def test_client_machines_have_a_row_each(scenario: Scenario, columns: int, row: list[str]) -> None:
    """Below the tasks; a lost client has no users on, and is over."""
    lines = drawn(figures_of(scenario, WORK, clients={"two": of_a_lost_engine(WORK), "one": WORK}), columns)
    names = [line.split()[0] for line in lines if line]
    at = names.index("Client")
    assert names[at - 1 :] == ["SEND", "Client", "one", "two"]
    assert cells(lines)["one"] == row
    if row:
        assert cells(lines)["two"][:2] == ["0 of 200", "over"]


def test_a_run_that_has_just_begun_has_no_rates(scenario: Scenario) -> None:
    """While users log on there is neither a time nor a generator's figure, and nothing has failed."""
    begun = LiveSnapshot("log-on", None, 200, 50, {"LOGON": {"ok": 50}}, 0, 0, 0.0)
    lines = cells(drawn(figures_of(scenario, begun)))
    assert lines["log-on"][-1] == "50 of 200 users on"
    assert lines["Tasks"] == ["50 done, 0 failed"]
    assert lines["Failures"] == ["none"]
    assert lines["LOGON"] == ["50", "0"]


@settings(max_examples=30)
@given(columns=st.integers(10, 200), encoding=st.sampled_from(["utf-8", "ascii"]))
def test_no_line_is_wider_than_the_terminal(scenario: Scenario, columns: int, encoding: str) -> None:
    """However narrow it is; at most 110 columns are taken, and a terminal that knows only ASCII gets no other sign."""
    lines = drawn(figures_of(scenario, BEFORE, WORK), columns, encoding)
    assert max(map(len, lines)) <= min(columns, 110)


@settings(max_examples=30)
@given(columns=st.integers(11, 200))
def test_no_figure_is_ever_cut(scenario: Scenario, columns: int) -> None:
    """A narrow terminal has fewer columns on the tasks, down to what was done: 12 for 1234 would be a wrong figure."""
    lines = cells(drawn(figures_of(scenario, BEFORE, WORK), columns))
    whole = {"done": ("2,113", "420"), "failed": ("0", "3"), "lately/s": ("17.3", "3.3")}
    whole["95th, about"] = ("22 ms", "over 100 s")
    headings = lines["Task"]
    assert headings[0] == "done" and set(headings) <= set(whole)
    assert lines["READ"] == [whole[heading][0] for heading in headings]
    assert lines["SEND"] == [whole[heading][1] for heading in headings]
    assert columns < 48 or headings == list(whole)


def test_a_late_event_loop_is_named_in_words(scenario: Scenario) -> None:
    """Red alone is lost on a terminal without colours; READ's 22 ms make the limit."""
    late = replace(WORK, lag_p99_ms=8.4)
    (line,) = cells(drawn(figures_of(scenario, BEFORE, late)))["Generator"]
    assert line.startswith("event loop 8.4 ms late (99th percentile, now above the limit 2.2 ms of the window), ")


def test_server_texts_are_shown_without_markup(scenario: Scenario) -> None:
    """Its words are shown as they are, brackets and all; of many kinds the most frequent are named."""
    kinds = {"NO [bold red]x[/] [/nothing]": 9} | {f"45{number} RCPT": 1 for number in range(9)}
    lines = drawn(figures_of(scenario, replace(WORK, failures={"MOVE": kinds})))
    text = " ".join(lines)
    assert "MOVE: NO [bold red]x[/] [/nothing] (9); MOVE: 450 RCPT (1); " in text
    assert "4 more kinds" in text


def snapshots(count: int) -> Iterator[LiveSnapshot]:
    for second in range(count):
        yield LiveSnapshot("work", float(second), 200, 199 - second, {"READ": {"ok": 5, "lost": 1}}, 0, 1, 0.0)


def shown(
    scenario: Scenario,
    *,
    quiet: bool = False,
    columns: int = 80,
    narrower: int | None = None,
    lines: int = 30,
    **env: str,
) -> str:
    """Return a terminal's output for three snapshots; it is made `narrower` after the second."""
    with terminal_on_stderr(columns, lines, **env) as terminal, closing(RunView(quiet=quiet)) as view:
        live = LiveRun(scenario, view)
        live.stage("load")
        for second, snapshot in enumerate(snapshots(3)):
            if second == 2 and narrower is not None:
                terminal.read("95th")  # what is drawn from now on is drawn on a narrower one
                terminal.resize(narrower)
            live.snapshot(snapshot, {})
    return terminal.seen


def test_a_terminal_is_restored_at_the_end(scenario: Scenario) -> None:
    """The cursor is hidden meanwhile and shown again; the last screen is wiped away."""
    seen = shown(scenario)
    assert "of 200 on" in seen and "\x1b[31m" in seen
    assert seen.rindex("\x1b[?25l") < seen.rindex("of 200 on") < seen.rindex("\x1b[?25h")
    assert seen.rstrip().endswith("\x1b[2K")


def test_a_low_terminal_shows_the_most_important_lines(scenario: Scenario) -> None:
    """The last lines are never drawn, not even at the end, when they would stay."""
    seen = shown(scenario, lines=6)
    assert "of 200 on" in seen and "..." in seen
    assert "READ" not in seen


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": "unknown"}])
def test_a_terminal_that_cannot_be_drawn_on_gets_lines(scenario: Scenario, env: dict[str, str]) -> None:
    """As where standard error is no terminal at all: no sequence of control signs."""
    seen = shown(scenario, **env)
    assert seen.splitlines() == ["window: 0 s, 199 of 200 users on, 5 tasks done, 1 failed, 0 messages in transit"]


def test_a_blocked_terminal_does_not_block_the_run(scenario: Scenario) -> None:
    """Far more is drawn than fits into its buffer, which is not read: drawing never waits; the newest comes last."""
    with terminal_on_stderr() as terminal:
        with closing(RunView(quiet=False)) as view:
            live = LiveRun(scenario, view)
            live.stage("load")
            for snapshot in snapshots(300):
                live.snapshot(snapshot, {})
            reader = threading.Thread(target=terminal.read, args=("-100 of 200 on",))
            reader.start()
        reader.join(PATIENCE_S)
    assert "-100 of 200 on" in terminal.seen
    assert terminal.seen.count("of 200 on") < 300


def test_quiet_shows_nothing(scenario: Scenario) -> None:
    assert shown(scenario, quiet=True) == ""
