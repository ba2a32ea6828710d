r"""The task of a word-level language model: windows of a text, the state carried from each to the next.

A step reads one window of `minadv.data.language.windows`. Its learning rate is scaled by the window's length, and its
state is the last one of the window before, or zero where an epoch begins; gradients stop there (truncated
backpropagation). The state that is carried on is that of the pass at which the likelihood is taken. AR and temporal AR
are in the gradient of the likelihood (`minadv.models.language.activation`) and in no reported number.

An evaluation reads a part from its first word to its last with one carried state, without noise and masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from minadv import layers, lstm
from minadv.backend import Array, is_device, namespace, same_place
from minadv.base.numbers import Seed, Size
from minadv.base.shared_draws import Keyed, Rng
from minadv.base.streams import stream
from minadv.base.trees import tree_map
from minadv.data.language.windows import Windows, expect_columns
from minadv.distances import Distance
from minadv.models import stack
from minadv.models.language.model import LanguageModel, Params, States, TokenBatch
from minadv.models.language.noise import PARTS, Noise
from minadv.models.language.reading import Reading, read
from minadv.protocol import Comparison, choose_sites
from minadv.regularizers import AdD, Plain, Regularizer, Term
from minadv.tasks.methods import expect_room
from minadv.training.parallel.inference import alone
from minadv.training.parallel.workers import WHOLE, Part
from minadv.training.task import Load


@dataclass(frozen=True, eq=False)
class LanguageTask:
    r"""A language model on a text; ``train``, ``valid`` and ``test`` are word numbers ``(N,)``, on the task's device.

    Where the regularizer has ``share_noise=False``, its second pass draws the parts ``fresh`` of the noise anew
    (`minadv.models.language.noise.PARTS`) and shares the others. ``every`` = n compares the predictions of two passes
    at one step in n only, :math:`\lambda_t = n/T` there and 0 elsewhere, from one of the first n steps on, drawn at
    random: an unbiased estimate of :math:`\lambda_t = 1/T` at a fraction of the cost, most of which is the softmax over
    the vocabulary. Of AdD it is another objective: its search looks at the compared steps alone, so that its mask is
    the adversary of those, and their distance on average larger than that of the mask for all steps. In a window of
    fewer than n steps, one step stands for all T of them (n is then T). Evaluations read a part in ``columns`` side by
    side, each from a fresh state; with one, the state has seen the whole text. ``start``
    are the first weights (None: drawn). ``draws`` says how random masks are made: ``"philox-1"`` of keys, alike on host
    and device (`minadv.base.philox`); ``"stream"`` number by number on the host, as in runs begun before version 0.2.
    """

    model: LanguageModel
    train: Array
    valid: Array
    test: Array
    regularizer: Regularizer = field(default_factory=Plain)
    batch_size: Size = 20
    bptt: Size = 70
    seed: Seed = 0
    dtype: str = "float32"
    random_lengths: bool = True
    fresh: tuple[str, ...] = ("words",)
    every: Size = 1
    columns: Size = 1
    start: Params | None = None
    draws: Literal["philox-1", "stream"] = "philox-1"

    def __post_init__(self) -> None:
        stream(self.seed, "init")
        for name in ("every", "columns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 or more")
        if not set(self.fresh) <= set(PARTS):
            raise ValueError(f"fresh is {self.fresh}, expected parts of the noise, some of {', '.join(PARTS)}")
        expect_regularizer(self.model, self.regularizer, self.fresh)
        for name, tokens in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            layers.expect_range(name, tokens, self.model.n_words)
        expect_lengths(self, self.batch_size, self.columns)
        if self.bptt > (length := self._windows.length):
            raise ValueError(
                f"bptt is {self.bptt:,}, expected at most {length:,}, the steps of a column of the training text: "
                f"choose a smaller bptt (--bptt) or batch_size (--batch), which is {self.batch_size:,}"
            )

    @property
    def _windows(self) -> Windows:
        return Windows(self.train, self.batch_size, self.bptt, self.seed, self.random_lengths)

    @property
    def per_epoch(self) -> int:
        return self._windows.per_epoch

    @property
    def unit(self) -> str:
        return "word"

    @property
    def units_per_step(self) -> int:
        """On average: windows differ in length."""
        return max(1, round(self._windows.tokens_per_epoch / self.per_epoch))

    @property
    def tokens(self) -> int:
        """Time steps times examples of the largest batch: what its passes keep for going back."""
        return self.batch_size * self._windows.longest

    def rate(self, step: int) -> float:
        """The window's length in units of ``bptt``: a short window averages fewer errors, and moves less."""
        return self._windows.window(step, slice(0, 1)).scale

    def init(self) -> Any:
        if self.start is not None:
            return tree_map(lambda a: same_place(a.astype(self.dtype), self.train), self.start)
        params = self.model.init(stream(self.seed, "init"), dtype=self.dtype)
        return tree_map(lambda a: same_place(a, self.train), params)

    def first_carry(self) -> States:
        """Zeros ``(B, H)``, a state a layer."""
        return zero_states(self.model, self.batch_size, self.dtype, like=self.train)

    def term(
        self, params: Any, step: int, *, weight: float, carry: Any, part: Part = WHOLE, model: Any = None
    ) -> tuple[Term, Any]:
        windows, B = self._windows, self.batch_size
        part = replace(part, group=max(part.group, self.regularizer.group))
        mine = part.rows(B)
        window = windows.window(step, mine)
        batch = TokenBatch(window.x, window.y, checked=True)
        state = None if windows.first(step) else tree_map(lambda a: a[mine], carry)
        rng, share = part.rng(stream(self.seed, "masks", step), B), part.share(B)
        rng = rng if self.draws == "stream" else Keyed.of(rng, B)
        noise = self.model.noise(rng, batch)
        every = min(self.every, len(window.x))  # so that no window is without a step
        seen = Seen(model or self.model, noise, self.fresh, self._first(step, every), every)
        term = self.regularizer(
            seen, params, batch, rng=rng, noise=noise, weight=share * weight, likelihood=share, state=state
        )
        return term, term.state

    def _first(self, step: int, every: int) -> int:
        """The first of the steps that are compared: any of ``every``, with the same chance."""
        return int(stream(self.seed, "every", step).integers(every))

    @property
    def load(self) -> Load:
        examples = self.batch_size // self.regularizer.group or 1
        return load_of(self.model, self.dtype, self.units_per_step, examples, on_gpu=is_device(self.train))

    def evaluate(self, params: Any, part: str) -> dict[str, Any]:
        return evaluate(self.model, params, getattr(self, part), columns=self.columns, window=self.bptt)


@dataclass(frozen=True)
class Seen:
    """The model as the regularizer of one step sees it: what its second pass draws anew, and which steps it compares.

    All else is the model's own.
    """

    model: LanguageModel
    shared: Noise | None
    fresh: tuple[str, ...]
    first: int
    every: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def noise(self, rng: Rng, batch: TokenBatch) -> Noise | None:
        """The noise of a second pass that does not share all of it."""
        return self.model.redraw(rng, batch, self.shared, self.fresh)

    def compare(
        self,
        params: Params,
        features0: Array,
        features1: Array,
        lam: Array | None,
        distance: Distance,
        *,
        stop_base: bool = False,
        weights: bool = True,
    ) -> Comparison:
        r"""The distance at the steps ``first``, ``first + every``, ...; its gradients, zero at the others.

        The weights there are ``every`` times :math:`\lambda_t`, so that the mean over ``first`` is the whole distance.
        """
        if self.every == 1:
            return self.model.compare(params, features0, features1, lam, distance, stop_base=stop_base, weights=weights)
        chosen, T = slice(self.first, None, self.every), len(features1)
        if lam is None:
            lam = namespace(features1).full(T, 1 / T, dtype=features1.dtype)
        found = self.model.compare(
            params,
            features0[chosen],
            features1[chosen],
            self.every * lam[chosen],
            distance,
            stop_base=stop_base,
            weights=weights,
        )

        def share_out(d: Array) -> Array:
            whole: Array = namespace(d).zeros_like(features1)
            whole[chosen] = d
            return whole

        d0 = None if found.dfeatures0 is None else share_out(found.dfeatures0)
        return Comparison(found.d, d0, share_out(found.dfeatures1), found.params)


def load_of(model: LanguageModel, dtype: str, words: float, examples: int, *, on_gpu: bool = False) -> Load:
    """How much work a pass over some words is."""
    sizes = (model.n_embed, *model.hidden)
    a_word = sum(4.0 * H * (I + H) for I, H in zip(sizes, model.hidden, strict=False)) + model.n_words * sizes[-1]
    heaviest = 4 * max(model.hidden) ** 2 * np.dtype(dtype).itemsize
    ready = stack.compiles_passes(model, "lstm", max(model.hidden), dtype, on_gpu=on_gpu)
    return Load(a_word * words, heaviest, examples, on_gpu, compiled=ready)


def expect_lengths(parts: Any, batch_size: int, columns: int, called: Callable[[str], str] = str) -> None:
    """Raise DataError unless ``train``, ``valid`` and ``test`` are long enough for the columns they are read in.

    ``called`` gives the name of a part in the error.
    """
    for part, n, remedy in (
        ("train", batch_size, "choose a smaller batch_size (--batch)"),
        ("valid", columns, "choose fewer columns (--eval-columns)"),
        ("test", columns, "choose fewer columns (--eval-columns)"),
    ):
        expect_columns(called(part), getattr(parts, part), n, remedy if n > 1 else "give it more text")


def expect_regularizer(model: LanguageModel, regularizer: Regularizer, fresh: tuple[str, ...] = ("words",)) -> None:
    """Raise unless the model has the regularizer's sites, units enough for its budgets, and the noise it needs.

    A search that starts at the base mask needs noise that differs between the passes: its influence map is zero if not.
    """
    choose_sites(model, getattr(regularizer, "sites", None))
    if not isinstance(regularizer, AdD):
        return
    expect_room(model, regularizer)
    rates = model.rates
    by_part = {"words": rates.words, "inputs": rates.inputs, "outputs": max(rates.outputs), "U": rates.U}
    differs = not regularizer.share_noise and any(by_part[part] for part in fresh)
    if getattr(regularizer.search, "start", None) == "base" and not differs:
        raise ValueError(
            'start is "base", which needs noise that differs between the two passes: give the model a word dropout and '
            'the regularizer share_noise=False (--word-dropout, --fresh words), or take start="flip" (--init flip)'
        )


def zero_states(model: LanguageModel, B: int, dtype: str, *, like: Array) -> States:
    """The state before the first word, as a run's checkpoints hold it, where the array ``like`` is."""
    xp = namespace(like)
    return tuple(lstm.State(xp.zeros((B, H), dtype), xp.zeros((B, H), dtype)) for H in model.hidden)


def evaluate(
    model: LanguageModel, params: Params, tokens: Array, *, columns: int = 1, window: int = 70
) -> dict[str, float]:
    """Mean NLL of a word and perplexity over a text ``tokens (N,)``, of which every word but the first is predicted."""
    return metrics(read_whole(model, params, tokens, columns=columns, window=window))


def read_whole(model: LanguageModel, params: Params, tokens: Array, *, columns: int = 1, window: int = 70) -> Reading:
    """Read a text ``tokens (N,)``, in one piece or in several columns side by side.

    Columns are faster, and a little worse for the first words of each; the first (N - 1) % columns of them are one word
    longer than the others.
    """
    with alone(params):
        if columns == 1:
            return read(model, params, tokens, window=window)
        steps, longer = divmod(len(tokens) - 1, columns)
        begins = [n * steps + min(n, longer) for n in range(columns)]
        found = read(model, params, _side_by_side(tokens, begins, steps + 1), window=window)
        if longer:
            state = tree_map(lambda a: a[:longer], found.state)
            ends = _side_by_side(tokens, [n + steps for n in begins[:longer]], 2)
            more = read(model, params, ends, state=state, window=window)
            found = Reading(np.concatenate([found.words, more.words]), found.state)
        return found


def metrics(found: Reading) -> dict[str, float]:
    """What an evaluation says of a reading."""
    return {"loss": found.loss, "perplexity": found.perplexity}


def _side_by_side(tokens: Array, begins: list[int], length: int) -> Array:
    """Pieces of a text ``(length, B)``."""
    pieces: Array = namespace(tokens).stack([tokens[n : n + length] for n in begins], axis=1)
    return pieces
