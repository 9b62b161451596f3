"""The form that POP3 and NNTP share: commands of one line; responses are a line, or end with a dot on its own line."""
