"""The commands: one module per verb."""
