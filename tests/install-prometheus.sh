#!/bin/sh
# Unpack Debian's Prometheus, for the nightly test of its queries:
#
#     tests/install-prometheus.sh [DIR]
#
# DIR is $LOADSIM_PROGRAMS by default, or ~/.cache/loadsim/programs. Nothing is installed, and no service is started.
# Nothing is done when it is there already. Exit status: 0 unpacked, 3 not possible here (not Debian), anything else a
# failure of apt.
set -eu

directory=${1:-${LOADSIM_PROGRAMS:-$HOME/.cache/loadsim/programs}}/prometheus

if [ ! -e /etc/debian_version ] || ! command -v apt-get >/dev/null; then
    echo "install-prometheus: NOT UNPACKED: this is not Debian." >&2
    exit 3
fi
[ ! -e "$directory/complete" ] || exit 0
rm -rf "$directory"
mkdir -p "$directory"
(cd "$directory" && apt-get -q -o APT::Sandbox::User=root download prometheus >&2)
dpkg -x "$directory"/prometheus_*.deb "$directory"
rm "$directory"/prometheus_*.deb
touch "$directory/complete"
