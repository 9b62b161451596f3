#!/bin/sh
# Dovecot 2.4.1: the %u of Dovecot 2.3 in mail_home is two letters of a path: all users have the home /srv/mail/%u.
# Neither doveconf nor the start nor a log-on mentions it.
set -eu
. "$(dirname "$0")/debian.sh"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian trixie "$work/debian" dovecot-imapd=1:2.4.1+dfsg1-6+deb13u7 dovecot-lmtpd=1:2.4.1+dfsg1-6+deb13u7
sed 's/%{user}/%u/' "$(dirname "$0")/dovecot.conf" >"$work/debian/etc/dovecot/dovecot.conf"
inside "$work/debian" <<'EOF'
chown mail: /srv
mkdir -m 777 /srv/mail
said=$(doveconf -n 2>&1 >/dev/null)
dovecot
await 24
python3 - <<'PYTHON'
import smtplib

for user in ("anna", "bert"):
    with smtplib.LMTP("127.0.0.1", 24) as lmtp:
        lmtp.sendmail("carl@example.test", [user], "Subject: note\r\n\r\ntext\r\n")
PYTHON
homes=$(ls /srv/mail)
warnings=$(grep -c -E 'Warning|Error|Fatal' dovecot.log || true)
echo "expected: homes anna and bert, or a refusal of %u"
echo "seen:     home $homes; doveconf's complaints: ${said:-none}; warnings and errors logged: $warnings"
[ "$homes" = "%u" ] && [ -z "$said" ] && [ "$warnings" = 0 ]
EOF
