r"""Sampled softmax: the likelihood of a word against a few candidates instead of the whole vocabulary.

Words are drawn from the unigram distribution p, again and again, until S different ones have come up; that took n
tries. A word is then among them with probability :math:`q_v = 1 - (1 - p_v)^n`, its expected count, and

.. math:: z_v = h \cdot V_v + b_v - \log q_v, \qquad
          NLL = -z_y + \log\Big(e^{z_y} + \sum_{c \in \text{candidates},\, c \ne y} e^{z_c}\Big)

Why the correction :math:`-\log q`: among the candidates and the true word, a word that is often drawn is often there
without being the true one, so that the odds for it fall by the factor :math:`1 / q`. With this factor in z, learning
stops where :math:`h \cdot V_v + b_v` are the logits of the true distribution. The NLL is that of telling the true word
from the candidates; it approaches the softmax's as there are more of them and all q go to 1. A candidate that happens
to be the true word is left out of the sum, or the word would be told from itself. With every word a candidate and no
correction it is the softmax.

The candidates are the same for the whole batch, so that their rows of V are read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv import layers
from minadv.backend import Array, namespace
from minadv.base import shared_draws
from minadv.base.checks import expect_floating, expect_shape
from minadv.base.shared_draws import Rng
from minadv.words.embedding import sum_by_word

BLOCK = 2**18  # logits in memory at once on the host: few enough to stay in a processor's caches
DEVICE_BLOCK = 2**23  # logits in memory at once on a GPU, which needs large products to be fast


@dataclass(frozen=True)
class Candidates:
    """Different words, in the order in which they first came up, and how many draws that took."""

    words: Array  # (S,), on the host
    tries: int


@dataclass(frozen=True)
class Sampled:
    """Targets with the candidates that they are told from: what the head of a language model is given to train on.

    ``log_q`` and ``candidates_log_q`` are the logs of the expected counts; None for both means no correction.
    """

    words: Array  # (...), the true words
    candidates: Array  # (S,)
    log_q: Array | None = None  # (...)
    candidates_log_q: Array | None = None  # (S,)

    def __post_init__(self) -> None:
        namespace(
            words=self.words, candidates=self.candidates, log_q=self.log_q, candidates_log_q=self.candidates_log_q
        )
        expect_shape("candidates", self.candidates, ("S",))
        if (self.log_q is None) != (self.candidates_log_q is None):
            raise ValueError("one of log_q and candidates_log_q is None: give both or none")
        if self.log_q is not None and self.candidates_log_q is not None:
            expect_shape("log_q", self.log_q, self.words.shape, "one for each of words")
            expect_shape("candidates_log_q", self.candidates_log_q, self.candidates.shape, "one for each candidate")


def draw(rng: Rng, p: Array, n: int, *, max_tries: int = 10_000_000) -> Candidates:
    """Draw words from ``p (V,)``, a host array, until ``n`` different ones have come up.

    The words belong to the batch as a whole: several workers that share it draw the same ones. Raises ValueError before
    any draw if too few words have a positive probability, and if ``max_tries`` draws were not enough.
    """
    expect_shape("p", p, ("V",))
    possible = int(np.count_nonzero(p))
    if not 1 <= n <= possible:
        raise ValueError(f"n is {n} candidates, expected 1 to {possible}, the number of words of positive probability")
    generator = shared_draws.whole(rng)
    cumulative = np.cumsum(p, dtype=np.float64)
    last = int(np.flatnonzero(p)[-1])
    seen = np.zeros(len(p), dtype=bool)
    parts: list[Array] = []  # the new words of each round of draws
    missing, tries, size = n, 0, 2 * n
    while tries < max_tries:
        uniform = generator.random(size) * cumulative[-1]
        drawn = np.searchsorted(cumulative[:last], uniform, side="right")  # never a word of p = 0
        words, first = np.unique(drawn, return_index=True)
        order = np.argsort(first)
        order = order[~seen[words[order]]][:missing]
        parts.append(words[order])
        seen[words[order]] = True
        missing -= len(order)
        if missing == 0:
            return Candidates(np.concatenate(parts), tries + int(first[order[-1]]) + 1)
        tries += size
        size = min(2 * size, 1_000_000)
    raise ValueError(
        f"{n - missing} of n = {n} candidates had come up after {tries:,} draws, the rest are too rare: lower n"
    )


def log_expected_count(p: Array, tries: int) -> Array:
    r""":math:`\log(1 - (1 - p)^{tries})`, accurate for small p, elementwise for p in (0, 1)."""
    xp = namespace(p=p)
    q: Array = -xp.expm1(tries * xp.log1p(-p))
    return xp.log(q)  # type: ignore[no-any-return]


def correct(words: Array, candidates: Candidates, p: Array, *, check: bool = True) -> Sampled:
    """Targets ``words (...)`` beside candidates that were drawn from ``p (V,)``, with the correction of both.

    ``p`` and ``words`` lie on one device. Raises ValueError for a target that could never have been drawn.
    """
    xp = namespace(words=words, p=p)
    expect_shape("p", p, ("V",))
    if check:
        layers.expect_range("words", words, len(p))
    p_words, drawn = p[words], xp.asarray(candidates.words)
    if check and bool((wrong := (p_words <= 0) | (p_words >= 1)).any()):
        word = int(words.reshape(-1)[int(wrong.reshape(-1).argmax())])
        raise ValueError(
            f"the target {word} has the probability {float(p[word])}, expected a number between 0 and 1: "
            "take the frequencies from the text that is learnt"
        )
    tries = candidates.tries
    return Sampled(words, drawn, log_expected_count(p_words, tries), log_expected_count(p[drawn], tries))


def sampled_softmax(
    hidden: Array, V: Array, b: Array, targets: Sampled, *, weight: float | Array = 1.0, check: bool = True
) -> tuple[Array, Array, Array, Array]:
    r"""The NLL of each true word, and the gradients of :math:`\sum weight \cdot NLL` by hidden, V and b.

    ``hidden (..., H)``, ``V (words, H)``, one row a word, ``b (words,)``; ``weight`` is a number or an array ``(...)``.
    Returns ``nll (...)``, ``dhidden (..., H)``, ``dV`` and ``db``, which are zero for words that are neither targets
    nor candidates. ``check`` is as in `minadv.layers.embedding`. Works on blocks of rows: the logits of all rows never
    stand in memory together.
    """
    xp = _check(hidden, V, b, targets.words)
    if check:
        layers.expect_range("targets.words", targets.words, V.shape[0])
        layers.expect_range("targets.candidates", targets.candidates, V.shape[0])
    h, words, cs = hidden.reshape(-1, V.shape[1]), targets.words.reshape(-1), targets.candidates
    N, S, dtype = len(words), len(cs), h.dtype
    share = xp.broadcast_to(xp.asarray(weight, dtype), targets.words.shape).reshape(-1)  # (N,)
    V_c, b_c, b_y = V[cs], b[cs], b[words]
    if targets.log_q is not None and targets.candidates_log_q is not None:
        b_c = b_c - targets.candidates_log_q.astype(dtype)
        b_y = b_y - targets.log_q.reshape(-1).astype(dtype)
    place = xp.full(V.shape[0], S, dtype=np.int64)  # (words,), the column of a candidate, S for other words
    place[cs] = xp.arange(S)

    nll, dhidden, dtrue = xp.empty(N, dtype), xp.empty_like(h), xp.empty(N, dtype)
    dV_c, db_c = xp.zeros_like(V_c), xp.zeros_like(b_c)
    for part in _blocks(xp, N, S + 1):
        h_part, words_part = h[part], words[part]
        V_y = V[words_part]  # (n, H)
        n = len(h_part)
        z = xp.empty((n, S + 1), dtype)  # the candidates, and the true word in column S
        z[:, :S] = h_part @ V_c.T
        z[:, :S] += b_c
        z[xp.arange(n), place[words_part]] = -np.inf  # an accidental hit; column S is written next
        z[:, S] = xp.einsum("nh,nh->n", h_part, V_y) + b_y[part]
        nll[part], dz = layers.cross_entropy(z, xp.full(n, S), check=False)
        dz *= share[part, None]
        dtrue[part] = dz[:, S]
        dhidden[part] = dz[:, :S] @ V_c
        dhidden[part] += dz[:, S:] * V_y
        dV_c += dz[:, :S].T @ h_part
        db_c += dz[:, :S].sum(axis=0)
    dV = sum_by_word(words, h, V.shape[0], dtrue)
    db = sum_by_word(words, dtrue[:, None], V.shape[0])[:, 0]
    dV[cs] += dV_c
    db[cs] += db_c
    return nll.reshape(targets.words.shape), dhidden.reshape(hidden.shape), dV, db


def _blocks(xp: Any, n_rows: int, n_columns: int) -> Iterator[slice]:
    """Rows whose logits, ``n_columns`` each, make up a block."""
    rows = max(1, (BLOCK if xp is np else DEVICE_BLOCK) // n_columns)
    for first in range(0, n_rows, rows):
        yield slice(first, min(first + rows, n_rows))


def _check(hidden: Array, V: Array, b: Array, words: Array) -> Any:
    xp = namespace(hidden=hidden, V=V, b=b, words=words)
    expect_floating("hidden", hidden)
    expect_shape("V", V, ("words", "H"), "one row a word")
    expect_floating("V", V, hidden, "hidden")
    expect_shape("b", b, (V.shape[0],), f"V has {V.shape[0]} words")
    expect_floating("b", b, hidden, "hidden")
    expect_shape("hidden", hidden, (*words.shape, V.shape[1]), f"one row for each word, V has H = {V.shape[1]}")
    return xp
