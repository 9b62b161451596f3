#!/bin/sh
# Unpack Debian's Cyrus, Courier, Exim and INN, with the libraries that the machine lacks, for `loadsim server ... --programs`:
#
#     sudo tests/install-other-servers.sh [DIR]
#
# DIR is /var/cache/loadsim/servers by default. Nothing is installed, so no other mail server is removed: these packages
# conflict with Dovecot, Postfix and each other. Nothing is done when all these packages are there already. Exit status: 0
# unpacked, 3 not possible here (not root, or not Debian), anything else a failure of apt.
set -eu

directory=${1:-/var/cache/loadsim/servers}
groups="cyrus-imapd cyrus-pop3d cyrus-caldav courier-imap courier-pop exim4-daemon-light inn2" # cyrus-caldav has JMAP, too
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

say() {
    echo "install-other-servers: $*" >&2
}

if [ ! -e /etc/debian_version ] || ! command -v apt-get >/dev/null; then
    say "NOT UNPACKED: this is not Debian."
    exit 3
fi
[ "$(cat "$directory/complete" 2>/dev/null)" != "$groups" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    say "NOT UNPACKED: not root, so Exim would lack its permissions; run once: sudo $0 $directory"
    exit 3
fi

# Print the packages that apt would add for one server, one a line; those that are installed already are in place.
missing() {
    plan=$(apt-get -s install --no-install-recommends "$1" 2>&1) || {
        say "apt cannot install $1: $(echo "$plan" | grep '^E:' | head -n 1)"
        return 100
    }
    echo "$plan" | sed -n '/^Inst [^ ]* \[/d; s/^Inst \([^ ]*\) .*/\1/p'
}

# A fresh machine or container has no package lists, or old ones whose files are gone from the mirror.
[ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*Release' -mtime -1 2>/dev/null)" ] ||
    apt-get -q -o DPkg::Lock::Timeout=120 update
packages=$(for server in $groups; do missing "$server" || exit; done)
# shellcheck disable=SC2086
packages=$(printf '%s\n' $packages | sort -u)

rm -rf "$directory"
mkdir -p "$directory"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
# shellcheck disable=SC2086  # $packages is a list
(cd "$scratch" && apt-get -q -o APT::Sandbox::User=root download $packages >&2)
for package in "$scratch"/*.deb; do
    dpkg -x "$package" "$directory"
done
# The directory is laid over /usr: what packages put into the old places belongs there too.
for old in bin sbin lib lib64; do
    if [ -d "$directory/$old" ]; then
        mkdir -p "$directory/usr/$old"
        cp -a "$directory/$old/." "$directory/usr/$old/"
        rm -r "${directory:?}/$old"
    fi
done
echo "$groups" >"$directory/complete"
# shellcheck disable=SC2086
say "unpacked in $directory:" $packages
