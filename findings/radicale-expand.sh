#!/bin/sh
# Radicale 3.9.0 (PyPI): expand omits an all-day event without DTEND and the dates of RDATE, and adds an occurrence
# that was moved to another day. RFC 4791, section 9.6.5: it returns the occurrences in the range.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet Radicale==3.9.0
PYTHONPATH=$(dirname "$0") PYTHONDONTWRITEBYTECODE=1 "$work/venv/bin/python" - "$work" <<'EOF'
import sys
from caldav import ask, expand, put, server

work = sys.argv[1]
options = ["--server-hosts", "127.0.0.1:{port}", "--storage-filesystem-folder", work, "--auth-type", "none"]
with server(f"{work}/venv/bin/radicale", *options) as url:
    calendar = f"{url}/anna/calendar/"
    ask("MKCALENDAR", calendar)
    put(calendar, "allday", "DTSTART;VALUE=DATE:20260312")
    put(calendar, "dates", "DTSTART:20260316T100000Z DTEND:20260316T110000Z RDATE:20260318T100000Z")
    moved = "RECURRENCE-ID:20260303T100000Z DTSTART:20260310T150000Z DTEND:20260310T160000Z"
    put(calendar, "daily", "DTSTART:20260302T100000Z DTEND:20260302T110000Z RRULE:FREQ=DAILY;COUNT=5", moved)
    seen = {day: expand(calendar, day) for day in (3, 10, 12, 18)}
moved = ["daily 20260310T150000Z"]
print("expected:", {3: [], 10: moved, 12: ["allday 20260312"], 18: ["dates 20260318T100000Z"]})
print("seen:    ", seen)
sys.exit(seen != {3: moved, 10: moved, 12: [], 18: []})
EOF
