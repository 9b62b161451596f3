#!/bin/sh
# Dovecot 2.4.5 (2.4.1, too): SEARCH OR UNSEEN UNANSWERED omits messages before the first unseen one.
# RFC 3501, section 6.4.4: a message matches OR if it matches either key.
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
message = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n"
for flags in (r"\Seen", r"\Seen \Answered", None):
    imap.append("INBOX", flags, None, message)
imap.select()
found = {key: imap.search(None, key)[1][0].decode() for key in ("UNSEEN", "UNANSWERED", "OR UNSEEN UNANSWERED")}
imap.logout()
print("expected: UNSEEN 3, UNANSWERED 1 3, OR UNSEEN UNANSWERED 1 3")
print("seen:    ", ", ".join(" ".join(pair) for pair in found.items()))
sys.exit(list(found.values()) != ["3", "1 3", "3"])
PYTHON
EOF
