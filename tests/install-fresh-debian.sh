#!/bin/sh
# Make Debians with nothing but the base system, sudo and an ordinary user, in which tests type as that user:
#
#     sudo tests/install-fresh-debian.sh RELEASE...
#
# Each is in /var/cache/loadsim/debian-RELEASE, 240 MB, from this machine's mirror. Nothing is done for one that is there
# already. Exit status: 0 made, 3 not possible here (not root, or not Debian), anything else a failure of apt or
# debootstrap.
set -eu

directory=/var/cache/loadsim
user=you
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

say() {
    echo "install-fresh-debian: $*" >&2
}

if [ ! -e /etc/debian_version ] || ! command -v apt-get >/dev/null; then
    say "NOT MADE: this is not Debian."
    exit 3
fi
missing=""
for release in "$@"; do
    [ -e "$directory/debian-$release" ] || missing="$missing $release"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    say "NOT MADE: not root; run once: sudo $0$missing"
    exit 3
fi

# A fresh machine or container has no package lists, or old ones whose files are gone from the mirror.
[ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*Release' -mtime -1 2>/dev/null)" ] ||
    apt-get -q -o DPkg::Lock::Timeout=120 update
command -v debootstrap >/dev/null ||
    apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends --no-remove debootstrap
here=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016  # $(REPO_URI) is apt's
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Origin: Debian" "Codename: $here" | head -n 1)
[ -n "$mirror" ] || {
    say "apt has no package lists of Debian's $here"
    exit 100
}

mkdir -p "$directory"
new=""
trap 'rm -rf --one-file-system "$new"' EXIT
trap 'exit 1' HUP INT TERM
for release in $missing; do
    new=$(mktemp -d "$directory/debian-$release.XXXXXX")
    # With mounts of its own, which end with it.
    unshare --mount debootstrap --variant=minbase --include=ca-certificates,sudo "$release" "$new" "$mirror" >&2
    chroot "$new" apt-get clean
    chroot "$new" useradd --create-home --shell /bin/bash "$user"
    echo "$user ALL=(ALL) NOPASSWD: ALL" >"$new/etc/sudoers.d/$user"
    chmod 440 "$new/etc/sudoers.d/$user"
    # A mirror's sid may be older than the week for which its lists are valid.
    echo 'Acquire::Check-Valid-Until "false";' >"$new/etc/apt/apt.conf.d/10old-mirror"
    chmod 755 "$new"
    mv "$new" "$directory/debian-$release"
    say "made: $directory/debian-$release"
done
