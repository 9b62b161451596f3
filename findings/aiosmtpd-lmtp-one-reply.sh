#!/bin/sh
# aiosmtpd 1.4.6 (PyPI): its LMTP server answers the end of DATA with one reply, however many recipients it accepted.
# RFC 2033, section 4.2: one reply for each accepted recipient. A client such as Postfix waits for the others.
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
    recipients = [b"RCPT TO:<%s@example.test>\r\n" % name for name in (b"anna", b"bert", b"carl")]
    message = b"Subject: note\r\n\r\ntext\r\n.\r\n"
    writer.write(b"LHLO mail.example.test\r\nMAIL FROM:<dora@example.test>\r\n")
    writer.writelines((*recipients, b"DATA\r\n", message, b"QUIT\r\n"))
    replies = (await reader.read()).decode().splitlines()
    after = replies[next(i for i, line in enumerate(replies) if line.startswith("354")) + 1 :]
    return [line for line in after if not line.startswith("221")]

replies = asyncio.run(converse())
print("expected: 3 replies to the message, for 3 recipients")
print(f"seen:     {len(replies)}: {replies}")
sys.exit(len(replies) != 1)
EOF
