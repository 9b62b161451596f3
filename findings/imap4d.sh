# Starts GNU imap4d for anna, whose password is "secret", and who has one message.
useradd --create-home anna
echo anna:secret | chpasswd
cat >/var/mail/anna <<'MAILBOX'
From bert@example.test Mon Mar  2 10:00:00 2026
From: bert@example.test
Date: Mon, 2 Mar 2026 10:00:00 +0000

text

MAILBOX
chown anna:mail /var/mail/anna
cat >imap4d.conf <<'CONFIGURATION'
mailbox { mailbox-pattern "mbox:/var/mail/${user}"; }
server 127.0.0.1:143 { single-process no; }
mode daemon;
tls-mode no;
preauth { mode none; }
CONFIGURATION
imap4d --foreground --daemon=5 --config-file imap4d.conf >imap4d.log 2>&1 &
await 143
