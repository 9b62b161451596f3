# Functions for the scripts in this folder. They need root, debootstrap, and apt's package lists of a Debian.

# debian RELEASE ROOT PACKAGE...: make a Debian in ROOT with these packages, from the mirror that apt uses here.
debian() {
    echo "Debian $1: $(shift 2 && echo "$*")"
    # shellcheck disable=SC2016  # $(REPO_URI) is apt's
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' | head -n 1)
    unshare --mount --pid --fork --kill-child sh -eu -s "$mirror" "$@" >"$2.log" 2>&1 <<'EOF' || {
mirror=$1 release=$2 root=$3
shift 3
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
debootstrap --variant=minbase --include=ca-certificates,iproute2,python3 "$release" "$root" "$mirror" </dev/null
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind /etc/ssl/certs "$root/etc/ssl/certs"
cp /etc/resolv.conf "$root/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
for step in update "install --no-install-recommends iproute2 python3 $*"; do
    # shellcheck disable=SC2086  # words
    chroot "$root" apt-get -q -y -o Acquire::Check-Valid-Until=false $step </dev/null
done
EOF
        tail -n 20 "$2.log" >&2
        exit 2
    }
}

# inside ROOT: run the script on standard input in ROOT, with loopback as its only network. Its processes end with it.
# In the script, `await PORT` waits until a server greets there.
inside() {
    cat >"$1/usr/local/bin/await" <<'EOF'
#!/bin/sh
for _ in $(seq 100); do
    python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", sys.argv[1]), 5).recv(1)' "$1" 2>&- && exit
    sleep 0.1
done
exit 2
EOF
    chmod +x "$1/usr/local/bin/await"
    cat >"$1/root/script"
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --mount --pid --net --fork --kill-child sh -euc '
        ip link set lo up
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        exec chroot "$1" sh -euc "cd; . /root/script"' - "$1" </dev/null
}
