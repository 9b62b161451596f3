#!/bin/sh
# uvloop 0.23.0 (PyPI): timers ring up to half a millisecond, and more, before their delay is over.
# Python 3, asyncio event loop, call_later: the callback is called after the given delay. asyncio's own loop keeps to it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet uvloop==0.23.0
"$work/venv/bin/python" - <<'EOF'
import asyncio, sys, time
import uvloop


async def early(delay_s, times):
    """How often of so many times a callback came before its delay was over."""
    loop, count = asyncio.get_running_loop(), 0
    for _ in range(times):
        rung = loop.create_future()
        due_ns = time.monotonic_ns() + int(delay_s * 1e9)
        loop.call_later(delay_s, lambda: rung.set_result(time.monotonic_ns()))
        count += await rung < due_ns
    return count

seen = {}
for name, factory in (("asyncio", asyncio.SelectorEventLoop), ("uvloop", uvloop.new_event_loop)):
    with asyncio.Runner(loop_factory=factory) as runner:
        seen[name] = runner.run(early(0.0014, 500))
print("expected: 0 of 500 delays of 1.4 ms end early")
print(f"seen:     {seen}")
sys.exit(not (seen["asyncio"] == 0 and seen["uvloop"] > 50))
EOF
