#!/bin/sh
# Dovecot 2.4.5 (2.4.1, too): under NOT, two sizes are merged as if NOT were not there.
# RFC 3501, section 6.4.4: keys in parentheses match together, OR matches either, NOT matches the others.
set -eu
. "$(dirname "$0")/debian.inc"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian sid "$work/debian" dovecot-imapd==1:2.4.5+dfsg1-4 dovecot-lmtpd==1:2.4.5+dfsg1-4
cp "$(dirname "$0")/dovecot.conf" "$work/debian/etc/dovecot/"
inside "$work/debian" <<'EOF'
chown mail: /srv
dovecot
await 143
python3 - <<'PYTHON'
import imaplib, sys

imap = imaplib.IMAP4("127.0.0.1")
imap.login("anna", "secret")
imap.select()
for size in (50, 500, 5000):
    head = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\n"
    imap.append("INBOX", None, None, head + b"x" * 70 + (b"\r\n" + b"x" * 70) * (size // 72) + b"\r\n")
imap.select()
print("sizes:", *(text.decode() for text in imap.fetch("1:*", "(RFC822.SIZE)")[1]))
expected = {
    "NOT (LARGER 300 LARGER 3000)": "1 2",
    "NOT OR LARGER 300 LARGER 3000": "1",
    "NOT (SMALLER 300 SMALLER 3000)": "2 3",
    "NOT OR SMALLER 300 SMALLER 3000": "3",
}
found = {key: imap.search(None, key)[1][0].decode() for key in expected}
imap.logout()
print("expected:", expected)
print("seen:    ", found)
sys.exit(list(found.values()) != ["1", "1 2", "3", "2 3"])
PYTHON
EOF
