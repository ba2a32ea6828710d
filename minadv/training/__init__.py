r"""The machinery of training: optimizers, clipping, schedules, averages, random streams, checkpoints, logs, progress.

Each module is a few pure functions and small frozen dataclasses; the loop that composes them holds the only state.
"""
