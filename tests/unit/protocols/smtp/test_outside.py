"""Submission by outside senders, who never authenticate, against aiosmtpd."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from smtp_peers import LIMIT_S, Accepting, Observed, aiosmtpd, authenticator, endpoint
from virtual_runs import contents, quiet, scenario_of

from loadsim.errors import ConfigError, ServerRefused
from loadsim.model.message_tag import OUTSIDE_DOMAIN
from loadsim.model.ports import DriverOfSenders, Endpoint, Services, Submission
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.preflight import check_outside
from loadsim.scenario.workload import NEW_MAIL, Workload
from loadsim.users.host import SessionCounts
from loadsim.users.outbox import Outbox

LIAR = {"mailbox": False, "new_mail": {"per_day": 10}, "messages": {"ups1K": 1}, "unknown_recipients": "50%"}
AUTH = {"authenticator": authenticator, "auth_require_tls": False}
NOWHERE = Endpoint("127.0.0.1", 1)


class Mails:
    def __init__(self) -> None:
        self.mails: list[tuple[Any, ...]] = []

    def mail(self, record: tuple[Any, ...]) -> None:
        self.mails.append(record)


def workload_in(place: Path) -> Workload:
    return Workload(scenario_of(place, (quiet(), 3), (LIAR, 1)))


def on_server(load: Workload) -> Workload:
    """The workload with users by IMAP, who are not checked."""
    groups = tuple(replace(group, protocol="imap") for group in load.scenario.topology)
    return Workload(replace(load.scenario, topology=groups))


def host_of(load: Workload) -> Any:
    return SimpleNamespace(
        workload=load,
        contents=contents(),
        run_id="run-1",
        recorder=Mails(),
        counts=SessionCounts(),
        now_ns=lambda: 1,
        wall_clock_us=lambda: 1_767_225_600_000_000,
        mail_accepted=lambda *_: None,
    )


def outbox_at(port: int, host: Any) -> Outbox:
    driver = cast(DriverOfSenders, open_driver("imap", services_at(port)))
    return Outbox(host, 4, driver.outside(host.workload.scenario.sender_account(4), Observed()))


def services_at(port: int) -> Services:
    return Services(NOWHERE, endpoint(port), command_limit_s=LIMIT_S)


@pytest.mark.parametrize("offers", [True, False])
async def test_senders_do_not_authenticate(tmp_path: Path, offers: bool) -> None:
    handler, ear = Accepting(), Observed()
    sender = workload_in(tmp_path).scenario.sender_account(4)
    async with aiosmtpd(handler, **(AUTH if offers else {})) as (port, _):
        driver = cast(DriverOfSenders, open_driver("imap", services_at(port)))
        submission = driver.outside(sender, ear)
        await submission.send(sender.address, ["user1@loadsim.test"], b"Subject: x\r\n\r\nx\r\n")
        await submission.close()
    assert [(of, to) for of, to, _ in handler.delivered] == [(f"sender1@{OUTSIDE_DOMAIN}", ["user1@loadsim.test"])]
    assert "AUTH" not in ear.names


@pytest.mark.parametrize("pattern", ["{index}.pem", "{user}.pem"])
def test_senders_have_no_certificates(tmp_path: Path, pattern: str) -> None:
    """Those that the scenario states are the users'."""
    smtp = Endpoint("127.0.0.1", 1, tls="implicit", client_certificate=str(tmp_path / pattern))
    driver = open_driver("imap", Services(NOWHERE, smtp))
    cast(DriverOfSenders, driver).outside(workload_in(tmp_path).scenario.sender_account(4), Observed())
    with pytest.raises(ConfigError):
        driver.session(workload_in(tmp_path).scenario.account(3), Observed())


async def test_a_server_that_accepts_everything_is_found_out(tmp_path: Path) -> None:
    """No message to an unknown recipient counts as accepted for a user."""
    load, handler = workload_in(tmp_path), Accepting()
    host = host_of(load)
    async with aiosmtpd(handler) as (port, _):
        outbox = outbox_at(port, host)
        for index in range(12):
            outgoing = outbox.compose(index)
            await outbox.submit(outgoing)
            outbox.accepted(outgoing, 1)
        await outbox.close()
    unknown = [load.unknown_recipient(4, index) for index in range(12)]
    to_unknown = [to for _, to, _ in handler.delivered if to[0].startswith("unknown-")]
    assert to_unknown == [[address] for address in unknown if address]
    assert (host.counts.outside.unknown_refused, host.counts.outside.unknown_accepted) == (0, len(to_unknown))
    assert 0 < len(to_unknown) < 12
    assert len(host.recorder.mails) == 12 - len(to_unknown)


@pytest.mark.parametrize(
    ("answer", "is_expected"), [("550 5.1.1 no such user", True), ("450 4.2.1 later", False), ("554 5.7.1 no", True)]
)
async def test_only_a_permanent_refusal_of_an_unknown_recipient_is_expected(
    tmp_path: Path, answer: str, is_expected: bool
) -> None:
    load = workload_in(tmp_path)
    index = next(index for index in range(20) if load.unknown_recipient(4, index))
    handler = Accepting({load.unknown_recipient(4, index) or "": answer})
    host = host_of(load)
    async with aiosmtpd(handler) as (port, _):
        outbox = outbox_at(port, host)
        if is_expected:
            await outbox.submit(outbox.compose(index))
        else:
            with pytest.raises(ServerRefused):
                await outbox.submit(outbox.compose(index))
        await outbox.close()
    assert host.counts.outside.unknown_refused == is_expected
    assert handler.delivered == []


@pytest.mark.parametrize(
    ("refused", "answer"),
    [
        (f"sender1@{OUTSIDE_DOMAIN}", "530 5.7.0 Authentication required"),
        ("user00001@loadsim.test", "554 5.7.1 Relay access denied"),
    ],
)
async def test_a_port_that_requires_a_log_on_is_refused_before_the_run(
    tmp_path: Path, refused: str, answer: str
) -> None:
    """Port 587, for instance."""
    refusal = rf"server.smtp: expected to accept mail for .* from outside, .* answered: .*{answer}.*25\?"
    load = on_server(workload_in(tmp_path))
    async with aiosmtpd(Accepting({refused: answer})) as (port, _):
        with pytest.raises(ConfigError, match=refusal):
            await check_outside(load, services_at(port))


async def test_a_temporary_refusal_is_named_before_the_run(tmp_path: Path) -> None:
    """It would fail each sender's first messages."""
    refusal = r"450 4.2.0 Greylisted; this is temporary, but outside senders do not retry"
    load = on_server(workload_in(tmp_path))
    async with aiosmtpd(Accepting({"user00001@loadsim.test": "450 4.2.0 Greylisted"})) as (port, _):
        with pytest.raises(ConfigError, match=refusal):
            await check_outside(load, services_at(port))


async def test_an_endpoint_of_their_own_gets_the_senders_mail(tmp_path: Path) -> None:
    """Users' submissions go elsewhere; the endpoint's own key is named in errors."""
    handler, load = Accepting(), on_server(workload_in(tmp_path))
    async with aiosmtpd(handler) as (port, _):
        services = replace(services_at(1), outside=replace(endpoint(port), auth=False))
        await check_outside(load, services)
        sender = load.scenario.sender_account(4)
        submission = cast(DriverOfSenders, open_driver("imap", services)).outside(sender, Observed())
        await submission.send(sender.address, ["user1@loadsim.test"], b"Subject: x\r\n\r\nx\r\n")
        await submission.close()
    assert len(handler.delivered) == 1
    async with aiosmtpd(Accepting({"user00001@loadsim.test": "554 5.7.1 no"})) as (port, _):
        with pytest.raises(ConfigError, match=r"server\.outside: expected to accept mail .* is server\.outside\.port"):
            await check_outside(load, replace(services, outside=endpoint(port)))


async def test_a_port_that_takes_mail_from_outside_is_accepted_without_a_message(tmp_path: Path) -> None:
    handler = Accepting()
    async with aiosmtpd(handler, **AUTH) as (port, _):
        await check_outside(on_server(workload_in(tmp_path)), services_at(port))
    assert handler.connections == 1
    assert handler.delivered == []


@pytest.mark.parametrize(("list_chance", "answered"), [(0.0, 5), (1.0, 5), (1.0, 6)])
async def test_a_message_accepted_for_some_recipients_is_recorded_for_each(
    tmp_path: Path, list_chance: float, answered: int
) -> None:
    """LMTP answers for each: individuals 2 and 3 are refused; the list's reply, if any, is the last."""
    crowd = LIAR | {"unknown_recipients": 0, "new_mail": {"per_day": 10, "recipients": 5, "list_chance": list_chance}}
    lists = {"count": 2, "size": {"min": 2, "average": 2, "max": 2}}
    load = Workload(scenario_of(tmp_path, (quiet(), 9), (crowd, 1), lists=lists))
    sender = load.senders[0]
    failure = ServerRefused("452 DATA", "452 full")
    reached: list[tuple[str, int]] = []

    class Partly:
        async def send(self, of: str, recipients: Sequence[str], message: bytes) -> None:
            failure.accepted = {of: 7 + at for at, of in enumerate(recipients[:answered]) if at not in (1, 2)}
            raise failure

    host = host_of(load)
    host.mail_accepted = lambda message, user, _: reached.append((message, user))
    outbox = Outbox(host, sender, cast(Submission, Partly()))
    outgoing = outbox.compose(0)
    with pytest.raises(ServerRefused):
        await outbox.submit(outgoing)
    to = load.addressing(sender, load.sender_profile(sender), NEW_MAIL, 0)
    certain = {to.users[0], *to.users[3:]}
    members = set(load.population.lists.members(to.list_index)) if to.list_index is not None else set()
    if answered == 6:
        certain |= members - set(to.users)
    found = {(event, user) for event, _, user, *_ in host.recorder.mails}
    stamps = {user: at_ns for event, _, user, _, at_ns, _ in host.recorder.mails if event == "accepted"}
    individuals = {user: 7 + at for at, user in enumerate(to.users) if user in certain}
    assert stamps == dict.fromkeys(certain, 12) | individuals  # a list is the sixth recipient
    everybody = set(to.users) | members
    assert found == {("accepted" if user in certain else "unsure", user) for user in everybody}
    assert {user for _, user in reached} == certain
