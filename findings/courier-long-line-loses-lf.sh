#!/bin/sh
# Courier-IMAP 6.0.5: a message with a line of 1,024 octets or more is returned without its last LF, one octet less
# than its RFC822.SIZE. RFC 2045, section 2.9: binary content has no limit of line length.
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
import imaplib, re, sys

imap = imaplib.IMAP4("127.0.0.1")
imap.login("anna", "secret")
seen = []
for length in (1023, 1024):
    head = b"From: bert@example.test\r\nMIME-Version: 1.0\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    message = head + b"x" * length + b"\r\nlast line\r\n"
    imap.append("INBOX", None, None, message)
    number = imap.select()[1][0].decode()
    answer, returned = imap.fetch(number, "(RFC822.SIZE BODY.PEEK[])")[1][0]
    size = int(re.search(rb"SIZE (\d+)", answer)[1])
    seen.append((size - len(message), len(returned) - len(message), returned[-3:]))
    print(f"line of {length}: expected RFC822.SIZE and octets returned {len(message)}, seen {size} and {len(returned)}")
imap.logout()
sys.exit(seen != [(0, 0, b"e\r\n"), (0, -1, b"ne\r")])
PYTHON
EOF
