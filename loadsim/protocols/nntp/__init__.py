"""The public folder as a newsgroup (RFC 3977): the log-on, the overview, and a user's newsgroup."""
