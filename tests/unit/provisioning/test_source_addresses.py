"""Where connections start: from the scenario's source addresses, user by user, and from enough of them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imap_script import PATIENCE_S, Ear
from mailservers import StartEmbedded, numbered_accounts

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.processes.event_loop import fastest_loop
from loadsim.protocols.connect import bound_socket, connected_socket
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.preflight import check_ports, check_sources, too_few_ports
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.sections import Client

ACCOUNTS = numbered_accounts(3)
SOURCES = ("127.0.0.2", "127.0.0.3")
LOOPS = {"asyncio": None, "fastest": fastest_loop()}


class Relay:
    """Passes connections on to a server, and keeps where they came from."""

    def __init__(self, behind: Endpoint) -> None:
        self.behind = behind
        self.origins: list[str] = []
        self.passing: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.passing.add(task)
        self.origins.append(writer.get_extra_info("peername")[0])
        inner_reader, inner_writer = await asyncio.open_connection(self.behind.host, self.behind.port)
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        self.passing.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # one end is as good as another
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def relayed(behind: Endpoint, host: str) -> AsyncIterator[tuple[Relay, Endpoint]]:
    relay = Relay(behind)
    server = await asyncio.start_server(relay.accept, host, 0)
    try:
        yield relay, replace(behind, host=host, port=server.sockets[0].getsockname()[1])
    finally:
        server.close()
        if relay.passing:
            await asyncio.wait(relay.passing, timeout=PATIENCE_S)


async def visit(protocol: str, services: Services, account: Account) -> None:
    """Log on and off, and in between do as before a message is submitted."""
    session = open_driver(protocol, services).session(account, Ear())
    async with asyncio.timeout(PATIENCE_S):
        await session.mailbox.log_on()
        await session.submission.check()
        await session.mailbox.log_off()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("protocol", ["imap", "aioimaplib"])
def test_users_connect_from_each_source_address_in_turn(
    embedded_server: StartEmbedded, protocol: str, loop: str
) -> None:
    """User i starts from address i modulo their number, with each driver of mailboxes, and for submission."""
    services = embedded_server(ACCOUNTS).services

    async def live() -> None:
        async with relayed(services.imap, "127.0.0.1") as (imap, at), relayed(services.smtp, "127.0.0.1") as (smtp, to):
            own = Client(source_addresses=SOURCES).using(replace(services, imap=at, smtp=to))
            for account in ACCOUNTS:
                await visit(protocol, own, account)
            assert [account.number for account in ACCOUNTS] == [1, 2, 3]
            assert imap.origins == smtp.origins == ["127.0.0.3", "127.0.0.2", "127.0.0.3"]

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(live())


@pytest.mark.parametrize("loop", LOOPS)
def test_ipv6_source_addresses_are_used(embedded_server: StartEmbedded, loop: str) -> None:
    services = embedded_server(ACCOUNTS).services

    async def live() -> None:
        async with relayed(services.imap, "::1") as (imap, at), relayed(services.smtp, "::1") as (smtp, to):
            own = Client(source_addresses=("::1",)).using(replace(services, imap=at, smtp=to))
            await visit("imap", own, ACCOUNTS[0])
            assert imap.origins == smtp.origins == ["::1"]

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(live())


@pytest.mark.parametrize(("source", "host"), [("127.0.0.2", "127.0.0.1"), ("::1", "::1")])
def test_bound_sockets_get_their_port_on_connect(source: str, host: str) -> None:
    """Bound sockets hold no port; a port then serves as many connections as there are destinations."""
    with bound_socket(source) as own, socket.create_server((host, 0), family=own.family) as listening:
        assert own.getsockname()[1] == 0
        own.setblocking(True)
        own.connect(listening.getsockname())
        assert own.getsockname()[0] == source
        assert own.getsockname()[1] > 0


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("sources", [(), SOURCES])
def test_nagles_algorithm_is_off(sources: tuple[str, ...], loop: str) -> None:
    """Nagle's algorithm is off with source addresses as without: it would add up to 40 ms to a command."""

    async def live() -> bool:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            endpoint = Endpoint("127.0.0.1", listening.getsockname()[1], sources=sources)
            with await connected_socket(endpoint, endpoint.source(1)) as made:
                return bool(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(live()) is True


def scenario(place: Path, users: int = 4, protocol: str = "imap", sources: str = "[]", host: str = "") -> Scenario:
    """A scenario with these users and source addresses, on the embedded server or on one at `host`."""
    server = f"{{imap: {{host: '{host}'}}, smtp: {{host: '{host}'}}}}" if host else "embedded"
    path = place / "small.yaml"
    path.write_text(
        f"server: {server}\naccounts: {{user: 'u{{index}}', password: p}}\nclient: {{source_addresses: {sources}}}\n"
        f"topology: [{{profile: loadsim-5.5/light, users: {users}, protocol: {protocol}}}]\n"
    )
    return load_scenario(str(path))


def problem(found: Scenario, check: Callable[[Scenario], None] = check_sources) -> str:
    with pytest.raises(ConfigError) as refusal:
        check(found)
    line = str(refusal.value)
    assert "\n" not in line
    return line


def test_addresses_of_this_machine_are_accepted(tmp_path: Path) -> None:
    """Every one of 127.0.0.0/8 is one on Linux; ::1 is for a server that is reached by IP version 6, or by name."""
    check_sources(scenario(tmp_path, sources="[127.0.0.1]"))
    check_sources(scenario(tmp_path, sources="['::1']", host="::1"))
    check_sources(scenario(tmp_path, sources="['::1']", host="localhost"))


def test_addresses_of_other_machines_are_refused(tmp_path: Path) -> None:
    """An address reserved for documentation is not this machine's (RFC 5737, RFC 3849)."""
    line = problem(scenario(tmp_path, sources="[127.0.0.1, 192.0.2.1]"))
    assert line.startswith(
        "small: client.source_addresses: expected addresses of this machine, found 192.0.2.1: Cannot assign"
    )
    line = problem(scenario(tmp_path, sources="['2001:db8::1']", host="::1"))
    assert line.startswith("small: client.source_addresses: expected addresses of this machine, found 2001:db8::1: ")


@pytest.mark.parametrize(("source", "host"), [("::1", "127.0.0.1"), ("127.0.0.2", "::1")])
def test_addresses_that_cannot_reach_the_server_are_refused(tmp_path: Path, source: str, host: str) -> None:
    """IP versions do not mix."""
    assert problem(scenario(tmp_path, sources=f"['{source}']", host=host)) == (
        "small: client.source_addresses: expected addresses of the same IP version as the server's"
        f" {host}, found {source}"
    )


@pytest.mark.slow
def test_too_many_users_for_the_ports_are_refused(tmp_path: Path) -> None:
    """There is no machine with more than 65,535 ports, and users of the fake module need none."""
    line = problem(scenario(tmp_path, users=70_000), check_ports)
    assert line.startswith("small: client.source_addresses: expected at least ")
    assert "addresses for 70000 users, found none: ip_local_port_range has " in line
    check_ports(scenario(tmp_path, users=70_000, protocol="fake"))


@settings(max_examples=40)
@given(users=st.integers(1, 200_000), sources=st.integers(1, 40), ports=st.integers(1, 65_536))
def test_ports_suffice_when_no_address_has_more_users(users: int, sources: int, ports: int) -> None:
    """Users take the addresses in turn, and none has more users than ports."""
    on_the_fullest = max(len(range(first, users + 1, sources)) for first in range(1, sources + 1))
    assert (too_few_ports(users, sources, ports) is None) == (on_the_fullest <= ports)


@pytest.mark.slow
def test_the_resolved_scenario_has_the_section(tmp_path: Path) -> None:
    """A run directory's scenario has the addresses, and is read as the same again."""
    before = scenario(tmp_path, sources="[127.0.0.2, 127.0.0.3]")
    assert before.client.source_addresses == SOURCES
    again = tmp_path / "again.yaml"
    again.write_text(before.to_yaml())
    assert load_scenario(str(again)).client == before.client
    assert before.digest() == scenario(tmp_path).digest()  # where users come from is no load
