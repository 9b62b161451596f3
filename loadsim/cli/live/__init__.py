"""Live views of runs in the terminal."""
