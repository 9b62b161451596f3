#!/bin/sh
# hoodiecrow-imap 2.1.0 (npm): a session that once was idle receives EXPUNGE while it has no command in progress. RFC
# 3501, section 7.4.1: no EXPUNGE then, as the numbers of the client's next command would name other messages.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
npm install --silent --no-audit --no-fund --prefix "$work" hoodiecrow-imap@2.1.0
here=$(cd "$(dirname "$0")" && pwd)
cd "$work"
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - <<'EOF'
import sys
from hoodiecrow import Session, hoodiecrow

with hoodiecrow() as port:
    idle, busy = Session(port), Session(port)
    idle.ask("IDLE", "+")
    idle.connection.sendall(b"DONE\r\n")
    idle.until("a OK")
    busy.ask(r"STORE 1 +FLAGS (\Deleted)")
    busy.ask("EXPUNGE")
    try:
        unasked = idle.until("* 1 EXISTS")
    except TimeoutError:
        unasked = []
    asked = idle.ask("NOOP") if unasked else []
print("expected: EXPUNGE 1 in the answer to NOOP")
print(f"seen:     {unasked} before NOOP; {asked}")
sys.exit(unasked != ["* 1 EXPUNGE", "* 1 EXISTS"] or asked != ["a OK Completed"])
EOF
