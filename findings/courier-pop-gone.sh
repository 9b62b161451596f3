#!/bin/sh
# Courier's POP3 2.0.6 with its IMAP 6.0.5: a POP3 session loses each message whose flags an IMAP session changes,
# until its next log-on. RFC 1939, section 4: a lock keeps messages from being modified or removed until it ends.
set -eu
. "$(dirname "$0")/debian.inc"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian sid "$work/debian" courier-imap==6.0.5+2.0.6-1 courier-pop==2.0.6-1
cp "$(dirname "$0")/courier.inc" "$work/debian/root/"
inside "$work/debian" <<'EOF'
. ./courier.inc
await 110
python3 - <<'PYTHON'
import imaplib, poplib, sys


def retrieve(pop):
    try:
        return pop.retr(1)[0].decode()
    except poplib.error_proto as error:
        return error.args[0].decode()


def log_on():
    pop = poplib.POP3("127.0.0.1")
    pop.user("anna")
    pop.pass_("secret")
    return pop


imap = imaplib.IMAP4("127.0.0.1")
imap.login("anna", "secret")
imap.append("INBOX", None, None, b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n")
imap.select()
pop = log_on()
before = retrieve(pop)
imap.store("1", "+FLAGS", r"\Flagged")
after = retrieve(pop)
later = retrieve(log_on())
print("expected: +OK to RETR 1 before and after STORE, and in another session")
print(f"seen:     {before} | {after} | {later}")
sys.exit([text[:3] for text in (before, after, later)] != ["+OK", "-ER", "+OK"])
PYTHON
EOF
