#!/bin/sh
# Dovecot 2.4.5: each delivered message gets a keyword, $HasAttachment or $HasNoAttachment, so that its file goes into
# Maildir's cur/ at once. Dovecot's page "Upgrading Dovecot CE from 2.4 to 2.4.x": this needs a dovecot_config_version
# of 2.4.2; by 2.4.3, Maildir has it no longer. Here, it is 2.4.1; the release 2.4.1 delivers into new/.
set -eu
. "$(dirname "$0")/debian.inc"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian sid "$work/debian" dovecot-imapd==1:2.4.5+dfsg1-4 dovecot-lmtpd==1:2.4.5+dfsg1-4 mblaze==1.1-1
cp "$(dirname "$0")/dovecot.conf" "$work/debian/etc/dovecot/"
inside "$work/debian" <<'EOF'
chown mail: /srv
dovecot
await 24
python3 - <<'PYTHON'
import smtplib

message = "From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n"
with smtplib.LMTP("127.0.0.1", 24) as lmtp:
    lmtp.sendmail("bert@example.test", ["anna"], message)
PYTHON
cd /srv/mail/anna/Maildir
new=$(ls new | wc -l) cur=$(ls cur | wc -l) unseen=$(minc . | wc -l)
echo "expected: 1 file in new, 0 in cur, 1 message that mblaze's minc takes in"
echo "seen:     $new in new, $cur in cur, $unseen taken in; keywords: $(cat dovecot-keywords | tr '\n' ' ')"
[ "$new $cur $unseen" = "0 1 0" ] && grep -q HasNoAttachment dovecot-keywords
EOF
