"""Message contents: the bytes of all messages that loadsim sends, stores or leaves in a calendar."""
