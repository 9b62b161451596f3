#!/bin/sh
# go-imap v2.0.0-beta.8 (Go), in-memory server: MOVE announces twice as many EXPUNGE as messages were moved, also of
# number 0. RFC 6851, section 3.3: one EXPUNGE for each. RFC 3501, section 9: its number is not zero.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
cat >"$work/main.go" <<'EOF'
package main

import (
	"fmt"
	"log"
	"net"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"
	"github.com/emersion/go-imap/v2/imapserver/imapmemserver"
)

func main() {
	user := imapmemserver.NewUser("anna", "secret")
	user.Create("INBOX", nil)
	user.Create("Archive", nil)
	memory := imapmemserver.New()
	memory.AddUser(user)
	server := imapserver.New(&imapserver.Options{
		NewSession: func(*imapserver.Conn) (imapserver.Session, *imapserver.GreetingData, error) {
			return memory.NewSession(), nil, nil
		},
		Caps:         imap.CapSet{imap.CapIMAP4rev1: {}, imap.CapMove: {}, imap.CapUIDPlus: {}},
		InsecureAuth: true,
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(server.Serve(listener))
}
EOF
cd "$work"
export GOFLAGS=-modcacherw GOMODCACHE="$work/modules" GOCACHE="$work/cache"
go mod init findings.example.test 2>/dev/null
go get github.com/emersion/go-imap/v2/imapserver/imapmemserver@v2.0.0-beta.8 2>/dev/null
go build -o server .
python3 - <<'EOF'
import imaplib, subprocess, sys

with subprocess.Popen("./server", stdout=subprocess.PIPE, text=True) as server:
    imap = imaplib.IMAP4("127.0.0.1", int(server.stdout.readline()))
    imap.login("anna", "secret")
    message = b"From: bert@example.test\r\nDate: Mon, 2 Mar 2026 10:00:00 +0000\r\n\r\ntext\r\n"
    announced = []
    for count, moved in ((1, "1"), (5, "1:2")):
        for _ in range(count):
            imap.append("INBOX", None, None, message)
        imap.select()
        imap.xatom("MOVE", moved, "Archive")
        announced.append([int(number) for number in imap.response("EXPUNGE")[1]])
    left = imap.uid("SEARCH", "ALL")[1][0].decode()
    imap.logout()
    server.terminate()
print("expected: MOVE 1 of 1 message: EXPUNGE 1; MOVE 1:2 of 5 messages: 2 EXPUNGE; UIDs 4 5 6 are left")
print(f"seen:     EXPUNGE {announced[0]}; EXPUNGE {announced[1]}; UIDs {left} are left")
sys.exit((announced, left) != ([[0, 1], [4, 3, 2, 1]], "4 5 6"))
EOF
