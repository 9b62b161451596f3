#!/bin/sh
# pymap 0.36.7 (PyPI), Maildir backend: COPY answers OK and stores a message without content.
# RFC 3501, section 6.4.7: the copy is the message, with its flags and internal date.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pymap==0.36.7 passlib==1.7.4
cd "$work"
"$work/venv/bin/python" - <<'EOF'
import imaplib, socket, subprocess, sys, time
from pathlib import Path
from passlib.hash import pbkdf2_sha256

Path("mail").mkdir()
Path("mail/pymap-etc-passwd").write_text("anna:x::::anna:\n")
Path("mail/pymap-etc-shadow").write_text(f"anna:{pbkdf2_sha256.hash('secret')}:::::::\n")
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
server = subprocess.Popen(
    ["venv/bin/pymap", "--host", "127.0.0.1", "--port", str(port), "--no-tls", "maildir", "mail"]
)
try:
    for _ in range(100):
        try:
            imap = imaplib.IMAP4("127.0.0.1", port)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    message = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n"
    imap.login("anna", "secret")
    imap.create("Copies")
    imap.append("INBOX", None, None, message)
    imap.select("INBOX")
    answer = imap.copy("1", "Copies")
    imap.select("Copies")
    copy = imap.fetch("1", "(BODY.PEEK[])")[1][0][1]
    imap.logout()
finally:
    server.terminate()
    server.wait()
print(f"expected: OK, and a copy of {len(message)} octets")
print(f"seen:     {answer[0]}, and a copy of {len(copy)} octets: {copy!r}")
sys.exit(answer[0] != "OK" or len(copy) > 1)
EOF
