"""Mail that passes real Postfix's filters and alias lists is counted as Dovecot stored it, and as it was sent."""

import smtplib
import time
from collections import Counter
from pathlib import Path

import pytest
from mail_filters import filters
from mailservers import DOMAIN, numbered_accounts, short_directory
from patience import PATIENCE_S

from loadsim.characterise.reading import read_logs
from loadsim.servers.command import run
from loadsim.servers.dovecot_postfix import DovecotPostfix, start_dovecot_postfix
from loadsim.servers.private import free_port

pytestmark = pytest.mark.nightly(part="runs")

USERS = 5
LOCAL = "lists.test"
MEMBERS = {"staff": (1, 2), "team": (3, 4, 5)}


def configured(server: DovecotPostfix, back: int, proxy: int, telling: int, silent: int) -> tuple[int, int, int]:
    """Add listeners before each filter, the one to which filters return mail, and a domain with aliases of local(8)."""
    conf, before = server.postfix.conf, (free_port(), free_port(), free_port())
    own = "\n  -o smtpd_sasl_auth_enable=no\n  -o smtpd_relay_restrictions=permit_mynetworks,reject"
    options = (
        f"smtpd_proxy_filter=127.0.0.1:{proxy}",
        *(f"content_filter=scan:[127.0.0.1]:{at}" for at in (telling, silent)),
    )
    # Clients are local here: Postfix would give each message an id.
    listeners = [f"127.0.0.1:{back} inet n - n - - smtpd{own}"]
    listeners += [
        f"127.0.0.1:{port} inet n - n - - smtpd\n  -o {option}\n  -o local_header_rewrite_clients="
        for port, option in zip(before, options, strict=True)
    ]
    with (conf / "master.cf").open("a") as file:
        file.write("\n".join([*listeners, "scan unix - - n - 10 smtp", "local unix - n n - - local", ""]))
    aliases = conf / "local"
    aliases.write_text(
        "".join(f"{name}: {', '.join(f'user{at}@{DOMAIN}' for at in ats)}\n" for name, ats in MEMBERS.items())
    )
    run("postalias", ("-c", str(conf), str(aliases)))
    main = (conf / "main.cf").read_text().replace("mydestination =", f"mydestination = {LOCAL}")
    alias_maps = f"alias_maps = $default_database_type:{aliases}\nlocal_transport = local"
    (conf / "main.cf").write_text(main.replace("local_transport = error:no local mail here", alias_maps))
    run("postfix", ("-c", str(conf), "reload"))
    return before


def send(port: int, user: int, to: list[str], *, message_id: bool = True) -> None:
    """Send as a user who authenticates, and has another address in the envelope."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            client = smtplib.SMTP("127.0.0.1", port)
            break
        except (ConnectionRefusedError, smtplib.SMTPServerDisconnected):  # Postfix is reloading
            assert time.monotonic() < deadline
    with client:
        client.login(f"user{user}", f"secret-of-{user}")
        head = f"Message-ID: <{port}.{user}.{len(to)}@x>\r\n" if message_id else ""
        client.sendmail(f"another-{user}@{DOMAIN}", to, f"{head}Subject: x\r\n\r\nx\r\n")


def test_mail_through_filters_and_alias_lists_counts_once(tmp_path: Path) -> None:
    back, sent, recipients = free_port(), Counter[int](), 0
    address = [f"user{user}@{DOMAIN}" for user in range(USERS + 1)]
    with (
        short_directory() as directory,
        start_dovecot_postfix(numbered_accounts(USERS), {}, directory) as server,
        filters(back) as (proxy, telling, silent),
    ):
        listening = configured(server, back, proxy, telling, silent)
        messages = [
            (listening[0], 1, address[2:4], True),
            (listening[0], 1, address[2:3], False),
            (listening[1], 2, address[3:5], True),
            (listening[1], 3, address[4:6], False),
            (listening[2], 4, address[1:3], True),
            (server.services.endpoint("smtp").port, 5, [address[1], f"staff@{LOCAL}", f"team@{LOCAL}"], True),
        ]
        for port, user, to, message_id in messages:
            send(port, user, to, message_id=message_id)
            sent[user] += 1
            recipients += sum(len(MEMBERS.get(name.partition("@")[0], "x")) for name in to)
        deadline = time.monotonic() + PATIENCE_S
        while server.queue():
            assert time.monotonic() < deadline
        stored = server.doveadm("-f", "tab", "mailbox", "status", "-A", "messages", "INBOX").splitlines()[1:]
        logs = (server.postfix.log, server.layout.dovecot_log)
        reading = read_logs(logs)
    received = {
        int(line.split("@")[0].split("\t")[0].removeprefix("user")): int(line.split("\t")[-1]) for line in stored
    }
    found = sorted((one.sent, one.received, one.stored) for one in reading.traffic.mailboxes.values())
    assert found == sorted((sent[user], received[user], received[user]) for user in range(1, USERS + 1))
    assert (reading.traffic.counts["messages"], reading.traffic.recipients) == (len(messages), recipients)
    assert reading.unknown.lines == 0
