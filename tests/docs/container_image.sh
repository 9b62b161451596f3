# Build the Containerfile and run the image by podman as an ordinary user: container_image.sh PLACE SOURCE BASE.
# To be started with mount and process namespaces of its own: everything is in memory, and ends with the first process.
set -eu
place=$1 source=$2 base=$3 user=23456

# Of a machine with both versions of control groups, crun takes the first alone.
! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
mount -t tmpfs -o size=8g,mode=755 tmpfs "$place"
cd "$place"
mkdir loadsim home run work machine
# The user and the numbers that its containers may have, for as long as this namespace lasts.
for file in passwd subuid subgid; do
    [ ! -e "/etc/$file" ] || cp "/etc/$file" machine/
done
echo "builder:x:$user:$user::$place/home:/bin/sh" >>machine/passwd
echo "builder:1000000:65536" | tee -a machine/subuid >>machine/subgid
for file in passwd subuid subgid; do
    [ -e "/etc/$file" ] || touch "/etc/$file"
    mount --bind "machine/$file" "/etc/$file"
done
git -C "$source" ls-files -z | tar -C "$source" --null --files-from=- -c | tar -C loadsim -x
chown -R "$user:$user" loadsim home run work

exec setpriv --reuid="$user" --regid="$user" --clear-groups \
    env -i PATH="$PATH" HOME="$place/home" XDG_RUNTIME_DIR="$place/run" TMPDIR="$place/run" sh -eu -s "$place" "$base" <<'USER'
place=$1 base=$2
cd "$place/loadsim"
tar -C "$base" --one-file-system --exclude=./proc/* --exclude=./dev/* --exclude=./sys/* --ignore-failed-read -c . 2>/dev/null |
    podman import --quiet - localhost/fresh-debian >&2
# Without its ordinary user, whose number the image's own user has.
printf 'FROM localhost/fresh-debian\nRUN userdel --remove you\n' | podman build --quiet --network host -t localhost/base - >&2
# The packages come from this machine's mirrors, by its certificates.
mirrors="--volume /etc/ssl/certs:/etc/ssl/certs:ro"
[ ! -e /etc/pip.conf ] || mirrors="$mirrors --volume /etc/pip.conf:/etc/pip.conf:ro"
# shellcheck disable=SC2086  # options
podman build --quiet --network host $mirrors --build-arg BASE=localhost/base -t loadsim . >&2

run="podman run --rm --init --network none --userns keep-id:uid=1000,gid=1000"
cd "$place/work"
$run loadsim --version
$run --entrypoint id loadsim
$run --read-only --tmpfs /tmp -v "$PWD":/work loadsim run quickstart >&2 || echo "ended with $?"
stat --format '%u %n' runs/*/score.json runs/*/report.html
USER
