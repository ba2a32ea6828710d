"""The word-level language model of Table 3."""
