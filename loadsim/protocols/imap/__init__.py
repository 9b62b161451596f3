"""loadsim's own IMAP client: a wire without I/O, an asyncio connection over it, and the mailbox port over that."""
