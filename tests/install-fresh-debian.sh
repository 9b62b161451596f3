#!/bin/sh
# Make a Debian with nothing but its base system, sudo and an ordinary user, in which tests type the tutorials' commands:
#
#     sudo tests/install-fresh-debian.sh [DIR]
#
# DIR is /var/cache/loadsim/fresh-debian by default, 240 MB. It is of this machine's release and mirror. Nothing is done
# when it is there already. Exit status: 0 made, 3 not possible here (not root, or not Debian), anything else a failure of
# apt or debootstrap.
set -eu

directory=${1:-/var/cache/loadsim/fresh-debian}
user=you
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

say() {
    echo "install-fresh-debian: $*" >&2
}

if [ ! -e /etc/debian_version ] || ! command -v apt-get >/dev/null; then
    say "NOT MADE: this is not Debian."
    exit 3
fi
[ ! -e "$directory" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    say "NOT MADE: not root; run once: sudo $0 $directory"
    exit 3
fi

# A fresh machine or container has no package lists, or old ones whose files are gone from the mirror.
[ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*Release' -mtime -1 2>/dev/null)" ] ||
    apt-get -q -o DPkg::Lock::Timeout=120 update
command -v debootstrap >/dev/null ||
    apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends --no-remove debootstrap
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016  # $(REPO_URI) is apt's
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Origin: Debian" "Codename: $release" | head -n 1)
[ -n "$mirror" ] || {
    say "apt has no package lists of Debian's $release"
    exit 100
}

mkdir -p "$(dirname "$directory")"
new=$(mktemp -d "$directory.XXXXXX")
trap 'rm -rf --one-file-system "$new"' EXIT
trap 'exit 1' HUP INT TERM
# With mounts of its own, which end with it.
unshare --mount debootstrap --variant=minbase --include=ca-certificates,sudo "$release" "$new" "$mirror" >&2
chroot "$new" apt-get clean
chroot "$new" useradd --create-home --shell /bin/bash "$user"
echo "$user ALL=(ALL) NOPASSWD: ALL" >"$new/etc/sudoers.d/$user"
chmod 440 "$new/etc/sudoers.d/$user"
chmod 755 "$new"
mv "$new" "$directory"
say "made: $directory"
