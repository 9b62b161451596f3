#!/bin/sh
# Fetch Apache James and GreenMail from Maven Central for tests and `tests/lab.py`:
#
#     tests/install-java-servers.sh [DIR]
#
# DIR is $LOADSIM_PROGRAMS by default, or ~/.cache/loadsim/programs. Nothing is done when both are there already, in
# the versions of tests/other_servers/programs. Exit status: 0 fetched, 3 not possible here (no Maven, or no Java), anything
# else a failure of Maven.
set -eu

directory=${1:-${LOADSIM_PROGRAMS:-$HOME/.cache/loadsim/programs}}
poms=$(dirname "$0")/other_servers/programs

for command in mvn java; do
    command -v "$command" >/dev/null || {
        echo "install-java-servers: NOT FETCHED: no $command (apt-get install maven default-jdk-headless)." >&2
        exit 3
    }
done
for server in james greenmail; do
    done="$directory/$server/complete"
    if [ -e "$done" ] && cmp -s "$poms/$server.xml" "$done"; then
        continue
    fi
    rm -rf "${directory:?}/$server"
    mvn -q -B -f "$poms/$server.xml" dependency:copy-dependencies "-Dprograms=$directory"
    cp "$poms/$server.xml" "$done"
done
