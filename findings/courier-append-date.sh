#!/bin/sh
# Courier-IMAP 6.0.5: APPEND with a date of the 1st to 9th of a month is refused, in the form that RFC 3501 requires.
# RFC 3501, section 9 (date-day-fixed): a day of one digit is written with a space before it. Cyrus returns such dates.
set -eu
. "$(dirname "$0")/debian.sh"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian sid "$work/debian" courier-imap=6.0.5+2.0.6-1
cp "$(dirname "$0")/courier.sh" "$work/debian/root/"
inside "$work/debian" <<'EOF'
. ./courier.sh
python3 - <<'PYTHON'
import imaplib, sys

imap = imaplib.IMAP4("127.0.0.1")
imap.login("anna", "secret")
seen = {}
for date in ('" 5-Feb-2026 12:00:00 +0000"', '"05-Feb-2026 12:00:00 +0000"', '"15-Feb-2026 12:00:00 +0000"'):
    seen[date] = imap.append("INBOX", None, date, b"From: bert@example.test\r\nSubject: note\r\n\r\ntext\r\n")[0]
imap.logout()
print("expected: OK to APPEND with each of these dates")
print("seen:    ", seen)
sys.exit(list(seen.values()) != ["NO", "OK", "OK"])
PYTHON
EOF
