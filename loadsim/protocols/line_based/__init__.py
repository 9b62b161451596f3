"""What POP3 and NNTP share: commands of a line, whose responses are a line, or end with a dot on a line of its own."""
