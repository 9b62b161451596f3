#!/bin/sh
# xandikos 0.4.10 (PyPI): free-busy-query reports an all-day event without DTEND as busy for no time at all.
# RFC 5545, section 3.6.1: it takes one day. RFC 4791, section 7.10: events that take time are busy.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet xandikos==0.4.10
PYTHONPATH=$(dirname "$0") PYTHONDONTWRITEBYTECODE=1 "$work/venv/bin/python" - "$work" <<'EOF'
import re, sys
from caldav import ask, put, server

BUSY = """<?xml version="1.0"?><C:free-busy-query xmlns:C="urn:ietf:params:xml:ns:caldav">
<C:time-range start="20260302T000000Z" end="20260306T000000Z"/></C:free-busy-query>"""

work = sys.argv[1]
command = ["serve", "--directory", f"{work}/dav", "--listen-address", "127.0.0.1", "--port", "{port}"]
command += ["--autocreate", "--defaults", "--current-user-principal", "/anna/"]
with server(f"{work}/venv/bin/xandikos", *command) as url:
    calendar = f"{url}/anna/calendars/calendar/"
    put(calendar, "trip", "DTSTART;VALUE=DATE:20260303")
    put(calendar, "fair", "DTSTART;VALUE=DATE:20260304 DTEND;VALUE=DATE:20260305")
    busy = sorted(re.findall(r"^FREEBUSY[^:\n]*:(\S+)", ask("REPORT", calendar, BUSY), re.MULTILINE))
day = "20260304T000000Z/20260305T000000Z"
print("expected:", ["20260303T000000Z/20260304T000000Z", day])
print("seen:    ", busy)
sys.exit(busy != ["20260303T000000Z/P0D", day])
EOF
