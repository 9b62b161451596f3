"""The search for the largest number of users that a server can handle."""
