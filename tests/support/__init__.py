"""What several files of tests use."""
