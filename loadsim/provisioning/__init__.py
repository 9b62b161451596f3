"""The mailboxes of a run: accounts, lists, start state, inspection and cleaning."""
