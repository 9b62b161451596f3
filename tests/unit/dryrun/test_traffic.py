"""The traffic of a plan: rates by hour, peaks, SMTP commands by how users connect, growth of the mailboxes."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from loadsim.dryrun.plan import make_plan, to_json
from loadsim.dryrun.tally import GATHER_NS, Tally
from loadsim.dryrun.traffic import COUNTED
from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.model.content.compose import Contents
from loadsim.model.ports import Endpoint
from loadsim.model.terms import STORED
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload

SMALL = "topology=[{profile: loadsim-5.5/medium, users: 12}]"
SERVER = "server={{imap: {{host: 127.0.0.1, port: 143}}, smtp: {{host: 127.0.0.1, port: 25, {}}}}}"
ACCOUNTS = 'accounts={user: "u{index:05d}", password: "secret-{index}"}'


@cache
def planned(*overrides: str) -> dict[str, Any]:
    return to_json(make_plan(load_scenario("quickstart", [SMALL, "run={day_length: 8h}", *overrides])))


def over(smtp: str) -> dict[str, int]:
    found: dict[str, int] = planned(SERVER.format(smtp), ACCOUNTS, "allow_hosts=[]")["commands"]
    return found


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
    peaks = {rate: peak for rate, peak in figures["peaks"].items() if peak is not None}
    assert figures["peaks"].keys() - peaks.keys() == {"lmtp_commands", "lmtp_connections"}
    for rate, peak in peaks.items():
        hours = [hour[f"{rate}_per_s"] for hour in figures["by_hour"][1:-1]]
        assert peak["per_s"] == max(hours) == hours[peak["hour"]]
        assert peak["to_mean"] * figures["rates_per_s"][rate] == pytest.approx(peak["per_s"])
    assert figures["peaks"]["tasks"]["hour"] >= 4
    assert figures["peaks"]["tasks"]["to_mean"] > 1.25


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


@pytest.mark.slow
def test_mail_from_outside_by_lmtp_is_counted_as_such() -> None:
    """The messages are those by SMTP; a connection for each, with LHLO."""
    groups = "topology=[{profile: loadsim-5.5/medium, users: 12}, {profile: outside/machine, users: 3}]"
    by_smtp, by_lmtp = (
        planned(SERVER.format("tls: none, connection: kept" + more), ACCOUNTS, "allow_hosts=[]", groups)
        for more in ("}, outside: {host: 127.0.0.1", "}, outside: {host: 127.0.0.1, protocol: lmtp")
    )
    assert by_smtp["totals"] == by_lmtp["totals"]
    injected, commands = by_lmtp["tasks"]["INJECT"], by_lmtp["commands"]
    assert commands["LMTP CONNECT"] == commands["LMTP LHLO"] == commands["LMTP MAIL"] == injected > 50
    assert 0 < injected - commands["LMTP DATA"] < 20  # to unknown recipients
    assert commands["LMTP DATA"] + commands["SMTP DATA"] == by_smtp["commands"]["SMTP DATA"]
    of_lmtp = sum(times for name, times in commands.items() if name.startswith("LMTP ")) - commands["LMTP CONNECT"]
    assert by_lmtp["rates_per_s"]["lmtp_commands"] * 28_800 == pytest.approx(of_lmtp)
    assert by_lmtp["rates_per_s"]["lmtp_connections"] * 28_800 == pytest.approx(injected)
    assert by_smtp["peaks"]["lmtp_commands"] is None


def test_listings_joined_by_a_batching_server_are_counted() -> None:
    """Of announcements at 0, 0.2, 0.4, 0.6 and 5 s, a server that waits for 0.5 s after the first makes three."""
    tally = Tally(2, 10**12, 1, 10**12, 400)
    tally.facts({"start_ns": 0})

    def listed(user: int, at_ns: int) -> None:
        tally.task(("SYNC", user, "", "", at_ns, at_ns, at_ns, 0.0, 0.0, 0.0, 0.0, 0.0, "ok", "", 0, ""))

    for tenths in (0, 2, 4, 6, 50):
        listed(1, tenths * GATHER_NS // 5)
    listed(2, 0)
    assert tally.gathered == 2


@pytest.mark.slow
def test_the_planned_growth_is_that_of_the_mailboxes() -> None:
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

    async def run(clock: VirtualLoop) -> None:
        drivers = {group.driver_name: driver for group in scenario.topology}
        load = EngineLoad(workload, range(1, 13), drivers, contents, "r")
        records = EngineRecords(Tally(12, 10**12, 1, workload.duration_us * 1000, 400), Events(None))
        await Engine(load, records, EngineOptions(clock, owns_process=False)).run()

    run_virtual(run)
    grown = dict(driver.stored_bytes)
    fresh = InMemoryDriver(workload, contents, service_s=0.0)
    for user in range(1, 13):
        fresh.session(scenario.account(user), Unobserved())
    assert held(driver) - held(fresh) == sum(grown.values())
    assert set(grown) <= set(STORED)
    assert grown["received"] > grown["saved"] > 0 > grown["emptied"]


@pytest.mark.slow
def test_the_public_folder_is_in_no_mailbox(tmp_path: Path) -> None:
    """Posts leave the planned growth as it is; the IMAP commands are known unless the folder is a newsgroup."""
    profile = {"from": "loadsim-5.5/medium", "name": "posting", "post": {"per_day": 8}, "browse_public": {"per_day": 8}}
    (tmp_path / "posting.yaml").write_text(json.dumps(profile), encoding="utf-8")

    def of(profile: object, smtp: str, *more: str) -> dict[str, Any]:
        users = f"topology=[{{profile: {profile}, users: 12}}]"
        return planned(SERVER.format(smtp), ACCOUNTS, "allow_hosts=[]", users, "run={day_length: 1m}", *more)

    plain = of("loadsim-5.5/medium", "tls: none")
    posting = of(tmp_path / "posting.yaml", "tls: none", "folders.public=example.board")
    news = of(tmp_path / "posting.yaml", "tls: none}, nntp: {host: 127.0.0.1", "folders.public=example.board")
    assert posting["tasks"]["POST"] == news["tasks"]["POST"] > 50 > plain["tasks"]["POST"]
    assert plain["storage"] == posting["storage"] == news["storage"]
    assert posting["rates_per_s"]["imap_commands"] > plain["rates_per_s"]["imap_commands"]
    assert news["rates_per_s"]["imap_commands"] is None


class Unobserved:
    number = 1

    def now(self) -> int:
        return 0

    def command(self, *_: object) -> None:
        raise AssertionError

    def arrived(self, *_: object) -> None:
        raise AssertionError

    def lost(self, _: Exception) -> None:
        raise AssertionError
