"""Documents with labels, and without."""
