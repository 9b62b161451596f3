"""One simulated user: activities, the tasks that they are made of, and the user's session."""
