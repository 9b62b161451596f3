#!/bin/sh
# GNU Mailutils 3.21, imap4d: the OK that ends AUTHENTICATE ends with LF alone; Python's imaplib drops the session. RFC
# 3501, section 2.2: all lines end with CRLF. The OK of LOGIN does.
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
import base64, imaplib, socket, sys

with socket.create_connection(("127.0.0.1", 143), 10) as connection, connection.makefile("rb") as lines:
    lines.readline()
    connection.sendall(b"a LOGIN anna secret\r\n")
    login = lines.readline()
with socket.create_connection(("127.0.0.1", 143), 10) as connection, connection.makefile("rb") as lines:
    lines.readline()
    connection.sendall(b"a AUTHENTICATE PLAIN\r\n")
    lines.readline()
    connection.sendall(base64.b64encode(b"\0anna\0secret") + b"\r\n")
    authenticate = lines.readline()
imap = imaplib.IMAP4("127.0.0.1")
try:
    library = imap.authenticate("PLAIN", lambda _: b"\0anna\0secret")[0]
except imaplib.IMAP4.abort as error:
    library = str(error)
print("expected: both answers end with CRLF; imaplib: OK")
print(f"seen:     {login!r}, {authenticate!r}; imaplib: {library[:80]}")
sys.exit((login[-2:], authenticate[-1:]) != (b"\r\n", b"\n") or authenticate[-2:] == b"\r\n" or library == "OK")
PYTHON
EOF
