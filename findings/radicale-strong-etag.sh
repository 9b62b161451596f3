#!/bin/sh
# Radicale 3.9.0 (PyPI): PUT stores another text than was sent, and answers with its strong ETag: a client takes its own
# text for what the server has. RFC 4791, section 5.3.4: then a strong ETag MUST NOT be returned.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet Radicale==3.9.0
PYTHONPATH=$(dirname "$0") PYTHONDONTWRITEBYTECODE=1 "$work/venv/bin/python" - "$work" <<'EOF'
import sys
from caldav import ask, exchange, put, server

work = sys.argv[1]
options = ["--server-hosts", "127.0.0.1:{port}", "--storage-filesystem-folder", work, "--auth-type", "none"]
with server(f"{work}/venv/bin/radicale", *options) as url:
    calendar = f"{url}/anna/calendar/"
    ask("MKCALENDAR", calendar)
    sent, answer = put(calendar, "review", "DTSTART:20260316T100000Z DTEND:20260316T110000Z SUMMARY:Review")
    header, stored = exchange("GET", f"{calendar}review.ics")
tag = answer["ETag"]
print("sent:    ", " ".join(sent.split()))
print("stored:  ", " ".join(stored.split()))
print("expected: no strong ETag, or the same text")
print("seen:     ETag of PUT", tag, "and of GET", header["ETag"])
sys.exit(stored == sent or not tag or tag.startswith("W/") or tag != header["ETag"])
EOF
