#!/bin/sh
# hoodiecrow-imap 2.1.0 (npm): FETCH 1:* returns messages that no EXISTS announced; EXISTS comes with a later command.
# RFC 3501, section 5.2: a size that changed is sent if it is observed during a command.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
npm install --silent --no-audit --no-fund --prefix "$work" hoodiecrow-imap@2.1.0
here=$(cd "$(dirname "$0")" && pwd)
cd "$work"
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - <<'EOF'
import sys
from hoodiecrow import MESSAGE, Session, hoodiecrow

with hoodiecrow() as port:
    reader, writer = Session(port), Session(port)
    for _ in range(2):
        writer.ask(f"APPEND INBOX {{{len(MESSAGE)}}}", "+")
        writer.connection.sendall(MESSAGE.encode() + b"\r\n")
        writer.until("a OK")
    fetched = reader.ask("FETCH 1:* (UID)")
    later = reader.ask("NOOP")
print("expected: FETCH of 4 messages, and EXISTS 4, in the answer to FETCH")
print(f"seen:     {fetched}; {later} to NOOP")
numbers = [f"* {number} FETCH (UID {number})" for number in range(1, 5)]
sys.exit(
    fetched != [*numbers, "a OK FETCH Completed"] or later != ["* 3 EXISTS", "* 4 EXISTS", "a OK Completed"]
)
EOF
