#!/bin/sh
# GreenMail 2.1.8: a message that is appended with a date between 12:00 and 13:00 gets one twelve hours earlier.
# RFC 3501, section 6.3.11: the date of APPEND is the message's internal date.
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
seen = {}
with greenmail() as port:
    imap = log_on(port)
    for hour in ("11:30:00", "12:00:00", "12:30:00", "13:00:00"):
        date = f'"15-Feb-2026 {hour} +0000"'
        imap.append("INBOX", None, date, message)
        number = imap.select()[1][0].decode()
        seen[hour] = imap.fetch(number, "(INTERNALDATE)")[1][0].split(b'"')[1].decode()[12:20]
    imap.logout()
print("expected:", {hour: hour for hour in seen})
print("seen:    ", seen)
sys.exit(list(seen.values()) != ["11:30:00", "00:00:00", "00:30:00", "13:00:00"])
EOF
