#!/bin/sh
# GNU Mailutils 3.21, imap4d: the answer to EXPUNGE has "* 1 EXPUNGED".
# RFC 3501, section 7.4.1: the response is EXPUNGE.
set -eu
. "$(dirname "$0")/debian.inc"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian sid "$work/debian" mailutils-imap4d==1:3.21-2
cp "$(dirname "$0")/imap4d.inc" "$work/debian/root/"
inside "$work/debian" <<'EOF'
. ./imap4d.inc
python3 - <<'PYTHON'
import imaplib, sys

imap = imaplib.IMAP4("127.0.0.1")
imap.login("anna", "secret")
imap.select()
imap.store("1", "+FLAGS", r"\Deleted")
expunged = imap.expunge()
unknown = imap.response("EXPUNGED")[1]
imap.logout()
print("expected: EXPUNGE 1; Python's imaplib returns ('OK', [b'1'])")
print(f"seen:     EXPUNGED {unknown}; Python's imaplib returns {expunged}")
sys.exit((expunged, unknown) != (("OK", [None]), [b"1"]))
PYTHON
EOF
