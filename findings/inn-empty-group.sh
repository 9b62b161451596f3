#!/bin/sh
# INN 2.7.4: a reader who polls an empty newsgroup misses its first article, and then gets the second by the first's
# number, until a new session. RFC 3977, section 6: a number names one article of a newsgroup.
set -eu
. "$(dirname "$0")/debian.inc"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 2' HUP INT TERM
debian sid "$work/debian" inn2==2.7.4-1+b2
inside "$work/debian" <<'EOF'
sed -i "s/^nnrpdloadlimit:.*/nnrpdloadlimit: 0/; s/^ovmethod:.*/ovmethod: tradindexed/" /etc/news/inn.conf
echo "example.board 0000000000 0000000001 y" >>/var/lib/news/active
mkdir -p /run/news
chown news:news /run/news
runuser -u news -- /usr/lib/news/bin/innd -f &
await 119
python3 - <<'PYTHON'
import re, socket, sys


class Reader:
    def __init__(self):
        self.file = socket.create_connection(("127.0.0.1", 119)).makefile("rwb")
        self.file.readline()
        self.ask("MODE READER")

    def ask(self, command):
        self.file.write(command.encode() + b"\r\n")
        self.file.flush()
        return self.file.readline().decode()

    def post(self, name):
        self.ask("POST")
        head = f"Newsgroups: example.board\r\nFrom: anna@example.test\r\nSubject: x\r\nMessage-ID: <{name}@example.test>"
        return self.ask(f"{head}\r\n\r\ntext\r\n.")

    def poll(self):
        self.ask("GROUP example.board")
        if self.ask("OVER 1-50").startswith("224"):
            while self.file.readline() != b".\r\n":
                pass

    def articles(self):
        self.poll()
        answers = (self.ask(f"STAT {number}") for number in (1, 2))
        return " ".join(re.sub(r"223 (\d+) <(.*)@.*", r"\1=\2", answer).split()[0] for answer in answers)


early, writer = Reader(), Reader()
early.poll()
for name in ("first", "second"):
    writer.post(name)
    early.poll()
seen, later = early.articles(), Reader().articles()
print("expected: 1=first 2=second, for each reader")
print(f"seen:     {seen} for one who opened the empty newsgroup, {later} for one who came later")
sys.exit((seen, later) != ("1=second 423", "1=first 2=second"))
PYTHON
EOF
