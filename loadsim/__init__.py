"""loadsim: simulated mail users on a real mail server, and what they waited for."""

__version__ = "0.1.0"
