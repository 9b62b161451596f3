#!/bin/sh
# GreenMail 2.1.8: while a POP3 session is open, another client's EXPUNGE renumbers its messages, so that DELE removes a
# message that the session has never looked at. RFC 1939, section 4: numbers are assigned when the maildrop is opened.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
mvn --quiet --batch-mode -Dmaven.repo.local="$work/repository" dependency:copy \
    -Dartifact=com.icegreen:greenmail-standalone:2.1.8 -DoutputDirectory="$work"
PYTHONPATH=$(dirname "$0") PYTHONDONTWRITEBYTECODE=1 python3 - "$work/greenmail-standalone-2.1.8.jar" <<'EOF'
import poplib
import sys
from greenmail import greenmail, log_on

with greenmail("pop3") as (imap_port, pop_port):
    imap = log_on(imap_port)
    for number in (1, 2, 3):
        imap.append("INBOX", None, None, f"Subject: {number}\r\n\r\ntext\r\n".encode())
    pop = poplib.POP3("127.0.0.1", pop_port, timeout=60)
    pop.user("anna")
    pop.pass_("secret")
    before = pop.uidl(2).decode()
    imap.select()
    imap.store("1", "+FLAGS", "\\Deleted")
    imap.expunge()
    after = pop.uidl(2).decode()
    pop.dele(2)
    pop.quit()
    imap.noop()
    left = [part[1].decode().strip() for part in imap.fetch("1:*", "(BODY.PEEK[HEADER.FIELDS (SUBJECT)])")[1][::2]]
    imap.logout()
print(f"expected: UIDL 2: {before} before and after; DELE 2 leaves Subject: 3")
print(f"seen:     UIDL 2: {before}, then {after}; DELE 2 leaves {', '.join(left)}")
sys.exit((before, after, left) != ("+OK 2 2", "+OK 2 3", ["Subject: 2"]))
EOF
