"""The channel to a child process whose end nobody has noticed yet."""

import asyncio
import os
import sys

import pytest

from loadsim.engine.channel import start_process


def test_lines_for_a_process_that_has_ended_are_no_complaints(
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
