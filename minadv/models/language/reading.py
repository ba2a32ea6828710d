r"""Reading with a language model: the perplexity of a text, the state carried over all of it, and what may come next.

.. math:: \mathrm{perplexity} = \exp\Big(\frac1n \sum_{t} -\log p(w_{t+1} \mid w_1, \dots, w_t)\Big)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from minadv import fast, layers
from minadv.backend import Array, namespace, to_host
from minadv.base.checks import expect_shape
from minadv.base.pulse import doing
from minadv.models.language.model import LanguageModel, Params, States, TokenBatch


@dataclass(frozen=True, eq=False)
class Reading:
    """What `read` returns: the NLL of each word ``(n,)``, float64 on the host, and the state after the last of them."""

    words: Array = field(repr=False)
    state: States = field(repr=False)

    @property
    def n(self) -> int:
        """The number of words that were predicted."""
        return len(self.words)

    @property
    def nll(self) -> float:
        """The sum of the NLL of all words, rounded once: it does not depend on how the text was cut."""
        return math.fsum(self.words)

    @property
    def loss(self) -> float:
        """The mean NLL of a word."""
        return self.nll / self.n

    @property
    def perplexity(self) -> float:
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf


def read(
    model: LanguageModel, params: Params, tokens: Array, *, state: States | None = None, window: int = 70
) -> Reading:
    """Read a stream ``tokens (N + 1,)``, or several side by side, ``(N + 1, B)``, and predict every word but the first.

    No noise and no masks. The stream is run ``window`` steps at a time, the state carried over: the numbers do not
    depend on the window, the memory does.
    """
    namespace(tokens=tokens)
    if tokens.ndim not in (1, 2) or tokens.shape[0] < 2 or tokens.size == 0:
        raise ValueError(f"tokens has shape {tokens.shape}, expected (N + 1,) or (N + 1, B) with at least 2 words")
    if window < 1:
        raise ValueError(f"window is {window}, expected at least 1 step")
    layers.expect_range("tokens", tokens, model.n_words)
    streams = tokens[:, None] if tokens.ndim == 1 else tokens
    steps = streams.shape[0] - 1
    nlls: list[Array] = []  # the NLL of each word, on the device until the end
    model = fast.reusing(model)
    with model.scope(), doing("reading the text", steps, "steps") as work:  # weights are made ready once
        for first in range(0, steps, window):
            last = min(first + window, steps)
            batch = TokenBatch(streams[first:last], checked=True)
            with model.scope():
                features, state, _ = model.body(params, batch, masks={}, noise=None, state=state)
                nlls.append(model.nll(params, features, streams[first + 1 : last + 1]).ravel())
            work.advance(last - first)
    assert state is not None
    return Reading(to_host(namespace(*nlls).concatenate(nlls)), state)


def next_word_probabilities(
    model: LanguageModel,
    params: Params,
    state: States | None,
    token: Array,
    *,
    temperature: float = 1.0,
) -> tuple[Array, States]:
    r"""The distribution of the word after ``token (B,)``, :math:`\mathrm{softmax}(z/t)`: ``(B, V)``, and the state.

    For generation: no noise, no masks. ``state`` is the one returned for the word before, None at the start. Calls
    within one ``model.scope()`` share what the cells derive from their weights.
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature is {temperature}, expected a positive number")
    expect_shape("token", token, ("B",), "one word for each example")
    batch = TokenBatch(token[None])
    with model.scope():
        features, after, _ = model.body(params, batch, masks={}, noise=None, state=state)
        z = model.logits(params, features)[0].astype(np.float64)  # a low temperature overflows float32
        z -= z.max(axis=-1, keepdims=True)
        p: Array = namespace(token).exp(layers.log_softmax(z / temperature))
    return p, after
