r"""The training steps that `bench.language` measures: minadv's, as ``minadv train`` makes them, and PyTorch's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.bench.contenders import memory
from minadv.base.machine import cores
from minadv.data.language.windows import Windows
from minadv.models.language.model import LanguageModel
from minadv.regularizers import EL, FD, VD, AdD, Plain, Regularizer
from minadv.searches import Greedy, Reselect
from minadv.tasks.language.task import LanguageTask
from minadv.training.clip import Clip
from minadv.training.loop import Recipe, advance, start
from minadv.training.optimizers import ASGD, SGD
from minadv.training.parallel import choose

LR = 1.0


@dataclass(frozen=True)
class Size:
    """A model and its batches: windows of about T words of B columns, from a text of N."""

    name: str
    hidden: tuple[int, ...]
    T: int
    dropouts: tuple[float, float, float, float, float]  # words, inputs, between layers, outputs, recurrent weights
    optimizer: SGD | ASGD
    every: int = 1
    B: int = 20
    V: int = 10_000
    N: int = 929_589
    delta: float = 0.06

    @property
    def windows(self) -> Windows:
        """The windows of the text, of random lengths as in training."""
        return Windows(text(self), self.B, self.T)

    @property
    def longest(self) -> int:
        """The step of the first epoch with the longest window, which takes the most memory."""
        windows = self.windows
        return max(range(windows.per_epoch), key=lambda step: windows.window(step, slice(0, 1)).scale)

    def model(self) -> LanguageModel:
        names = ("word_dropout", "input_dropout", "hidden_dropout", "output_dropout", "dropconnect")
        return LanguageModel(self.V, self.hidden[-1], self.hidden, **dict(zip(names, self.dropouts, strict=True)))  # type: ignore[arg-type]

    def __str__(self) -> str:
        compared = f", predictions compared at one step in {self.every}" if self.every > 1 else ""
        units = "-".join(map(str, self.hidden))
        columns = f"{self.B} columns of about {self.T} words, at most {self.windows.longest}"
        return f"{self.name}: {units}, {columns}, V = {self.V:,}{compared}"


AVERAGED, PLAIN = ASGD(LR, 1.2e-6, interval=None), SGD(LR, weight_decay=1.2e-6)
"""As table3 trains: the paper's sizes with averaged SGD, here from the first step on, the small one with SGD."""

SIZES = {
    size.name: size
    for size in (
        Size("ptb", (1150, 1150, 400), 70, (0.1, 0.4, 0.3, 0.4, 0.5), AVERAGED),
        Size("ptb-small", (200,), 35, (0.1, 0.2, 0.0, 0.2, 0.2), PLAIN),
        Size("ptb-small as in table3", (200,), 35, (0.1, 0.2, 0.0, 0.2, 0.2), PLAIN, every=14),
    )
}

METHODS: dict[str, Regularizer] = {
    "none": Plain(),
    "VD": VD(p=0.1),
    "EL": EL(p=0.1),
    "FD": FD(p=0.1, distance="logit2"),
    "AdD K=1": AdD(delta=0.06, search=Greedy(start="base", keep="last"), share_noise=False),
    "AdD K=2": AdD(delta=0.06, search=Greedy(K=2, start="base", keep="last"), share_noise=False),
    "AdD reselect": AdD(delta=0.06, search=Reselect(start="base"), share_noise=False),
}
RIVALS = {"none": ("PyTorch LSTM", "PyTorch cell"), "AdD K=1": ("PyTorch LSTM", "PyTorch cell")}


def measure(size: Size, method: str, contender: str, rounds: int, workers: int | None = None) -> dict[str, Any]:
    """Words and seconds of each step and the peak of memory in MB, in this process: call it in a fresh one.

    The steps are the first ones of an epoch. Untimed, before and after them, comes the step with the longest window.
    """
    imported = memory.resident()
    step, close = (_ours if contender == "minadv" else _torch)(size, method, contender, workers)
    try:
        longest = size.longest
        step(longest)  # makes the buffers
        memory.reset([os.getpid()])
        words, took = [], []
        for n in range(rounds):
            started = time.perf_counter()
            words.append(step(n))
            took.append(time.perf_counter() - started)
        step(longest)
        return {"words": words, "seconds": took, "peak": memory.peak([os.getpid()]), "imported": imported}
    finally:
        close()


def _ours(size: Size, method: str, contender: str, workers: int | None) -> tuple[Callable[[int], int], Any]:
    """Steps as the loop of training makes them, with all that it holds: weights, their average, and the best ones."""
    windows = size.windows
    tokens = windows.tokens
    task = LanguageTask(
        size.model(),
        tokens,
        tokens[:100],
        tokens[:100],
        METHODS[method],
        batch_size=size.B,
        bptt=size.T,
        every=size.every,
    )
    recipe = Recipe(steps=task.per_epoch, optimizer=size.optimizer, clip=Clip(0.25), monitor="loss")
    held = ExitStack()
    sharing = held.enter_context(choose.start_workers(task, choose.choose_workers(task, workers)))
    states = [start(task, recipe)]

    def step(number: int) -> int:
        states[0], _ = advance(task, recipe, replace(states[0], step=number), sharing)
        return int(windows.window(number).x.size)

    return step, held.close


def _torch(size: Size, method: str, contender: str, workers: int | None) -> tuple[Callable[[int], int], Any]:
    import torch

    from experiments.bench import language_torch as rival

    torch.set_num_threads(workers or cores())
    torch.set_flush_denormal(True)
    params = size.model().init(np.random.default_rng(0))
    assert params.E is not None and params.b is not None
    weights = [torch.tensor(w).requires_grad_() for c in params.cells if c is not None for w in (c.W, c.U, c.b)]
    cells = [(weights[n], weights[n + 1], weights[n + 2]) for n in range(0, len(weights), 3)]
    net = rival.Net(torch.tensor(params.E).requires_grad_(), cells, torch.tensor(params.b).requires_grad_())
    averaged = isinstance(size.optimizer, ASGD)
    average = [w.detach().clone() for w in net.leaves] if averaged else None
    best = [w.detach().clone() for w in net.leaves]  # a copy, because minadv keeps the best weights too
    windows = size.windows
    budgets = [int(size.delta * H + 1e-9) for H in size.hidden] if method != "none" else []
    state = [(torch.zeros(size.B, H), torch.zeros(size.B, H)) for H in size.hidden]

    def step(number: int) -> int:
        x, y, scale = windows.window(number)
        noise = rival.draw(net, size.dropouts, size.B)
        second = None
        if budgets:
            second = rival.other_words(net, noise, size.dropouts[0])
        grads, _, last = rival.gradients(
            net,
            torch.tensor(x.astype(np.int64)),
            torch.tensor(y.astype(np.int64)),
            noise,
            state,
            second=second,
            budgets=budgets,
            fused=contender == "PyTorch LSTM",
        )
        state[:] = last
        rival.update(net, grads, size.optimizer.lr * scale, size.optimizer.weight_decay, average)
        return int(x.size)

    return step, best.clear


@lru_cache(maxsize=1)
def text(size: Size) -> Any:
    """Words drawn by Zipf's law, as many as the size says."""
    chances = 1 / np.arange(1, size.V + 1)
    return np.random.default_rng(0).choice(size.V, size.N, p=chances / chances.sum()).astype(np.int32)
