#!/bin/sh
# Courier's IMAP 6.0.5: a text is sent in two parts, with Nagle's algorithm on. The second waits until the client's system
# acknowledges the first, which Linux delays by 40 ms. RFC 9293, section 3.7.4: applications can turn the algorithm off.
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
import imaplib, socket, sys, time


def fetched_ms(at_once):
    """The least of 20 times from a FETCH to its answer's last byte."""
    times = []
    for _ in range(20):
        began = time.perf_counter()
        imap.send(b"x FETCH 1 BODY.PEEK[TEXT]\r\n")
        if at_once:
            imap.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        while not imap.readline().startswith(b"x OK"):
            pass
        times.append(1000 * (time.perf_counter() - began))
    return round(min(times), 1)


imap = imaplib.IMAP4("127.0.0.1")
imap.login("anna", "secret")
header = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\n"
imap.append("INBOX", None, None, header + 50 * (70 * b"x" + b"\r\n"))
imap.select()
delayed_ms, at_once_ms = fetched_ms(False), fetched_ms(True)
print("expected: a text of 4 kB takes as long if the client acknowledges each segment at once (TCP_QUICKACK) or does not")
print(f"seen:     {at_once_ms} ms if it does, {delayed_ms} ms if not")
sys.exit(not at_once_ms < 20 < 35 < delayed_ms)
PYTHON
EOF
