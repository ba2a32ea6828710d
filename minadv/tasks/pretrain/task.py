r"""The task of pre-training: the language model whose weights a classifier of texts begins with.

A step reads the next window of text, T steps of B streams; the state is carried from window to window and begins anew
with every epoch. The text is that of the training and the unlabelled documents. The documents that validate are the
held-out part, on which the softmax of the whole vocabulary is taken; test documents are never trained on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from minadv.backend import Array, same_place
from minadv.base.numbers import Seed, Size
from minadv.base.pulse import doing
from minadv.base.streams import permutation, stream
from minadv.base.trees import tree_map
from minadv.data.texts.documents import Corpus, Documents
from minadv.data.texts.text_streams import Streams
from minadv.fast import reusing
from minadv.models.pretraining import LMBatch, TextLM
from minadv.models.stack import by_name
from minadv.regularizers import Plain, Term
from minadv.tasks.text.reading import PIECE, like_params, load_of
from minadv.tasks.text.task import expect_fit
from minadv.training.parallel.inference import alone
from minadv.training.parallel.workers import WHOLE, Part
from minadv.training.task import Load


@dataclass(frozen=True, eq=False)
class PretrainTask:
    """The language model of a corpus, ``T`` steps of ``batch_size`` streams of text at a time.

    ``model`` has the frequencies of the corpus's vocabulary, which lie where the parameters are to lie. An evaluation
    reads about ``held_out`` tokens, always the same ones.
    """

    model: TextLM
    corpus: Corpus
    batch_size: Size = 256
    T: Size = 400
    seed: Seed = 0
    dtype: str = "float32"
    held_out: Size = 100_000

    def __post_init__(self) -> None:
        """Raise whatever is wrong with the task here, before anything is written."""
        expect_fit(self.model, self.corpus)
        if self.held_out < 1:
            raise ValueError(f"held_out is {self.held_out}, expected at least 1 token")
        _ = self.streams

    @cached_property
    def streams(self) -> Streams:
        """The training and the unlabelled texts."""
        return Streams(self.corpus.train.join(self.corpus.unlabelled), self.batch_size, self.T, self.seed)

    @property
    def per_epoch(self) -> int:
        return self.streams.per_epoch

    @property
    def unit(self) -> str:
        return "word"

    @property
    def units_per_step(self) -> int:
        return self.batch_size * self.T

    @property
    def tokens(self) -> int:
        """Time steps times examples of the largest batch: what its passes keep for going back."""
        return self.units_per_step

    def rate(self, step: int) -> float:
        return 1.0

    def init(self) -> Any:
        params = self.model.init(stream(self.seed, "init"), dtype=self.dtype)
        return tree_map(lambda a: same_place(a, like_params(self.model)), params)

    def first_carry(self) -> Any:
        return zero_states(self.model, self.batch_size, self.dtype, like=like_params(self.model))

    def term(
        self, params: Any, step: int, *, weight: float, carry: Any, part: Part = WHOLE, model: Any = None
    ) -> tuple[Term, Any]:
        n, mine = self.batch_size, part.rows(self.batch_size)
        state = None if self.streams.first(step) else tree_map(lambda a: a[mine], carry)
        rng = part.rng(stream(self.seed, "masks", step), n)
        batch = self.model.with_candidates(rng, lm_batch(self.model, *self.streams.window(step, mine)))
        term = Plain()(model or self.model, params, batch, rng=rng, likelihood=part.share(n), state=state)
        return term, term.state

    @property
    def load(self) -> Load:
        load = load_of(self.model, self.dtype, self.units_per_step, self.batch_size, padded=False)
        softmax = float(self.units_per_step) * self.model.n_hidden * self.model.n_candidates
        return replace(load, products=load.products + softmax)

    def evaluate(self, params: Any, part: str) -> dict[str, Any]:
        return evaluate(self.model, params, getattr(self.corpus, part), tokens=self.held_out)


def evaluate(model: TextLM, params: Any, documents: Documents, *, tokens: int, batch_size: int = 50) -> dict[str, Any]:
    """Mean NLL of a word and its exponential, the perplexity, on documents with about ``tokens`` tokens.

    Which documents are read depends on nothing but their number and lengths. They are read in ``batch_size`` streams
    side by side, each with a carried state of its own.
    """
    order = permutation(stream(0, "held out"), len(documents))
    n = int(np.searchsorted(np.cumsum(documents.lengths[order] + 1), tokens)) + 1
    some = documents.take(np.sort(order[:n]))
    length = int(some.lengths.sum()) + len(some)
    streams = Streams(some, min(batch_size, length - 1), PIECE, None, partial=True)
    total, words, state, model = 0.0, 0, None, reusing(model)
    with alone(params), doing("reading the texts", streams.per_epoch, "windows") as work:
        for step in range(streams.per_epoch):
            inputs, targets = streams.window(step)
            batch = lm_batch(model, inputs, targets)
            with model.scope():
                features, state, _ = model.body(params, batch, masks={}, noise=None, state=state)
                nll = model.nll(params, features, same_place(targets, like_params(model)))
            total, words = total + float(nll.sum(dtype=np.float64)), words + nll.size
            work.advance()
    loss = total / words
    return {"loss": loss, "perplexity": math.inf if loss > 700 else math.exp(loss)}


def lm_batch(model: TextLM, inputs: Array, targets: Array) -> LMBatch:
    """A window of text, on the device of the model's parameters."""
    return LMBatch(same_place(inputs, like_params(model)), same_place(targets, like_params(model)))


def zero_states(model: TextLM, B: int, dtype: str, *, like: Array) -> Any:
    """The state before the first word, ``(B, H)``, of every layer."""
    State = by_name(model.cell).State
    zero = same_place(np.zeros((B, model.n_hidden), dtype), like)
    return (State(*[zero] * len(State.__dataclass_fields__)),) * model.n_layers
