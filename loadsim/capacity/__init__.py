"""The search for the most users that a server takes."""
