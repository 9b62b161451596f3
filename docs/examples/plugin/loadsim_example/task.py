"""The task `FIND SENT`: users look up a message that they sent."""

from loadsim.errors import ServerRefused
from loadsim.model.ports import SENT_ITEMS, Turn

SHOWN = 50
"""The number of headers to list."""


async def find_sent(turn: Turn) -> None:
    """Open Sent Items, and read one of its newest messages."""
    mailbox = turn.session.mailbox
    headers = await mailbox.headers(SENT_ITEMS, SHOWN)
    if not headers:
        return  # nothing was sent yet
    header = headers[int(turn.draw("message") * len(headers))]
    structure = await mailbox.structure(header.ref)
    if structure.text is None:
        raise ServerRefused("no text in a sent message")
    await mailbox.part(header.ref, structure.text)
