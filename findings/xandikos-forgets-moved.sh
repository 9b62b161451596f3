#!/bin/sh
# xandikos 0.4.10 (PyPI): calendar-query finds a moved occurrence of a recurring event a few times, then no longer.
# RFC 4791, section 9.9: it is found where it was moved to. Nothing is changed between the queries.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet xandikos==0.4.10
PYTHONPATH=$(dirname "$0") PYTHONDONTWRITEBYTECODE=1 "$work/venv/bin/python" - "$work" <<'EOF'
import itertools, sys
from caldav import expand, put, server

work = sys.argv[1]
command = ["serve", "--directory", f"{work}/dav", "--listen-address", "127.0.0.1", "--port", "{port}"]
command += ["--autocreate", "--defaults", "--current-user-principal", "/anna/"]
with server(f"{work}/venv/bin/xandikos", *command) as url:
    calendar = f"{url}/anna/calendars/calendar/"
    daily = "DTSTART:20260302T100000Z DTEND:20260302T110000Z RRULE:FREQ=DAILY;COUNT=5"
    put(calendar, "daily", daily, "RECURRENCE-ID:20260303T100000Z DTSTART:20260310T150000Z DTEND:20260310T160000Z")
    answers = [" ".join(expand(calendar, 10)) for _ in range(20)]
print("expected: 20 times daily 20260310T150000Z")
runs = [f"{len(list(run))} times {text or 'nothing'}" for text, run in itertools.groupby(answers)]
print("seen:    ", ", then ".join(runs))
sys.exit(answers[0] != "daily 20260310T150000Z" or answers[-1] != "")
EOF
