#!/bin/sh
# GreenMail 2.1.8: an idling session receives two EXPUNGE for one expunged message, at once and after DONE. RFC 3501,
# section 7.4.1: each EXPUNGE decrements the later numbers, so that the client drops two messages.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
mvn --quiet --batch-mode -Dmaven.repo.local="$work/repository" dependency:copy \
    -Dartifact=com.icegreen:greenmail-standalone:2.1.8 -DoutputDirectory="$work"
PYTHONPATH=$(dirname "$0") PYTHONDONTWRITEBYTECODE=1 python3 - "$work/greenmail-standalone-2.1.8.jar" <<'EOF'
import socket, sys
from greenmail import greenmail, log_on

message = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n"
with greenmail() as port:
    imap = log_on(port)
    for _ in range(5):
        imap.append("INBOX", None, None, message)
    imap.select()
    with socket.create_connection(("127.0.0.1", port), 10) as idling, idling.makefile("rb") as lines:
        def until(prefix, *, send=b""):
            idling.sendall(send)
            received = []
            for line in lines:
                received.append(line)
                if line.startswith(prefix):
                    break
            return received

        until(b"* OK")
        until(b"a ", send=b"a LOGIN anna secret\r\n")
        until(b"b ", send=b"b SELECT INBOX\r\n")
        until(b"+", send=b"c IDLE\r\n")
        imap.store("2", "+FLAGS", r"\Deleted")
        imap.expunge()
        announced = until(b"* 2 EXPUNGE")
        announced += until(b"c ", send=b"DONE\r\n")
    left = imap.select()[1][0].decode()
    imap.logout()
expunged = announced.count(b"* 2 EXPUNGE\r\n")
print("expected: EXPUNGE once, as 4 of 5 messages are left")
print(f"seen:     EXPUNGE {expunged} times, {left} messages are left")
sys.exit((expunged, left) != (2, "4"))
EOF
