# Run a command, and show how long it has taken: sh tools/progress.sh LABEL COMMAND...
# On a terminal, one line is renewed each second; elsewhere there is a line every ten seconds. The command's own output
# is shown only if it fails. Of pip's, the last package that it gets is shown.
label=$1
shift
log=$(mktemp)
"$@" >"$log" 2>&1 </dev/null &
command=$!
trap 'kill "$command" 2>/dev/null; wait "$command"; rm -f "$log"; exit 130' INT TERM HUP
trap 'rm -f "$log"' EXIT

seconds=0
while kill -0 "$command" 2>/dev/null; do
  doing=$(sed -n 's/^Collecting \([[:alnum:]._-]*\).*/ (\1)/p; s/^Installing .*/ (unpacking)/p' "$log" | tail -n 1)
  if [ -t 1 ]; then
    printf '\r\033[K%s: %d s%s' "$label" "$seconds" "$doing"
  elif [ $((seconds % 10)) = 0 ]; then
    echo "$label: $seconds s$doing"
  fi
  sleep 1
  seconds=$((seconds + 1))
done
wait "$command"
status=$?

[ -t 1 ] && printf '\r\033[K'
if [ "$status" = 0 ]; then
  echo "$label: done in $seconds s"
else
  echo "$label: failed" >&2
  cat "$log" >&2
fi
exit "$status"
