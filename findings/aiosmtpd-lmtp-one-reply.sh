#!/bin/sh
# aiosmtpd 1.4.6 (PyPI): its LMTP server answers the end of DATA with one reply, however many recipients it accepted.
# RFC 2033, section 4.2: one reply for each accepted recipient.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet aiosmtpd==1.4.6
"$work/venv/bin/python" - <<'EOF'
import asyncio, sys
from aiosmtpd.handlers import Sink
from aiosmtpd.lmtp import LMTP


async def converse():
    server = await asyncio.get_running_loop().create_server(lambda: LMTP(Sink()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())

    async def say(text):
        writer.write(text + b"\r\n")
        while (line := (await reader.readline()).decode())[3:4] == "-":
            pass
        return line.strip()

    await reader.readline()
    recipients = [b"RCPT TO:<%s@example.test>" % name for name in (b"anna", b"bert", b"carl")]
    for command in (b"LHLO mail.example.test", b"MAIL FROM:<dora@example.test>", *recipients, b"DATA"):
        await say(command)
    first = await say(b"From: dora@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n.")
    writer.write(b"QUIT\r\n")
    others = (await reader.read()).decode().splitlines()
    return [first, *(line for line in others if not line.startswith("221"))]

replies = asyncio.run(converse())
print("expected: 3 replies to the message, for 3 recipients")
print(f"seen:     {len(replies)}: {replies}")
sys.exit(len(replies) != 1)
EOF
