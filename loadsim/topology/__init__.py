"""The mailboxes a run needs: accounts and lists for the server, start state, cleaning up."""
