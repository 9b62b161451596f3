"""What the operating system states about processes, processors and disks."""
