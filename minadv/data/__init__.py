r"""Data: finding and downloading it, reading it, and cutting it into batches."""
