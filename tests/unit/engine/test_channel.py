"""The channel to a child process whose exit is not noticed yet."""

import asyncio
import gc
import os
import sys
import warnings

import pytest

from loadsim.engine.channel import start_process
from loadsim.processes.event_loop import LoopFactory, fastest_loop


def test_sending_to_an_exited_process_raises_nothing(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A machine that was frozen sends many lines at once to engines that ended meanwhile: asyncio must not complain."""

    async def send_too_late() -> str:
        end_noticed, held = os.pipe()
        channel = await start_process([sys.executable, "-c", "pass"], kept=[held])
        os.close(held)
        assert os.read(end_noticed, 1) == b""  # the process has ended, and our event loop does not know
        os.close(end_noticed)
        for _ in range(20):
            channel.send(b"line\n")
        return await channel.wait()

    assert asyncio.run(send_too_late()) == "exit status 0"
    assert not caplog.records
    assert capfd.readouterr().err == ""


HOLDS = "import os, subprocess, sys; n = int(sys.argv[1]); subprocess.Popen(['head', '-c1'], stdin=n, pass_fds=[n])"
"""Ends, and leaves a process that holds standard output open until the pipe is closed."""


@pytest.mark.parametrize("factory", [None, fastest_loop()])
def test_an_exited_process_leaves_no_open_pipe(factory: LoopFactory | None) -> None:
    """The loop may end before it sees the end of the pipes: uvloop warns of each, asyncio when it is collected."""
    kept, ours = os.pipe()

    async def start_and_wait() -> str:
        return await (await start_process([sys.executable, "-c", HOLDS, str(kept)], kept=[kept])).wait()

    try:
        with warnings.catch_warnings(record=True, category=ResourceWarning) as warned:
            warnings.simplefilter("always")
            with asyncio.Runner(loop_factory=factory) as runner:
                assert runner.run(start_and_wait()) == "exit status 0"
            gc.collect()
        assert [str(each.message) for each in warned] == []
    finally:
        os.close(ours)
        os.close(kept)
