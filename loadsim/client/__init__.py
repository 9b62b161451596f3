"""Simulated users at work: tasks, users, and the engine that runs them."""
