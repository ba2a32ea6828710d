"""Experiments: one module a table or figure, run from a clone as ``python -m experiments.NAME``."""
