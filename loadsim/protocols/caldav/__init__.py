"""CalDAV (RFC 4791, 6578, 6638): a user's calendar on a calendar server, next to any mail driver."""
