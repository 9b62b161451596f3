#!/bin/sh
# Postfix 3.10 and Dovecot 2.4.1 of Debian 13, with their own limits: Postfix opens 20 LMTP connections to a
# destination, Dovecot answers 451 to the eleventh delivery to one user. Of a burst of mail to one user, a part is
# deferred for five minutes.
set -eu
. "$(dirname "$0")/debian.inc"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian trixie "$work/debian" postfix==3.10.13-0+deb13u1 \
    dovecot-imapd==1:2.4.1+dfsg1-6+deb13u7 dovecot-lmtpd==1:2.4.1+dfsg1-6+deb13u7
cp "$(dirname "$0")/dovecot.conf" "$work/debian/etc/dovecot/"
inside "$work/debian" <<'EOF'
chown mail: /srv
dovecot
cat >/etc/postfix/main.cf <<'CONFIGURATION'
compatibility_level = 3.10
inet_interfaces = 127.0.0.1
maillog_file = /var/log/mail.log
mydestination =
myhostname = mail.example.test
default_transport = error:
virtual_mailbox_domains = example.test
virtual_transport = lmtp:inet:127.0.0.1:24
CONFIGURATION
[ -e /etc/postfix/master.cf ] || cp /usr/share/postfix/master.cf.dist /etc/postfix/master.cf
postfix start >/dev/null 2>&1
await 25
await 24
smtp-source -s 20 -m 400 -f bert@example.test -t anna@example.test 127.0.0.1:25
for _ in $(seq 300); do
    [ "$(grep -c status= /var/log/mail.log)" -ge 400 ] && break
    sleep 0.2
done
sent=$(grep -c status=sent /var/log/mail.log)
refused=$(grep -c 'status=deferred.* 451 .*Too many concurrent deliveries' /var/log/mail.log || true)
echo "limits:   $(postconf lmtp_destination_concurrency_limit default_destination_concurrency_limit | tr '\n' ' ')" \
    "$(doveconf lmtp_user_concurrency_limit)"
echo "expected: 400 of 400 messages sent"
echo "seen:     $sent sent, $refused deferred by 451"
[ "$refused" -gt 0 ]
EOF
