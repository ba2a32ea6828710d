"""Texts, classified with and without labels."""
