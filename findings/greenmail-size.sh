#!/bin/sh
# GreenMail 2.1.8: RFC822.SIZE is the size of the text without its last line end and without the header.
# RFC 3501, section 2.3.4: it is the number of octets in the message, as FETCH BODY[] returns it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
mvn --quiet --batch-mode -Dmaven.repo.local="$work/repository" dependency:copy \
    -Dartifact=com.icegreen:greenmail-standalone:2.1.8 -DoutputDirectory="$work"
PYTHONPATH=$(dirname "$0") PYTHONDONTWRITEBYTECODE=1 python3 - "$work/greenmail-standalone-2.1.8.jar" <<'EOF'
import re, sys
from greenmail import greenmail, log_on

stored = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\nline 1\r\nline 2\r\n"
with greenmail() as port:
    imap = log_on(port)
    imap.append("INBOX", None, None, stored)
    imap.select()
    answer, message = imap.fetch("1", "(RFC822.SIZE BODY.PEEK[])")[1][0]
    imap.logout()
size = int(re.search(rb"SIZE (\d+)", answer)[1])
print("expected: RFC822.SIZE", len(message))
print("seen:     RFC822.SIZE", size)
sys.exit(size != len(b"line 1\r\nline 2"))
EOF
