"""A simulated user: activities, the tasks that make them up, and the session."""
