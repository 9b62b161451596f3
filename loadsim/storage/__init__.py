"""Tests of disks under mail stores: the operations of so many mailboxes, timed, verified and judged."""
