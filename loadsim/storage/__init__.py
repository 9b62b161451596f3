"""Storage tests: the disk operations of many mailboxes, timed, verified and judged."""
