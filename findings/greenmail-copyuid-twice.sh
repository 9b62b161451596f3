#!/bin/sh
# GreenMail 2.1.8: COPYUID names the first of several messages twice, as in "1,1:2 1,1:2" for two messages. RFC 4315,
# section 3: its sets have the UIDs of the messages that were copied, and of their copies.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
mvn --quiet --batch-mode -Dmaven.repo.local="$work/repository" dependency:copy \
    -Dartifact=com.icegreen:greenmail-standalone:2.1.8 -DoutputDirectory="$work"
PYTHONPATH=$(dirname "$0") PYTHONDONTWRITEBYTECODE=1 python3 - "$work/greenmail-standalone-2.1.8.jar" <<'EOF'
import sys
from greenmail import greenmail, log_on

message = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n"
with greenmail() as port:
    imap = log_on(port)
    imap.create("Archive")
    for _ in range(3):
        imap.append("INBOX", None, None, message)
    imap.select()
    seen = []
    for command, messages in (("COPY", "1"), ("COPY", "1:2"), ("MOVE", "1:3")):
        imap.xatom(command, messages, "Archive")
        seen.append(imap.response("COPYUID")[1][0].decode().split(" ", 1)[1])
    left = imap.select()[1][0].decode()
    copies = imap.select("Archive")[1][0].decode()
    imap.logout()
print("expected: COPY 1: 1 1; COPY 1:2: 1:2 2:3; MOVE 1:3: 1:3 4:6; 6 copies, 0 messages are left")
print(f"seen:     COPY 1: {seen[0]}; COPY 1:2: {seen[1]}; MOVE 1:3: {seen[2]}; {copies} copies, {left} messages are left")
sys.exit((seen, copies, left) != (["1 1", "1,1:2 2,2:3", "1,1:3 4,4:6"], "6", "0"))
EOF
