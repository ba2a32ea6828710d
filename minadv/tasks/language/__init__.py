"""Word-level language models."""
