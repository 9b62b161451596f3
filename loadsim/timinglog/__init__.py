"""The timing log: the binary record of one engine, and operations on the files."""
