"""Account for every message: compare the mailboxes after a run with the records in its logs.

The result, and what it adds to a verdict, are in `timinglog.audited`.
"""
