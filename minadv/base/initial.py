r"""Initial weights, drawn on the host from an explicit generator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minadv.backend import Array
from minadv.base.checks import expect_generator


def glorot(rng: np.random.Generator, n_in: int, n_out: int, dtype: npt.DTypeLike) -> Array:
    r"""Uniform on :math:`\pm\sqrt{6/(n_{in} + n_{out})}` (Glorot and Bengio, 2010), of shape ``(n_in, n_out)``."""
    expect_generator(rng)
    limit = np.sqrt(6 / (n_in + n_out))
    return rng.uniform(-limit, limit, (n_in, n_out)).astype(dtype)


def orthogonal(rng: np.random.Generator, n: int, dtype: npt.DTypeLike) -> Array:
    """A random orthogonal matrix, uniform over all of them: Q of a Gaussian matrix, with the signs of R's diagonal."""
    q, r = np.linalg.qr(rng.standard_normal((n, n)))
    signed: Array = q * np.sign(np.diag(r))
    return signed.astype(dtype)


def blocks(draws: list[Array]) -> Array:
    """One matrix for all gates of a cell: the matrices of the gates side by side."""
    return np.concatenate(draws, axis=1)
