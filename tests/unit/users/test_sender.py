"""Outside senders: who have no mailbox, submit what is due, and leave users' plans as they are."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from audited_runs import audited
from plan_by_engine import plan_by_engine
from virtual_runs import EVERYTHING, assert_one_at_a_time, chosen, live, quiet, recipients, scenario_of

from loadsim.analysis.summary import summarise
from loadsim.documents.yaml_reader import shipped
from loadsim.dryrun import plan as plans
from loadsim.dryrun.plan import make_plan
from loadsim.errors import ConfigError, LogError, ServerLost, ServerRefused
from loadsim.findings.catalogue import Code
from loadsim.model.message_tag import OUTSIDE_DOMAIN
from loadsim.model.partition import divide
from loadsim.model.ports import Endpoint
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.provisioning.sessions import services_of
from loadsim.scenario.population import resized
from loadsim.scenario.profile import load_any_profile, load_profile
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.server import Server
from loadsim.scenario.workload import NEW_MAIL, Workload, plan_digest

OUTSIDE: dict[str, Any] = {"mailbox": False, "new_mail": {"per_day": 40}, "messages": {"ups1K": 1}}
READERS = quiet(process_inbox={"per_day": 60}, after_reading={"reply": "30%"})


def test_each_planned_message_is_submitted_and_arrives_once(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, (READERS, 6), (OUTSIDE, 4))
    load, lived = Workload(scenario), live(scenario, tmp_path)
    planned = {f"n{sender}.{at.number}" for sender in load.senders for at in load.activities(sender)}
    from_outside = {mail["message"]: mail["user"] for mail in lived.mails("accepted") if mail["sender"] > 6}
    assert len(planned) > 100
    assert from_outside.keys() == planned
    assert lived.outcomes("INJECT") == ["ok"] * len(planned)
    assert set(from_outside.values()) == set(range(1, 7))
    seen = Counter((mail["message"], mail["user"]) for mail in lived.mails("seen") if mail["sender"] > 6)
    assert seen == Counter(from_outside.items())
    assert lived.log.sources[0].facts.undelivered == 0
    assert not lived.log.sources[0].facts.foreign


def test_senders_do_not_log_on_and_name_their_profile(tmp_path: Path) -> None:
    lived = live(scenario_of(tmp_path, (READERS, 3), (OUTSIDE, 2)), tmp_path)
    by_sender = {task["task"] for task in lived.tape.tasks if task["user"] > 3}
    assert by_sender == {"INJECT"}
    assert {(task["profile"], task["protocol"]) for task in lived.tasks("INJECT")} == {("profile1", "fake")}
    assert {command["command"] for command in lived.tape.commands if command["user"] > 3} == {
        *("SMTP CONNECT", "SMTP EHLO", "SMTP MAIL", "SMTP RCPT", "SMTP DATA")
    }
    assert (lived.snapshots[-1].users, len(lived.tasks("LOGON"))) == (3, 3)


def test_a_sender_does_one_thing_at_a_time_and_times_it_from_its_due_time(tmp_path: Path) -> None:
    """A slow server makes the next message late, because the sender is busy."""
    lived = live(scenario_of(tmp_path, (READERS, 3), (OUTSIDE, 2), day="60s"), tmp_path, service_s=1.0)
    assert_one_at_a_time(lived)
    for task in lived.tasks("INJECT"):
        if task["started_ns"] is not None:
            late_s = sum(task[f"late_{cause}_s"] for cause in ("busy", "down", "generator"))
            assert task["started_ns"] - task["scheduled_ns"] == pytest.approx(late_s * 1e9, abs=1e3)
    assert max(task["late_busy_s"] for task in lived.tasks("INJECT")) > 1
    assert max(task["late_generator_s"] for task in lived.tasks("INJECT")) == 0


def test_messages_left_at_the_end_are_skipped(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, (READERS, 3), (OUTSIDE, 2), day="60s")
    load, lived = Workload(scenario), live(scenario, tmp_path, service_s=3.0)
    planned = sum(len(list(load.activities(sender))) for sender in load.senders)
    outcomes = Counter(lived.outcomes("INJECT"))
    assert outcomes["skipped"] > 10
    assert sum(outcomes.values()) == planned


def test_users_answer_active_users_instead_of_outside_senders(tmp_path: Path) -> None:
    """So no mail leaves the server."""
    scenario = scenario_of(tmp_path, (READERS, 6), (OUTSIDE, 4))
    load, lived = Workload(scenario), live(scenario, tmp_path)
    replies = {mail["message"]: mail["user"] for mail in lived.mails("accepted") if mail["message"].startswith("r")}
    assert len(replies) > 20
    assert len(replies) == lived.outcomes("REPLY").count("ok")
    assert set(replies.values()) <= set(range(1, 7))
    assert {load.correspondent(1, sender) for sender in range(7, 11)} <= set(range(2, 7))


def test_other_recipients_are_blind_copies(tmp_path: Path) -> None:
    """Replies to all go to one person only; otherwise, mail would multiply."""
    crowd = OUTSIDE | {"new_mail": {"per_day": 10, "recipients": 8}}
    repliers = quiet(process_inbox={"per_day": 60}, after_reading={"reply_all": "100%"})
    lived = live(scenario_of(tmp_path, (repliers, 12), (crowd, 2), day="60s"), tmp_path)
    reached = recipients(lived)
    first = [users for message, users in reached.items() if message.startswith("n")]
    assert len(first) > 10
    assert {len(users) for users in first} == {8}
    assert {len(users) for message, users in reached.items() if message.startswith("r")} <= {1, 2}


@pytest.mark.parametrize("kind", [ServerRefused("554 DATA", "554 no"), ServerLost("closed")])
def test_a_failed_message_is_recorded_and_unsure(tmp_path: Path, kind: Exception) -> None:
    command = "SMTP DATA"
    lived = live(scenario_of(tmp_path, (READERS, 3), (OUTSIDE, 1)), tmp_path, fault=chosen({(4, command, 2): kind}))
    failed = [task for task in lived.tasks("INJECT") if task["outcome"] != "ok"]
    assert [(task["outcome"], task["error"]) for task in failed] == [(kind.outcome, kind.kind)]  # type: ignore[attr-defined]
    assert [mail["message"] for mail in lived.mails("unsure")] == ["n4.2"]


def test_a_refused_recipient_is_expected_only_if_unknown(tmp_path: Path) -> None:
    refusal = ServerRefused("550 RCPT", "550 5.1.1 unknown")
    scenario = scenario_of(tmp_path, (READERS, 3), (OUTSIDE, 1))
    lived = live(scenario, tmp_path, fault=chosen({(4, "SMTP RCPT", 0): refusal}))
    assert lived.outcomes("INJECT").count("refused") == 1
    assert lived.tape.told["outside"] == {"unknown_refused": 0, "unknown_accepted": 0}


def test_unknown_recipients_are_refused_and_counted(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, (READERS, 3), (OUTSIDE | {"unknown_recipients": "25%"}, 3))
    lived = live(scenario, tmp_path)
    unknown = lived.tape.told["outside"]["unknown_refused"]
    assert 10 < unknown < 60
    assert set(lived.outcomes("INJECT")) == {"ok"}
    assert len(recipients(lived)) - lived.outcomes("REPLY").count("ok") == len(lived.tasks("INJECT")) - unknown


def test_a_server_that_accepts_every_recipient_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = scenario_of(tmp_path, (READERS, 3), (OUTSIDE | {"unknown_recipients": "25%"}, 3))
    refused = live(scenario, tmp_path).tape.told["outside"]["unknown_refused"]
    known = InMemoryDriver.reached

    def accept_all(driver: InMemoryDriver, addresses: Sequence[str]) -> Sequence[int]:
        return known(driver, [address for address in addresses if not address.startswith("unknown")])

    monkeypatch.setattr(InMemoryDriver, "reached", accept_all)
    told = live(scenario, tmp_path).tape.told["outside"]
    assert told == {"unknown_refused": 0, "unknown_accepted": refused}


def test_in_stress_mode_senders_keep_to_the_plan(tmp_path: Path) -> None:
    run = {"day_length": "60s", "ramp_up": "1s", "warm_up": "0s", "window": "60s", "mode": "stress"}
    scenario = scenario_of(tmp_path, (READERS, 3), (OUTSIDE, 2), run=run)
    load = Workload(scenario)
    planned = sum(len(list(load.activities(sender))) for sender in load.senders)
    assert len(live(scenario, tmp_path).tasks("INJECT")) == planned > 40


# --- plans ---


def test_senders_change_nothing_about_users(tmp_path: Path) -> None:
    lists = {"lists": {"count": 2, "size": {"min": 2, "average": 2, "max": 2}}}
    alone = Workload(scenario_of(tmp_path / "alone", (EVERYTHING, 6), **lists))
    mixed = Workload(scenario_of(tmp_path / "mixed", (EVERYTHING, 6), (OUTSIDE, 4), **lists))
    users = range(1, 7)
    assert [*map(mixed.user_digest, users)] == [*map(alone.user_digest, users)]
    assert mixed.start_state_digest() == alone.start_state_digest()
    assert mixed.scenario.accounts_digest() == alone.scenario.accounts_digest()
    assert [*map(mixed.population.lists.members, range(2))] == [*map(alone.population.lists.members, range(2))]
    assert (mixed.scenario.users, mixed.scenario.senders) == (6, 4)
    assert mixed.scenario.digest() != alone.scenario.digest()
    assert plan_digest(mixed) != plan_digest(alone)


def test_addresses_are_in_a_domain_of_their_own(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, (READERS, 3), (OUTSIDE, 2))
    addresses = [scenario.any_account(number).address for number in range(1, 6)]
    assert [address.partition("@")[2] for address in addresses] == ["loadsim.test"] * 3 + [OUTSIDE_DOMAIN] * 2
    assert len(set(addresses)) == 5


@pytest.mark.parametrize("engines", [1, 2, 3, 7])
def test_each_sender_is_in_one_engine(tmp_path: Path, engines: int) -> None:
    load = Workload(scenario_of(tmp_path, (READERS, 30), (OUTSIDE, 20)))
    shares = [load.senders_of(assignment) for assignment in divide(30, engines)]
    assert sorted(number for share in shares for number in share) == list(load.senders)
    assert max(map(len, shares)) <= 20 / engines + 5


def test_three_engines_make_the_load_of_one(tmp_path: Path) -> None:
    """Each engine runs its own users and senders; together they submit the same messages to the same users."""
    scenario = scenario_of(tmp_path, (READERS, 9), (OUTSIDE | {"unknown_recipients": "10%"}, 6))
    load = Workload(scenario)

    def sent(senders: list[int]) -> Counter[tuple[str, int, int]]:
        lived = live(scenario, tmp_path, senders=senders)
        assert {task["user"] for task in lived.tasks("INJECT")} == set(senders)
        return Counter(
            (mail["message"], mail["user"], mail["sender"]) for mail in lived.mails("accepted") if mail["sender"] > 9
        )

    parts = [sent(load.senders_of(assignment)) for assignment in divide(9, 3)]
    assert sum(parts, Counter()) == sent(list(load.senders))


def test_a_plan_is_that_of_an_engine(tmp_path: Path) -> None:
    made = scenario_of(tmp_path, (EVERYTHING, 7), (OUTSIDE | {"unknown_recipients": "10%"}, 3))
    plan = make_plan(made)
    tally, stored_bytes = plan_by_engine(Workload(made))
    assert (plan.tally.tasks, plan.tally.traffic) == (tally.tasks, tally.traffic)
    assert plan.tally.hours == tally.hours
    assert plan.tally.load() == tally.load()
    assert plan.stored_bytes == stored_bytes
    assert sum(plan.tally.tasks["INJECT"]) == sum(plan.tally.tasks["INJECT"][8:]) > 80


def test_planners_divide_senders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = scenario_of(tmp_path, (READERS, 7), (OUTSIDE, 5))
    alone = make_plan(made)
    monkeypatch.setattr(plans, "USERS_OF_A_PROCESS", 2)
    monkeypatch.setattr(plans, "usable_cores", lambda: 3)
    together = make_plan(made)
    assert together.tally.tasks == alone.tally.tasks
    assert replace(together, tally=alone.tally) == alone
    assert together.digest == plan_digest(Workload(made))


def test_users_receive_mail_from_outside_in_the_plan(tmp_path: Path) -> None:
    """4 senders, 40 messages each, for 6 users."""
    plan = make_plan(scenario_of(tmp_path, (quiet(), 6), (OUTSIDE, 4)))
    assert plan.whole.per_user["received"] == pytest.approx(4 * 40 / 6, rel=0.3)
    assert plan.whole.per_user["sent"] == 0


def test_day_shape_applies(tmp_path: Path) -> None:
    """All messages are due in the first half of the day."""
    run = {"day_length": "600s", "ramp_up": "1s", "warm_up": "0s", "window": "600s", "day_shape": [1, 0]}
    load = Workload(scenario_of(tmp_path, (READERS, 3), (OUTSIDE, 3), run=run))
    due_us = [activity.due_us for sender in load.senders for activity in load.activities(sender)]
    assert len(due_us) > 80
    assert max(due_us) < 300_000_000


# --- results ---


def test_results_state_senders_apart_from_users(tmp_path: Path) -> None:
    """Senders count neither as users nor as users of a driver; their unknown recipients are in the figures."""
    scenario = scenario_of(tmp_path, (READERS, 6), (OUTSIDE | {"unknown_recipients": "20%"}, 4))
    header = {"users": 6, "engine_users": 6, "senders": 4, "window_s": [0.0, 600.0]}
    lived = live(scenario, tmp_path, header=header)
    figures = summarise([tmp_path / "0.tlog"]).figures
    assert (figures.users, figures.by_protocol["fake"].users) == (6, 6)
    assert figures.outside is not None
    assert figures.outside.senders == 4
    assert figures.outside.unknown_refused == lived.tape.told["outside"]["unknown_refused"] > 10
    assert figures.outside.unknown_accepted == 0
    inject = next(task for task in figures.tasks if task.task == "INJECT")
    assert (inject.hits, inject.weight) == (len(lived.tasks("INJECT")), 0)
    assert figures.delivery.undelivered_at_end == figures.delivery.duplicates == 0
    assert figures.delivery.accepted == len(lived.mails("accepted"))


def test_an_audit_finds_each_message_from_outside(tmp_path: Path) -> None:
    """One that vanishes from an Inbox is missed."""
    scenario = scenario_of(tmp_path, (quiet(), 6), (OUTSIDE, 4))
    header = {"users": 6, "engine_users": 6, "senders": 4}
    lived = live(scenario, tmp_path, header=header)
    faults, totals = audited(lived, tmp_path)
    assert (faults, totals.unknown) == ([], 0)
    assert totals.messages >= len(lived.mails("accepted")) > 100
    inbox = next(box._inbox for box in lived.driver.mailboxes.values() if box._inbox.messages)
    inbox.messages.popitem()
    (tmp_path / "audit.sqlite").unlink()
    faults, _ = audited(lived, tmp_path)
    assert [fault.code for _, fault in faults] == [Code.MAIL_LOST]


def test_a_log_has_no_sender_beyond_the_stated_ones(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, (quiet(), 6), (OUTSIDE, 4))
    header = {"users": 6, "engine_users": 6, "senders": 3, "hand": asdict(divide(6, 1)[0])}
    with pytest.raises(LogError, match="user: expected one of 9, found user 10"):
        live(scenario, tmp_path, header=header)


# --- scenarios ---


def stated(place: Path, *groups: dict[str, Any], **keys: Any) -> Scenario:
    (place / "shop.yaml").write_text(yaml.safe_dump({"name": "shop", **OUTSIDE, **keys.pop("profile", {})}))
    document = {"server": "embedded", "topology": [*groups], "run": {"day_length": "600s"}} | keys
    (place / "scenario.yaml").write_text(yaml.safe_dump(document))
    return load_scenario(str(place / "scenario.yaml"))


MEDIUM, SHOP = {"profile": "loadsim-5.5/medium", "users": 10}, {"profile": "shop.yaml", "users": 4}


@pytest.mark.parametrize(
    ("groups", "keys", "expected"),
    [
        ((SHOP, MEDIUM), {}, r"topology\[0\].profile: expected a profile of users with mailboxes, found profile shop"),
        ((SHOP,), {}, "topology: expected users with mailboxes, found only senders from outside"),
        ((MEDIUM, SHOP | {"protocol": "mapi"}), {}, r"topology\[1\].protocol: expected none, found one for senders"),
        ((MEDIUM, SHOP | {"program": "thunderbird"}), {}, r"topology\[1\].program: expected none, found one for"),
        ((MEDIUM, SHOP), {"domain": "outside.test"}, "domain: expected a domain other than that of outside senders"),
        ((MEDIUM, SHOP), {"profile": {"mailbox": True}}, "mailbox: expected no; users with a mailbox do not state it"),
        ((MEDIUM, SHOP), {"profile": {"browse": {"per_day": 1}}}, "browse: expected one of the keys name, mailbox, "),
        ((MEDIUM, SHOP), {"profile": {"unknown_recipients": 2}}, "unknown_recipients: expected a share such as 30%"),
        (
            (MEDIUM, SHOP),
            {"profile": {"new_mail": {"per_day": 1, "recipients": "many"}}},
            "new_mail.recipients: expected a whole number from 1, or all, found .many",
        ),
        ((MEDIUM, SHOP), {"profile": {"messages": None}}, "messages: expected messages or message_sizes, found"),
    ],
)
def test_bad_senders_are_refused_in_one_line(
    tmp_path: Path, groups: Sequence[dict[str, Any]], keys: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as refusal:
        stated(tmp_path, *groups, **keys)
    assert "\n" not in str(refusal.value)


def test_users_cannot_be_read_from_the_profile_of_senders() -> None:
    with pytest.raises(ConfigError, match="profile outside/bulk: expected users with mailboxes, found mailbox: no"):
        load_profile("outside/bulk")


def test_a_resolved_scenario_has_the_same_senders(tmp_path: Path) -> None:
    scenario = stated(tmp_path, MEDIUM, SHOP)
    (tmp_path / "again.yaml").write_text(scenario.to_yaml())
    again = load_scenario(str(tmp_path / "again.yaml"))
    assert (again.outside, again.digest()) == (scenario.outside, scenario.digest())


@pytest.mark.parametrize(("users", "senders"), [(10, 4), (5, 2), (20, 8), (1000, 400), (2, 1)])
def test_senders_scale_with_users(tmp_path: Path, users: int, senders: int) -> None:
    settings = resized(stated(tmp_path, MEDIUM, SHOP), users, 1000)
    scenario = load_scenario(str(tmp_path / "scenario.yaml"), settings)
    assert (scenario.users, scenario.senders) == (users, senders)


@pytest.mark.parametrize("name", ["outside/machine", "outside/bulk"])
def test_shipped_senders_state_their_sources(name: str) -> None:
    text = (shipped("profiles") / f"{name}.yaml").read_text(encoding="utf-8")
    assert "assumed" in text
    profile = load_any_profile(name)
    assert (profile.name, profile.mailbox) == (name, False)  # type: ignore[union-attr]


SITE = {"imap": {"host": "127.0.0.1"}, "smtp": {"host": "127.0.0.1"}}
ACCOUNTS = {"user": "user{index}", "password": "x"}


@pytest.mark.parametrize(
    ("section", "endpoint"),
    [
        ({}, Endpoint("127.0.0.1", 25, auth=False)),
        ({"protocol": "lmtp"}, Endpoint("127.0.0.1", 24, auth=False, lmtp=True)),
        (
            {"protocol": "lmtp", "port": 2424, "tls": "starttls", "connection": "kept", "tls_server_name": "mx.test"},
            Endpoint("127.0.0.1", 2424, "starttls", None, "kept", auth=False, tls_server_name="mx.test", lmtp=True),
        ),
        (
            {"tls": "implicit", "tls_verify": "insecure-none"},
            Endpoint("127.0.0.1", 465, "implicit", auth=False, tls_verify=False),
        ),
    ],
)
def test_senders_may_have_an_endpoint_of_their_own(tmp_path: Path, section: dict[str, Any], endpoint: Endpoint) -> None:
    """It survives the file of the run directory, needs no accounts, and is part of the load."""
    server = SITE | {"outside": {"host": "127.0.0.1", **section}}
    scenario = stated(tmp_path, MEDIUM, SHOP, server=server, accounts=ACCOUNTS)
    assert isinstance(scenario.server, Server)
    assert (scenario.server.outside, scenario.log_on) == (endpoint, None)
    assert services_of(scenario).outside == endpoint
    (tmp_path / "again.yaml").write_text(scenario.to_yaml().replace("********", "x"))
    again = load_scenario(str(tmp_path / "again.yaml"))
    assert (again.server, again.digest()) == (scenario.server, scenario.digest())
    without = stated(tmp_path, MEDIUM, SHOP, server=SITE, accounts=ACCOUNTS)
    assert without.digest() != scenario.digest()
    assert plan_digest(Workload(without)) == plan_digest(Workload(scenario))
    users_only = stated(tmp_path, MEDIUM, server=server, accounts=ACCOUNTS)
    assert services_of(users_only).outside is None


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"host": "mx.test"}, r"server.outside.host: expected a loopback address.*add allow_hosts: \['mx.test'\]"),
        ({"protocol": "uucp"}, "server.outside.protocol: expected smtp or lmtp, found 'uucp'"),
        ({"auth": True}, "server.outside.auth: expected one of the keys host, port, protocol, "),
        ({"ca_file": "ca.pem"}, "server.outside.tls: expected starttls or implicit with ca_file, found none"),
    ],
)
def test_a_bad_endpoint_of_senders_is_refused_in_one_line(
    tmp_path: Path, section: dict[str, Any], expected: str
) -> None:
    server = SITE | {"outside": {"host": "127.0.0.1", **section}}
    with pytest.raises(ConfigError, match=expected) as refusal:
        stated(tmp_path, MEDIUM, SHOP, server=server, accounts=ACCOUNTS)
    assert "\n" not in str(refusal.value)


def test_users_of_today_outside_receive_the_stated_shares() -> None:
    """A fifth from users, seven tenths from machines, a tenth in bulk: computed from the rates alone."""
    scenario = load_scenario("today")
    (users,) = scenario.topology
    published = users.profile.calculated
    assert published is not None
    assert (published.sent, published.received) == (20, 117)
    shares = [
        group.users
        * group.profile.new_mail.per_day
        * group.profile.new_mail.recipients
        * (1 - group.profile.unknown_recipients)
        / (users.users * published.received)
        for group in scenario.outside
    ]
    assert [group.profile.name for group in scenario.outside] == ["outside/machine", "outside/bulk"]
    assert shares == [pytest.approx(0.70, rel=0.02), pytest.approx(0.10, rel=0.02)]


@pytest.mark.slow
def test_the_plan_of_today_is_as_published() -> None:
    """With a quarter of the users, and senders in proportion."""
    settings = resized(load_scenario("today"), 250, 1000)
    planned = make_plan(load_scenario("today", settings)).by_profile["today-outside"]
    assert planned.calculated is not None
    assert planned.per_user["sent"] == pytest.approx(planned.calculated.sent, rel=0.02)
    assert planned.per_user["received"] == pytest.approx(planned.calculated.received, rel=0.02)


def test_a_notice_reaches_all_users_at_once(tmp_path: Path) -> None:
    """Each gets it once. The user whom its header names, and who gets replies to all, differs from notice to notice."""
    notice = OUTSIDE | {"new_mail": {"per_day": 6, "recipients": "all"}}
    scenario = scenario_of(tmp_path, (READERS, 60), (notice, 2))
    load, lived = Workload(scenario), live(scenario, tmp_path)
    planned = {f"n{sender}.{at.number}" for sender in load.senders for at in load.activities(sender)}
    reached = Counter((mail["message"], mail["user"]) for mail in lived.mails("seen") if mail["sender"] > 60)
    assert reached == Counter({(message, user): 1 for message in planned for user in range(1, 61)})
    assert len(planned) > 5
    arrivals = [mail["at_ns"] for mail in lived.mails("seen") if mail["sender"] > 60]
    assert len(set(arrivals)) < 3 * len(planned), "all users look at the same moment"
    profile = load.sender_profile(61)
    orders = [load.addressing(61, profile, NEW_MAIL, index).users for index in range(20)]
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(1, 61))}
    assert len({order[0] for order in orders}) > 10
    assert asdict(profile)["new_mail"]["recipients"] >= 60
