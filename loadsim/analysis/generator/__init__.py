"""The load generator's own figures, failures and limits."""
