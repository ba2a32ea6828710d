r"""Word embeddings, normalised inside the graph by the frequencies of the words.

With the frequencies :math:`f_v`, whose sum is 1, each dimension d of the matrix ``E (V, D)`` is given mean 0 and
variance 1 over the running text:

.. math:: \mu_d = \sum_v f_v E_{vd}, \qquad \sigma^2_d = \sum_v f_v (E_{vd} - \mu_d)^2, \qquad
          \bar E_{vd} = s_d\, (E_{vd} - \mu_d), \quad s_d = (\sigma^2_d + tiny)^{-1/2}

Without normalisation a perturbation of a fixed norm (AT, VAT) would mean nothing: the network could grow its embeddings
until the perturbation no longer matters. The mean and the variance are functions of E and are differentiated like the
rest. Only the rows that are looked up are ever normalised; the two moments see all of them.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass

import numpy as np

from minadv import layers
from minadv.backend import Array, namespace
from minadv.base.checks import expect_floating, expect_shape

TINY = 1e-6  # added to the variance: a dimension that is constant must not be divided by zero


@dataclass(frozen=True)
class Moments:
    r"""What normalises the rows of E: :math:`\mu` and :math:`s`, and the frequencies that they were taken with."""

    mean: Array  # (D,)
    scale: Array  # (D,), 1 / sqrt(variance + TINY)
    frequencies: Array  # (V,)


def moments(E: Array, frequencies: Array) -> Moments:
    """The frequency-weighted moments of ``E (V, D)``; ``frequencies (V,)`` are not negative and have the sum 1."""
    xp = namespace(E=E, frequencies=frequencies)
    expect_floating("E", E)
    expect_shape("E", E, ("V", "D"))
    expect_shape("frequencies", frequencies, (E.shape[0],), f"E has a row for each of {E.shape[0]} words")
    expect_floating("frequencies", frequencies, E, "E")
    mean = frequencies @ E  # (D,)
    squares = E - mean  # (V, D)
    squares *= squares
    variance = frequencies @ squares  # (D,)
    return Moments(mean, 1 / xp.sqrt(variance + TINY), frequencies)


def lookup(E: Array, tokens: Array, at: Moments | None = None, *, check: bool = True) -> Array:
    r"""Rows of :math:`\bar E` (of E itself, if ``at`` is None) for integer ``tokens (...)``: ``(..., D)``.

    ``check=False`` leaves out the range check, as in `minadv.layers.embedding`.
    """
    rows = layers.embedding(E, tokens, check=check)
    if at is not None:
        rows -= at.mean
        rows *= at.scale
    return rows


def lookup_backward(E: Array, tokens: Array, dy: Array, at: Moments | None = None) -> Array:
    r"""The gradient to every row of E, ``(V, D)``, from ``dy (..., D)``.

    With the looked-up rows :math:`y_n`, :math:`g = \sum_n dy_n` and :math:`q = \sum_n dy_n \odot y_n`, the mean hands
    back :math:`-s \odot g` and the variance :math:`-\tfrac12 s^2 \odot q`, so that

    .. math:: dE_v = s \odot \Big(\sum_{n:\, tokens_n = v} dy_n - f_v\,(g + \bar E_v \odot q)\Big)

    and a word that is not among the tokens has a gradient too. Cost: a few sweeps over (V, D).
    """
    xp = namespace(E=E, tokens=tokens, dy=dy)
    flat_dy = dy.reshape(-1, E.shape[1])
    dE = sum_by_word(tokens, flat_dy, E.shape[0])  # (V, D)
    if at is None:
        return dE
    y = lookup(E, tokens.reshape(-1), at, check=False)
    g = flat_dy.sum(axis=0)  # (D,)
    q = xp.einsum("nd,nd->d", flat_dy, y)  # (D,)
    slope = at.scale * q
    through_moments = E * slope  # (V, D): Ebar q + g = E slope + (g - mean slope)
    through_moments += g - at.mean * slope
    through_moments *= at.frequencies[:, None]
    dE -= through_moments
    dE *= at.scale
    return dE


def sum_by_word(words: Array, rows: Array, n_words: int, weights: Array | None = None) -> Array:
    r"""The sum of ``rows (N, D)``, times ``weights (N,)`` if given, over the places of each word: ``(n_words, D)``.

    .. math:: S_v = \sum_{n:\, words_n = v} weights_n\, rows_n

    On the host it is the product of a sparse matrix, one entry a column, with the rows, which is much faster than
    sorting the words or ``np.add.at``. On a GPU, and without SciPy, which a browser does not have, it is
    `minadv.layers.embedding_backward`, which sorts. Both add up in the order of the places, so that the same arguments
    give the same bits.
    """
    xp = namespace(words=words, rows=rows, weights=weights)
    flat = words.reshape(-1)
    if xp is not np or not _has_scipy():
        like = xp.empty((n_words, rows.shape[1]), rows.dtype)
        return layers.embedding_backward(like, flat, rows if weights is None else rows * weights[:, None])
    import scipy.sparse  # only now: 25 MB that a process without words has no use for

    entries = np.ones(flat.size, rows.dtype) if weights is None else weights
    places = scipy.sparse.csc_matrix((entries, flat, np.arange(flat.size + 1)), shape=(n_words, flat.size))
    total: Array = places @ rows
    return total


@functools.cache
def _has_scipy() -> bool:
    return importlib.util.find_spec("scipy") is not None
