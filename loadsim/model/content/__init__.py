"""Message contents: the bytes of every message that loadsim sends, stores or leaves in a calendar."""
