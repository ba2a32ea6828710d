"""Comparing trees of arrays, wherever they live."""

from typing import Any

import numpy as np

from minadv.backend import to_host
from minadv.base.trees import leaves


def pairs(actual: Any, expected: Any) -> list[tuple[str, Any, Any]]:
    """The leaves of two trees side by side, as host arrays, with their paths."""
    a, e = dict(leaves(to_host(actual))), dict(leaves(to_host(expected)))
    assert a.keys() == e.keys()
    return [(path, np.asarray(a[path]), np.asarray(e[path])) for path in a]


def assert_close(actual: Any, expected: Any, tol: float = 1e-12) -> None:
    """Every leaf within `tol`, absolute for small entries and relative for large ones; shapes must agree."""
    for path, a, e in pairs(actual, expected):
        assert a.shape == e.shape, f"{path}: {a.shape} and {e.shape}"
        np.testing.assert_allclose(a, e, rtol=tol, atol=tol, err_msg=path)


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Every leaf equal, entry by entry, in value and dtype."""
    for path, a, e in pairs(actual, expected):
        assert a.dtype == e.dtype, f"{path}: {a.dtype} and {e.dtype}"
        np.testing.assert_array_equal(a, e, err_msg=path)


def assert_zero(tree: Any) -> None:
    """Every entry exactly zero, and at least one entry to look at."""
    found = list(leaves(to_host(tree)))
    assert found
    for path, a in found:
        assert a.size, f"{path} is empty"
        assert not np.any(a), f"{path} is not exactly zero: {a}"
