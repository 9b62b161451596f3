#!/bin/sh
# Apache Otava 0.8.0 (PyPI): --config-file before the subcommand is accepted and ignored.
# otava --help and otava analyze --help: both list --config-file, the path of the configuration.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet apache-otava==0.8.0
cd "$work"
export HOME="$work"
printf 'time,ms\n2026-01-05T00:00:00+00:00,1\n' >builds.csv
printf 'tests:\n  one:\n    type: csv\n    file: builds.csv\n    attributes: []\n    metrics: [ms]\n' >otava.yaml
after=$(venv/bin/otava list-tests --config-file otava.yaml 2>&1) || after="fails: $after"
before=$(venv/bin/otava --config-file otava.yaml list-tests 2>&1) || before="fails: $before"
echo "expected: one, wherever the option is"
echo "seen:     after the subcommand: $after"
echo "          before it: ${before:-nothing}"
case $after in *one*) ;; *) exit 1 ;; esac
case $before in *"not found or not specified"*) ;; *) exit 1 ;; esac
