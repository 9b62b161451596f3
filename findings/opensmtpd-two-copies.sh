#!/bin/sh
# OpenSMTPD 7.9: a message to a user and to a list of which this user is a member is delivered to the user twice.
# Exim, and Postfix with virtual aliases, deliver one copy of a message to a mailbox, however many addresses lead there.
set -eu
. "$(dirname "$0")/debian.sh"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian sid "$work/debian" opensmtpd=7.9.0p0-1
inside "$work/debian" <<'EOF'
for user in anna bert; do useradd --create-home $user; done
cat >/etc/smtpd.conf <<'CONFIGURATION'
table aliases { "team" = "anna, bert" }
listen on 127.0.0.1 port 25 hostname mail.example.test
action "local" mbox alias <aliases>
match from any for domain "example.test" action "local"
CONFIGURATION
smtpd -d >smtpd.log 2>&1 &
await 25
python3 - <<'PYTHON'
import smtplib

with smtplib.SMTP("127.0.0.1") as smtp:
    message = "Message-ID: <1@example.test>\r\nSubject: note\r\n\r\ntext\r\n"
    smtp.sendmail("carl@example.test", ["anna@example.test", "team@example.test"], message)
PYTHON
for _ in $(seq 100); do
    [ "$(grep -c result=Ok smtpd.log)" -ge 3 ] && break
    sleep 0.1
done
anna=$(grep -c '^Message-ID: <1@example.test>' /var/mail/anna) bert=$(grep -c '^Message-ID: <1@' /var/mail/bert)
echo "expected: 1 copy for anna, 1 for bert"
echo "seen:     $anna copies for anna, $bert for bert"
[ "$anna $bert" = "2 1" ]
EOF
