"""What was measured: the timing log, and everything that is computed from it. Works on files, anywhere, later."""
