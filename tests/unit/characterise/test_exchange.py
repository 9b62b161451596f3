"""Exchange's message tracking logs: a message has events on several servers, and is counted once."""

from collections import Counter
from pathlib import Path

import pytest

from loadsim.characterise.exchange import ExchangeLog
from loadsim.characterise.reading import LogReading, read_logs
from loadsim.characterise.traffic import Traffic
from loadsim.errors import ConfigError

FIELDS = (
    "date-time,client-ip,client-hostname,server-ip,server-hostname,source-context,connector-id,source,event-id,"
    "internal-message-id,message-id,network-message-id,recipient-address,recipient-status,total-bytes,recipient-count,"
    "related-recipient-address,reference,message-subject,sender-address,return-path,message-info,directionality"
)
HEADER = f"#Software: Microsoft Exchange Server\n#Version: 15.02\n#Log-type: Message Tracking Log\n#Fields: {FIELDS}\n"


def event(
    second: int, source: str, name: str, message: str, to: str, sender: str, size: int | str = 4000, count: int = 1
) -> str:
    context = '"MDB:1, Mailbox:2, ""x"""'
    head = f"2026-11-30T04:00:{second:02}.123Z,192.0.2.1,c,192.0.2.2,ex1,{context},conn,{source},{name},7"
    return f'{head},<{message}@x>,n,{to},,{size},{count},,,"Re: a, b",{sender},{sender},,Originating\n'


ANN, BOB, EVE = (f"{name}@example.test" for name in ("ann", "bob", "eve"))

HUB = [
    event(1, "STOREDRIVER", "RECEIVE", "1", f"{BOB};staff@example.test", ANN, count=2),
    event(1, "ROUTING", "EXPAND", "1", f"{ANN};{EVE}", ANN, count=2),
    event(2, "STOREDRIVER", "DELIVER", "1", f"{BOB};{ANN};{EVE}", ANN, count=3),
    event(3, "SMTP", "RECEIVE", "2", EVE, "carol@example.org", size=9000),
    event(4, "STOREDRIVER", "DELIVER", "2", EVE, "carol@example.org", size=9000),
    event(5, "SMTP", "RECEIVE", "3", "gone@example.org", BOB),
    event(6, "SMTP", "SEND", "3", "gone@example.org", BOB),
    event(7, "ROUTING", "FAIL", "3", "gone@example.org", BOB),
    event(8, "SMTP", "RECEIVE", "4", "HealthMailbox1@example.test", "HealthMailbox2@example.test"),
]
SUBMISSION = [event(0, "STOREDRIVER", "SUBMIT", "3", "gone@example.org", BOB, size="")]


def read(tmp_path: Path, **files: list[str]) -> LogReading:
    for name, events in files.items():
        (tmp_path / name).write_text("\ufeff" * (name == "hub") + HEADER + "".join(events), "utf-8")
    return read_logs([tmp_path / name for name in files])


def test_messages_are_counted_once_over_all_servers(tmp_path: Path) -> None:
    reading = read(tmp_path, hub=HUB, submission=SUBMISSION)
    traffic = reading.traffic
    found = Counter((each.sent, each.received) for each in traffic.mailboxes.values())
    assert found == {(1, 1): 2, (0, 2): 1}
    assert (traffic.recipients, traffic.most_recipients, traffic.inside) == (4, 3, 3)
    assert (traffic.sizes.messages, traffic.sizes.total_bytes) == (3, 4000 + 9000 + 4000)
    assert {name: traffic.counts[name] for name in ("bounced", "probes", "authenticated")} == {
        "bounced": 1,
        "probes": 1,
        "authenticated": 2,
    }
    assert (reading.unknown.lines, set(traffic.software)) == (0, {"Exchange"})


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_list_is_expanded_once_in_any_order_of_servers(tmp_path: Path, first: str) -> None:
    """The next server receives the members, in the same second."""
    everybody = f"{ANN};{BOB};{EVE}"
    hub = [
        event(1, "STOREDRIVER", "RECEIVE", "1", "staff@example.test", ANN),
        event(1, "ROUTING", "EXPAND", "1", everybody, ANN, count=3),
    ]
    store = [
        event(1, "SMTP", "RECEIVE", "1", everybody, ANN, count=3),
        event(1, "STOREDRIVER", "DELIVER", "1", everybody, ANN, count=3),
    ]
    traffic = read(tmp_path, **({"a": hub, "b": store} if first == "a" else {"a": store, "b": hub})).traffic
    assert (traffic.recipients, traffic.most_recipients, traffic.inside) == (3, 3, 3)


def test_a_bounce_that_exchange_writes_is_received(tmp_path: Path) -> None:
    sender = "MicrosoftExchange329e71ec88ae4615bbc36ab6ce41109e@example.test"
    bounce = [event(9, "DSN", "DSN", "5", BOB, sender), event(9, "STOREDRIVER", "DELIVER", "5", BOB, sender)]
    traffic = read(tmp_path, hub=[*HUB, *bounce]).traffic
    assert Counter((each.sent, each.received) for each in traffic.mailboxes.values()) == {
        (1, 2): 1,
        (1, 1): 1,
        (0, 2): 1,
    }
    assert (traffic.sizes.messages, traffic.counts["begun_before"]) == (4, 0)


def test_a_torn_event_is_unknown(tmp_path: Path) -> None:
    torn = [HUB[0][: len(HUB[0]) * 2 // 3] + "\n", HUB[0].replace(",7,", ",7,7,"), "2026-11-30T25:00:00.1Z,x\n", '"\n']
    assert read(tmp_path, hub=[*HUB, *torn]).unknown.lines == len(torn)


def test_a_header_without_a_needed_field_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(HEADER.replace("sender-address", "x") + HUB[0])
    with pytest.raises(ConfigError, match="#Fields: expected the field sender-address, found 23 fields without it"):
        read_logs([tmp_path / "log"])


def test_events_without_a_header_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("#Software: Microsoft Exchange Server\n" + HUB[0])
    with pytest.raises(ConfigError, match="expected the line #Fields: before the first event"):
        read_logs([tmp_path / "log"])


def test_open_messages_are_bounded() -> None:
    traffic = Traffic()
    log = ExchangeLog(traffic, most_open=5)
    log.line("f", None, HEADER.splitlines()[-1])
    for number in range(50):
        assert log.line("f", number, event(1, "STOREDRIVER", "RECEIVE", str(number), BOB, ANN).strip())
    assert traffic.counts["messages"] == 45
    log.end()
    assert traffic.counts["messages"] == 50
