#!/bin/sh
# pymap 0.36.7 (PyPI): BODYSTRUCTURE counts the header into a text's octets and lines. RFC 3501, section 7.4.2: they
# are those of the body, which FETCH BODY[1] returns.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pymap==0.36.7 passlib==1.7.4
cd "$work"
"$work/venv/bin/python" - <<'EOF'
import imaplib, re, socket, subprocess, sys, time

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
server = subprocess.Popen(
    ["venv/bin/pymap", "--host", "127.0.0.1", "--port", str(port), "--no-tls", "dict",
     "--demo-data", "--demo-user", "anna", "--demo-password", "secret"]
)
try:
    for _ in range(100):
        try:
            imap = imaplib.IMAP4("127.0.0.1", port)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    imap.login("anna", "secret")
    message = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\n12345\r\n67890\r\n"
    imap.append("INBOX", None, None, message)
    number = imap.select("INBOX")[1][0].decode()
    structure = imap.fetch(number, "(BODYSTRUCTURE)")[1][0]
    text = imap.fetch(number, "(BODY.PEEK[1])")[1][0][1]
    imap.logout()
finally:
    server.terminate()
    server.wait()
octets, lines = map(int, re.search(rb'"7BIT" (\d+) (\d+)', structure).groups())
expected = (len(text), text.count(b"\n"))
print("expected: %d octets and %d lines, as BODY[1] has" % expected)
print("seen:     %d octets and %d lines in BODYSTRUCTURE" % (octets, lines))
sys.exit((octets, lines) != (len(message), message.count(b"\n")))
EOF
