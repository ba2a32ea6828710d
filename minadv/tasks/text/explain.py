r"""Which units a classifier's answer hangs on: those whose removal, each alone, would change it most.

Removing unit i is to set its mask to zero on the recurrent connection, at every step. What that does to the probability
of the answer y is found in two stages. The map of Eq. 6 with :math:`-\log p_y` in the place of the distance, taken at
the full network by one backward pass, says for every unit what its removal would do to first order,

.. math:: \log p_y(\epsilon - e_i) - \log p_y(\epsilon) \approx \frac{\partial (-\log p_y)}{\partial \epsilon_i}

(the distance itself has no slope there: it is zero, its least value, at the full network). The units of the largest
such change are then removed, one at a time, and the network is run without each: the numbers that are given are those
of the networks that were run, and the first order only chose which. With at most ``candidates`` units all are run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minadv.backend import Array, same_place, to_host
from minadv.base.trees import tree_map
from minadv.fast import reusing
from minadv.layers import log_softmax
from minadv.models.text import TextBatch, TextClassifier
from minadv.protocol import choose_sites
from minadv.tasks.text.reading import PIECE

CANDIDATES = 64


@dataclass(frozen=True)
class Removal:
    """A unit, and the class probabilities (C,) without it."""

    site: str
    unit: int
    p: Array


@dataclass(frozen=True)
class Explained:
    """The class probabilities (C,) of a text, and what would change the answer most, the largest change first."""

    p: Array
    removals: tuple[Removal, ...]


def explain(
    model: TextClassifier, params: Any, tokens: Array, *, top: int = 5, candidates: int = CANDIDATES
) -> Explained:
    """The answer to one text, ``tokens (T,)`` with its ``<eos>`` on the host, and the units that it hangs on.

    The passes run where the weights are; what is found is on the host.
    """
    p, slopes = first_order(model, params, tokens)
    answer = int(p.argmax())
    units = [(site, n) for site, slope in slopes.items() for n in range(len(slope))]
    size = np.concatenate(list(slopes.values()))
    chosen = [units[n] for n in np.argsort(-np.abs(size), kind="stable")[:candidates]]
    without = remove(model, params, tokens, chosen)  # (n, C)
    order = np.argsort(-np.abs(without[:, answer] - p[answer]), kind="stable")[:top]
    return Explained(p, tuple(Removal(chosen[n][0], chosen[n][1], without[n]) for n in order))


def first_order(model: TextClassifier, params: Any, tokens: Array) -> tuple[Array, dict[str, Array]]:
    r"""The class probabilities (C,), and :math:`\partial (-\log p_y)/\partial \epsilon` of the answer, (H,) a site."""
    whole, batch = replace(model, truncate=None), TextBatch(same_place(tokens[:, None], params.encoder.E))
    features, _, cache = whole.body(params, batch, masks={}, noise=None)
    p = np.exp(to_host(log_softmax(whole.logits(params, features)[-1])))[0]
    head = whole.head(params, features, same_place(p.argmax(keepdims=True), params.encoder.E))
    sites = tuple(site.name for site in choose_sites(model, None))
    back = whole.body_backward(params, cache, head.dfeatures, weights=False, masks=sites)
    return p, {site: to_host(dm[0]) for site, dm in back.masks.items()}


def remove(model: TextClassifier, params: Any, tokens: Array, units: list[tuple[str, int]]) -> Array:
    """The class probabilities of a text without each of some units alone, (n, C)."""
    reader, B = reusing(replace(model, truncate=PIECE)), len(units)
    masks = {site.name: np.ones((B, site.H), params.encoder.E.dtype) for site in choose_sites(model, None)}
    for row, (site, unit) in enumerate(units):
        masks[site][row, unit] = 0
    batch, masks = tree_map(
        lambda a: same_place(a, params.encoder.E), (TextBatch(np.repeat(tokens[:, None], B, axis=1)), masks)
    )
    with reader.scope():
        features, _, _ = reader.body(params, batch, masks=masks, noise=None)
        logits = reader.logits(params, features)[-1]
    return np.exp(to_host(log_softmax(logits)))
