#!/bin/sh
# Install Debian's Dovecot, Postfix and slapd for the tests, without starting the distribution's own services, and a C
# compiler for the null server of the benchmarks. Or install other packages:
#
#     sudo sh tests/install-mail-servers.sh [PACKAGE]...
#
# The tests start private instances of their own; the installed services stay off. Nothing is changed when everything is
# there already. Exit status: 0 installed, 3 not possible here (not root, or not Debian), 4 refused because packages
# would be removed, anything else a failure of apt.
set -eu

packages=${*:-"dovecot-imapd dovecot-lmtpd dovecot-pop3d postfix slapd ldap-utils openssl gcc libc6-dev"}
policy=/usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

say() {
    echo "install-mail-servers: $*" >&2
}

if [ ! -e /etc/debian_version ] || ! command -v apt-get >/dev/null; then
    say "NOT INSTALLED: this is not Debian. The tests need these programs: $packages"
    exit 3
fi

missing=""
for package in $packages; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
    say "already installed: $packages"
    exit 0
fi

if [ "$(id -u)" -ne 0 ]; then
    say "NOT INSTALLED: not root; run once: sudo sh $0 $packages"
    exit 3
fi

# A fresh machine or container has no package lists, or old ones whose files are gone from the mirror.
# shellcheck disable=SC2086  # $missing is a list
if ! plan=$(apt-get -s install --no-install-recommends $missing 2>&1) ||
    [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*Release' -mtime -1 2>/dev/null)" ]; then
    apt-get -q -o DPkg::Lock::Timeout=120 update
    # shellcheck disable=SC2086
    if ! plan=$(apt-get -s install --no-install-recommends $missing 2>&1); then
        say "apt cannot install$missing: $(echo "$plan" | grep '^E:' | head -n 1)"
        exit 100
    fi
fi
if removed=$(echo "$plan" | grep '^Remv'); then
    say "REFUSED: installing$missing would remove: $(echo "$removed" | cut -d ' ' -f 2 | tr '\n' ' ')"
    exit 4
fi

# While apt works, invoke-rc.d is told "forbidden" (101); whatever policy stood there is put back, also on failure.
kept=""
put_back() {
    status=$?
    trap - EXIT
    rm -f "$policy"
    [ -z "$kept" ] || mv "$kept" "$policy"
    exit $status
}
if [ -e "$policy" ] || [ -L "$policy" ]; then
    kept="$policy.before-loadsim.$$"
fi
trap 'exit 1' HUP INT TERM
trap put_back EXIT
[ -z "$kept" ] || mv "$policy" "$kept"
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

case "$missing" in
*postfix*)
    command -v debconf-set-selections >/dev/null || apt-get -q -y -o DPkg::Lock::Timeout=120 install debconf
    echo "postfix postfix/main_mailer_type select No configuration" | debconf-set-selections
    ;;
esac
# shellcheck disable=SC2086
apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends --no-remove $missing

# Nor at the next boot. In a container systemctl may be missing or have nobody to talk to; then there is no boot either.
if command -v systemctl >/dev/null; then
    case "$missing" in
    *dovecot*) systemctl -q disable dovecot.service dovecot.socket >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *postfix*) systemctl -q disable postfix.service >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *slapd*) systemctl -q disable slapd.service >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *openssh-server*) systemctl -q disable ssh.service ssh.socket >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *sysstat*) systemctl -q disable sysstat.service >/dev/null 2>&1 || true ;;
    esac
fi
say "installed:$missing"
