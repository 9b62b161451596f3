"""Message contents: the bytes of every message that loadsim sends, stores or leaves in a calendar."""

from __future__ import annotations

from loadsim.model.content.compose import ATTACHMENT_KINDS, KINDS, SCHEDULE, Answered, Attachment, Contents

__all__ = ["ATTACHMENT_KINDS", "KINDS", "SCHEDULE", "Answered", "Attachment", "Contents"]
