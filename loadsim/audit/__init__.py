"""Every mail accounted for: the mailboxes after a run, held against the records of its logs."""
