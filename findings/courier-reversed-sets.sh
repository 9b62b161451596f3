#!/bin/sh
# Courier-IMAP 6.0.5: a sequence set with the larger number first is empty; SEARCH * finds nothing; COPY 3:1 answers OK
# and copies nothing. RFC 3501, section 9 (seq-range): 2:4 and 4:2 are equivalent.
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
for _ in range(3):
    imap.append("INBOX", None, None, b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n")
imap.create("INBOX.Copies")
imap.select()
seen = [imap.search(None, key)[1][0].decode() for key in ("1:3", "3:1", "UID 3:1", "*")]
copy = imap.copy("3:1", "INBOX.Copies")[0]
copies = imap.select("INBOX.Copies")[1][0].decode()
imap.logout()
print("expected: SEARCH 1:3, 3:1, UID 3:1, *: ['1 2 3', '1 2 3', '1 2 3', '3']; COPY 3:1: OK, 3 copies")
print(f"seen:     {seen}; COPY 3:1: {copy}, {copies} copies")
sys.exit((seen, copy, copies) != (["1 2 3", "", "", ""], "OK", "0"))
PYTHON
EOF
