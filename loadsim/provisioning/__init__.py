"""Mailboxes of a run: accounts, lists, start state, inspection and removal."""
