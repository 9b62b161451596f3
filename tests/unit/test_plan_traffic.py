"""The traffic of a plan: rates by hour, peaks, SMTP commands by how users connect, growth of the mailboxes."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import pytest

from loadsim.dryrun.plan import make_plan, to_json
from loadsim.dryrun.tally import GATHER_NS, Tally
from loadsim.dryrun.traffic import COUNTED, peaks
from loadsim.engine.clock import LoopClock, run_virtual
from loadsim.engine.engine import Dependencies, Engine
from loadsim.engine.event_log import Events
from loadsim.model.content.compose import Contents
from loadsim.model.ports import Endpoint
from loadsim.model.scenario import load_scenario
from loadsim.model.terms import STORED
from loadsim.model.workload import Workload
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.report.plan_text import plan_text

SMALL = "topology=[{profile: loadsim-5.5/medium, users: 12}]"
SERVER = "server={{imap: {{host: 127.0.0.1, port: 143}}, smtp: {{host: 127.0.0.1, port: 25, {}}}}}"
ACCOUNTS = 'accounts={user: "u{index:05d}", password: "secret-{index}"}'


@cache
def planned(*overrides: str) -> dict[str, Any]:
    return to_json(make_plan(load_scenario("quickstart", [SMALL, "run={day_length: 8h}", *overrides])))


def over(smtp: str) -> dict[str, int]:
    found: dict[str, int] = planned(SERVER.format(smtp), ACCOUNTS, "allow_hosts=[]")["commands"]
    return found


# --- rates --------------------------------------------------------------------------------------------------------


def test_a_mean_rate_is_the_count_of_the_day_over_its_seconds() -> None:
    figures = planned()
    inside = figures["by_hour"][1:-1]
    smtp = {name: n for name, n in figures["commands"].items() if name.startswith("SMTP ")}
    assert figures["rates_per_s"]["smtp_commands"] * 28_800 == pytest.approx(sum(smtp.values()) - smtp["SMTP CONNECT"])
    assert figures["rates_per_s"]["messages"] * 28_800 == pytest.approx(figures["totals"]["messages_sent"])
    assert figures["rates_per_s"]["recipients"] * 28_800 == pytest.approx(figures["totals"]["messages_received"])
    for rate in COUNTED:
        hours = [hour[f"{rate}_per_s"] for hour in inside]
        assert figures["rates_per_s"][rate] == pytest.approx(sum(hours) / len(hours))


def test_a_peak_is_the_busiest_hour() -> None:
    """The day's shape puts three quarters of the work into the second half, so no peak is in the first."""
    figures = planned("run={day_length: 8h, day_shape: [1, 3]}")
    for rate, peak in figures["peaks"].items():
        hours = [hour[f"{rate}_per_s"] for hour in figures["by_hour"][1:-1]]
        assert peak["per_s"] == max(hours) == hours[peak["hour"]]
        assert peak["to_mean"] * figures["rates_per_s"][rate] == pytest.approx(peak["per_s"])
    assert figures["peaks"]["tasks"]["hour"] >= 4
    assert figures["peaks"]["tasks"]["to_mean"] > 1.25


def test_a_short_last_hour_is_no_peak() -> None:
    """Ten seconds with two tasks are a chance, and no busy hour."""
    hours = [
        {"hour": number, "seconds": seconds, **dict.fromkeys(COUNTED.values(), done), "tasks": {"READ": done}}
        for number, seconds, done in ((0, 3600.0, 36), (1, 3600.0, 72), (2, 10.0, 2))
    ]
    for hour in hours:
        hour |= {f"{rate}_per_s": 36 * (hour["hour"] + 1) / 3600 for rate in COUNTED}
    hours[2] |= {f"{rate}_per_s": 0.2 for rate in COUNTED}
    found = peaks(hours, 7210.0)
    assert all(peak is not None and peak["hour"] == 1 for peak in found.values())


def test_a_plan_without_hours_has_no_peaks() -> None:
    """Only what is before the start."""
    assert peaks(planned()["by_hour"][:1], 28_800.0) == dict.fromkeys(COUNTED)


# --- commands -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_smtp_commands_are_those_of_the_scenario_s_connections() -> None:
    """A connection per message has EHLO and AUTH each time, twice EHLO with STARTTLS; a kept one once for each user."""
    plain = over("tls: none")
    sent = plain["SMTP DATA"]
    assert plain["SMTP CONNECT"] == plain["SMTP EHLO"] == plain["SMTP AUTH"] == plain["SMTP MAIL"] == sent > 12
    assert "SMTP AUTH" not in over("tls: none, auth: false")
    secured = over("tls: starttls")
    assert secured["SMTP EHLO"] == 2 * sent
    assert secured["SMTP STARTTLS"] == sent
    kept = over("connection: kept")
    assert kept["SMTP CONNECT"] == kept["SMTP EHLO"] == kept["SMTP AUTH"] <= 12
    assert kept["SMTP DATA"] == sent


def test_listings_that_a_gathering_server_joins_are_counted() -> None:
    """Of announcements at 0, 0.2, 0.4, 0.6 and 5 s, a server that waits for 0.5 s after the first makes three."""
    tally = Tally(2, 10**12, 1, 10**12)
    tally.facts({"start_ns": 0})

    def listed(user: int, at_ns: int) -> None:
        tally.task(("SYNC", user, "", "", at_ns, at_ns, at_ns, 0.0, 0.0, 0.0, "ok", "", 0))

    for tenths in (0, 2, 4, 6, 50):
        listed(1, tenths * GATHER_NS // 5)
    listed(2, 0)
    assert tally.gathered == 2
    other = Tally(2, 10**12, 1, 10**12)
    other.add(tally)
    assert other.gathered == 2


# --- storage ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_growth_is_that_of_the_mailboxes() -> None:
    """All messages of all folders, counted before and after a day: their bytes differ by the sum of the causes."""
    scenario = load_scenario("quickstart", [SMALL, "run={day_length: 10m}"])
    workload = Workload(scenario)
    contents = Contents(1)
    driver = InMemoryDriver(workload, contents, service_s=0.0, endpoints=lambda _: Endpoint("localhost", 0))

    def held(driver: InMemoryDriver) -> int:
        return sum(
            mailbox.header(mailbox.folder(name), uid).size_bytes
            for mailbox in driver.mailboxes.values()
            for name in mailbox._names
            for uid in mailbox.folder(name).messages
        )

    async def run(clock: LoopClock) -> None:
        dependencies = Dependencies(
            workload=workload,
            drivers={group.module: driver for group in scenario.topology},
            contents=contents,
            recorder=Tally(12, 10**12, 1, workload.duration_us * 1000),
            events=Events(io.StringIO()),
            clock=clock,
        )
        engine = Engine(dependencies, users=range(1, 13), run_id="r", wall_clock_us=0, self_observing=False)
        await engine.run()

    run_virtual(run)
    grown = dict(driver.stored_bytes)
    fresh = InMemoryDriver(workload, contents, service_s=0.0)
    for user in range(1, 13):
        fresh.session(scenario.account(user), Unobserved())
    assert held(driver) - held(fresh) == sum(grown.values())
    assert set(grown) <= set(STORED)
    assert grown["received"] > grown["saved"] > 0 > grown["emptied"]


class Unobserved:
    """An observer that records nothing."""

    number = 1

    def now(self) -> int:
        return 0

    def command(self, *_: object) -> None:
        raise AssertionError

    def arrived(self, _: int) -> None:
        raise AssertionError

    def lost(self, _: Exception) -> None:
        raise AssertionError


@pytest.mark.slow
def test_storage_adds_up() -> None:
    figures = planned()
    storage = figures["storage"]
    assert storage["growth_bytes_per_day"] == sum(storage[f"{cause}_bytes_per_day"] for cause in STORED)
    assert storage["received_bytes_per_day"] == pytest.approx(figures["totals"]["bytes_received"])
    assert storage["saved_bytes_per_day"] == pytest.approx(figures["totals"]["bytes_sent"])
    two = planned("run={day_length: 4h, days: 2}")["storage"]
    assert two["received_bytes_per_day"] == pytest.approx(storage["received_bytes_per_day"], rel=0.5)


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_text_fits_into_80_columns_and_a_run_of_many_hours_is_shown_by_day() -> None:
    figures = planned("run={day_length: 4h, days: 4}", "topology.0.users=4")
    text = plan_text(figures)
    assert max(map(len, text.splitlines())) <= 80
    table = text.split("On day")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table[1:]] == ["1", "2", "3", "4"]
    by_day = [
        sum(hour["messages_sent"] for hour in figures["by_hour"][1:-1][day * 8 : day * 8 + 8]) for day in range(4)
    ]
    assert [line.split()[2] for line in table[1:]] == [f"{sent / 14_400:,.2f}" for sent in by_day]


@pytest.mark.slow
def test_a_night_has_no_part_in_the_rate_of_its_day() -> None:
    """The run ends with the third day: the mean of the days is that of the run."""
    figures = planned(
        "topology=[{profile: loadsim-4.0/medium, users: 4}]", "run={day_length: 30s, days: 3, ramp_up: 1s}",
        "limits={window: 1s, hits: 1}",
    )  # fmt: skip
    assert figures["night_s"] == 15
    rows = plan_text(figures).split("On day")[1].split("\n\n")[0].splitlines()[1:]
    tasks = [float(row.split()[1]) for row in rows]
    assert len(tasks) == 3
    assert sum(tasks) / 3 == pytest.approx(figures["rates_per_s"]["tasks"], abs=0.01)


def test_days_that_begin_within_an_hour_have_no_rows() -> None:
    figures = planned("run={day_length: 4h, days: 4}", "topology.0.users=4")
    text = plan_text({**figures, "day_s": figures["day_s"] * 0.95})
    assert "On day" not in text
    assert "\n\n\n" not in text


def test_programs_that_a_plan_does_not_simulate_are_named() -> None:
    figures = planned("topology=[{profile: loadsim-5.5/medium, users: 12, program: webmail}]")
    (left_out,) = [each for each in figures["left_out"] if "IMAP commands of" in each["what"]]
    assert left_out["effect"].startswith("12 users have other commands than the plan")
    assert figures["rates_per_s"]["imap_commands"] is figures["peaks"]["imap_commands"] is None
    assert all(hour["imap_commands_per_s"] is None for hour in figures["by_hour"])
    assert figures["rates_per_s"]["smtp_commands"] > 0
    assert ["IMAP", "commands", "-"] in [line.split() for line in plan_text(figures).splitlines()]
    assert not [each for each in planned()["left_out"] if "IMAP commands of" in each["what"]]
    assert left_out["what"].split()[-1] in plan_text(figures)
