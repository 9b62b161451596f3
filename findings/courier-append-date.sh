#!/bin/sh
# Courier-IMAP 6.0.5: APPEND is refused if the day of its date is a space and a digit.
# RFC 3501, section 9 (date-day-fixed): a day is a space and a digit, or two digits.
set -eu
. "$(dirname "$0")/debian.inc"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian sid "$work/debian" courier-imap==6.0.5+2.0.6-1
cp "$(dirname "$0")/courier.inc" "$work/debian/root/"
inside "$work/debian" <<'EOF'
. ./courier.inc
python3 - <<'PYTHON'
import imaplib, sys

imap = imaplib.IMAP4("127.0.0.1")
imap.login("anna", "secret")
message = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n"
seen = {}
for date in ('" 5-Feb-2026 12:00:00 +0000"', '"05-Feb-2026 12:00:00 +0000"', '"15-Feb-2026 12:00:00 +0000"'):
    seen[date] = imap.append("INBOX", None, date, message)[0]
imap.logout()
print("expected: OK to APPEND with each of these dates")
print("seen:    ", seen)
sys.exit(list(seen.values()) != ["NO", "OK", "OK"])
PYTHON
EOF
