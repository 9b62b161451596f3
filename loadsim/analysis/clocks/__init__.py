"""The clocks of several machines: their models, and corrected instants."""
