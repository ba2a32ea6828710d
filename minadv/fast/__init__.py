"""The machinery that computes the passes of the cells faster."""
