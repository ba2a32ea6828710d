r"""The contenders of `experiments.bench`: one AdD training step, written once for each library, from the same arrays.

`problem` draws the arrays, `ours`, `pytorch`, `jax_scan` and `textbook` do the step, `limit` does the least that any of
them must do, `registry` lists the settings that each is tried in, `worker` and `processes` run them apart.
"""
