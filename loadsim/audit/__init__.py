"""Account for every mail: compare the mailboxes after a run with the records of its logs."""
