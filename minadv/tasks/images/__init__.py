"""Images read as sequences, and classified."""
